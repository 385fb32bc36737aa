"""Randomised pairs of fresh processes: side A and side B in turns, until a rule has seen enough.

For whoever has to know whether one thing is slower than another, as `perfrun ab`. Both sides go the
way of every run: own workspace, own journal, a summary on disk after each trial. The loop is that
of `perfrun.blocks`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from perfrun.analysis.directions import Direction
from perfrun.blocks import MOST_FAILURES, Block, Blocks, Reason, Trial
from perfrun.document import TrialResult
from perfrun.errors import UsageError
from perfrun.interruption import Interruption, taking_signals
from perfrun.plan import RunPlan
from perfrun.rounds import Rounds
from perfrun.runner import prepare
from perfrun.screen import Screen
from perfrun.summary_metrics import WALL_TIME
from perfrun.summary_record import SummaryRecord
from perfrun.worker.procfs import adopt_orphans

Name = Literal["a", "b"]
SIDES: tuple[Name, Name] = ("a", "b")


class NotTogether(UsageError):  # noqa: N818 - it is caught
    """Two runs that are to be resumed are not the sides of the same pairs."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One trial of each side, run right after another."""

    number: int  # from 1
    first: Name
    a: SummaryRecord
    b: SummaryRecord

    def values(self, metric: str) -> tuple[float, float] | None:
        """The figures of both sides; None where a ratio of them says nothing."""
        one, other = self.a.values.get(metric), self.b.values.get(metric)
        return (one, other) if one and other and min(one, other) > 0 else None


# Whether pairs have decided, given the ratios' logarithms and the direction; asked after each pair.
Decided = Callable[[Sequence[float], Direction], bool]
# Makes that for so many methods; may raise UsageError.
Decider = Callable[[int], Decided]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When pairs end whatever they say."""

    max_pairs: int  # of each method
    time_s: float | None = None  # for all of them


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """All pairs, by method, in their order."""

    pairs: Mapping[str, tuple[Pair, ...]]
    stopped_by: Mapping[str, Reason]
    seed: int
    run_ids: Mapping[Name, str]
    interrupted: bool


def side_plan(plan: RunPlan, name: Name, workspace: Path, max_pairs: int) -> RunPlan:
    """Make a plan one side of pairs: a workspace of its own, its name as label, a trial a pair."""
    if plan.profiles:
        raise UsageError("--profile: pairs are not profiled; profile each side by a run of its own")
    label = f"{plan.execution_label}/{name}" if plan.execution_label else name
    return replace(
        plan,
        workspace=workspace / "ab" / name,
        execution_label=label,
        num_trials=max_pairs,
        flags={**plan.flags, "execution_label": label},
    )


def run_pairs(
    plans: Mapping[Name, RunPlan],
    screen: Screen,
    decider: Decider,
    limits: Limits,
    *,
    metric: str = WALL_TIME,
    seed: int | None = None,
    interruption: Interruption | None = None,
) -> PairResult:
    """Run pairs of both plans until each method is decided, or the limits are reached.

    What `decider` makes is asked about `metric`. Raises PerfrunError for what stops it before the
    first trial: both sides are in place before. Interrupted, it gives back the whole pairs.
    `interruption` is that of a caller that has taken over the signals for more than these pairs.
    """
    adopt_orphans()
    proposed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    with taking_signals(interruption) as ours, ExitStack() as stack:
        with ours.allowed():
            sides: dict[Name, Rounds] = {}
            for name in SIDES:
                shown = SideScreen(name, screen)
                # A run that goes on has its seed, which then is that of the other side as well.
                sides[name] = prepare(plans[name], shown, ours, stack, proposed)
                proposed = sides[name].seed
        if sides["a"].seed != sides["b"].seed:
            raise NotTogether("--resume: a and b were not run together; start anew without it")
        if sides["a"].methods != sides["b"].methods:
            raise UsageError(
                f"a and b have different methods: {', '.join(sides['a'].methods) or 'none'} and "
                f"{', '.join(sides['b'].methods) or 'none'}"
            )
        decided = decider(len(sides["a"].methods))
        return _run(sides, decided, limits, metric)


def _run(sides: Mapping[Name, Rounds], decided: Decided, limits: Limits, metric: str) -> PairResult:
    seed = sides["a"].seed
    cases: dict[str, dict[str, Trial]] = {
        method: {name: partial(side.run_one, method) for name, side in sides.items()}
        for method in sides["a"].methods
    }

    def asked(_: str, blocks: Sequence[Block]) -> Reason | None:
        return _verdict([_pair(block) for block in blocks], metric, decided)

    done = Blocks(
        cases,
        asked,
        most=limits.max_pairs,
        time_s=limits.time_s,
        seed=seed,
        taken_over_s=lambda: sum(side.spent_s for side in sides.values()),
    ).run()
    for side in sides.values():
        side.finish(ended=not done.interrupted)
    return PairResult(
        pairs={
            name: tuple(_pair(block) for block in blocks) for name, blocks in done.blocks.items()
        },
        stopped_by=done.stopped_by,
        seed=seed,
        run_ids={name: side.run_id for name, side in sides.items()},
        interrupted=done.interrupted,
    )


def _pair(block: Block) -> Pair:
    first: Name = "a" if block.order[0] == "a" else "b"
    return Pair(number=block.number, first=first, a=block.readings["a"], b=block.readings["b"])


def _verdict(pairs: Sequence[Pair], metric: str, decided: Decided) -> Reason | None:
    last = pairs[-1]
    if last.values(metric) is None:
        if len(pairs) < MOST_FAILURES or any(p.values(metric) for p in pairs[-MOST_FAILURES:]):
            return None
        return "no_figure" if last.a.ran and last.b.ran else "failed"
    found = log_ratios(pairs, metric)
    return "decided" if decided(found, last.b.directions[metric]) else None


def log_ratios(pairs: Sequence[Pair], metric: str) -> tuple[float, ...]:
    """The logarithms of b over a, of the pairs that have both."""
    values = [pair.values(metric) for pair in pairs]
    return tuple(math.log(both[1] / both[0]) for both in values if both)


class SideScreen:
    """Says of which side a trial is."""

    def __init__(self, name: str, screen: Screen) -> None:
        self._name, self._screen = name, screen
        self.prepare, self.note = screen.prepare, screen.note
        self.stdout, self.stderr = screen.stdout, screen.stderr
        self.profile_started = screen.profile_started
        self.profile_finished = screen.profile_finished

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        del total  # nobody knows: pairs end when they have decided
        self._screen.trial_started(number, None, f"{self._name}: {method}", trial_id)

    def trial_finished(self, result: TrialResult) -> None:
        self._screen.trial_finished(replace(result, name=f"{self._name}: {result.name}"))
