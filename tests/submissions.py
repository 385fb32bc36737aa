"""Plans and results of shards, made without running anything."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from perfrun.run.digest import sha256_of
from perfrun.shards.places import Attempt, Ended, How, ShardPlace
from perfrun.shards.plan import Plan, Shard
from perfrun.shards.plan_file import write_plan

SUMMARY = "perfzero_summary.json"


def plan(workspace: Path, count: int = 2, rounds: int = 1, submission: str = "lab-1") -> Plan:
    """A plan of so many methods, written to its place."""
    made = Plan(
        submission=submission,
        suite="lab",
        digest="0" * 64,
        created=1.0,
        engine="local",
        shards=tuple(
            Shard(
                index=number * count + one,
                method=f"cases.Cases.m{one}",
                environment="default",
                round=number + 1,
                words=(f"--benchmark_methods=cases.Cases.m{one}",),
            )
            for number in range(rounds)
            for one in range(count)
        ),
        folder=workspace / "submissions" / submission,
    )
    write_plan(made)
    return made


def swept(workspace: Path, sizes: int = 3) -> Plan:
    """A plan of so many settings, of which nothing has begun."""
    one = plan(workspace, sizes, submission="swept")
    (one.folder / "plan.json").unlink()
    shards = tuple(
        replace(shard, method="cases.Cases.m", setting=(("size", str(shard.index)),))
        for shard in one.shards
    )
    made = replace(one, shards=shards)
    write_plan(made)
    return made


def attempt(made: Plan, index: int, **contents: str) -> Attempt:
    """An attempt whose trials have these summaries."""
    place = ShardPlace(made, index)
    place.make()
    begun = place.claim()
    for name, text in contents.items():
        folder = begun.folder / "output" / name
        folder.mkdir(parents=True)
        (folder / SUMMARY).write_text(text)
    return begun


def ended(how: How = How.RAN, reason: str = "", **contents: str) -> Ended:
    """The end of an attempt with these summaries."""
    trials = tuple((name, sha256_of(text.encode())) for name, text in contents.items())
    return Ended(how=how, ended=time.time(), reason=reason, trials=trials)


def finished(made: Plan, index: int, **contents: str) -> Attempt:
    """An attempt that ended well."""
    begun = attempt(made, index, **contents)
    ShardPlace(made, index).end(begun, ended(**contents))
    return ShardPlace(made, index).attempt(begun.number)
