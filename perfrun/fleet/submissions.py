"""The submissions of a workspace: find one, ask how it stands, bring in its results."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.fleet.collect import Collected, add_to_index, collect
from perfrun.fleet.engines import Engine
from perfrun.fleet.plan_file import FILE, read_plan
from perfrun.fleet.planning import FOLDER
from perfrun.fleet.shards import Plan
from perfrun.fleet.status import ShardStatus, merged, statuses
from perfrun.options.parsers import parse_workspace, shown
from perfrun.options.store_address import parse_address
from perfrun.shown import say


def missing_of(found: Sequence[ShardStatus]) -> list[int]:
    """Return the shards that have no result, and on which nothing works."""
    return [
        status.shard.index
        for status in found
        if not status.state.has_result and not status.state.is_open
    ]


def look(plan: Plan, engine: Engine | None) -> tuple[ShardStatus, ...]:
    """Return the status of all shards; the engine is asked about those without a result only."""
    by_files = statuses(plan)
    left = [one.shard.index for one in by_files if not one.state.has_result]
    if engine is None or engine.stays or not left:
        return by_files
    said = engine.states(plan, left)
    return tuple(merged(one, said.get(one.shard.index)) for one in by_files)


def find_plan(workspace: Path, word: str) -> Plan:
    """Return a submission by id or folder, or the newest one by `last`. Raises UsageError."""
    if "/" in word:
        return read_plan(Path(word))
    folder = workspace / FOLDER
    if word != "last":
        if not (folder / word / FILE).is_file():
            raise UsageError(
                f"{shown(word)}: there is no such submission in {folder}; `perfrun fleet` without "
                "a name shows the newest one"
            )
        return read_plan(folder / word)
    plans = sorted(folder.glob(f"*/{FILE}"), key=_written, reverse=True)
    if not plans:
        raise UsageError(f"{folder}: there is no submission; `perfrun submit SUITE.toml` makes one")
    return read_plan(plans[0])


def name_of(plan: Plan) -> str:
    """Return the word by which commands find a submission from this folder: its id, or its path."""
    is_near = plan.workspace == parse_workspace(None)
    return plan.submission if is_near else shlex.quote(str(plan.folder))


def _written(path: Path) -> float:
    """Return when a plan was written, which is once."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def bring_in(plan: Plan, found: Sequence[ShardStatus], store: str | None) -> Collected:
    """Collect all results there are, and add them to the index. Raises WorkspaceError.

    That is `store`, or else the suite's when it was submitted, or else the workspace's own.
    """
    done = [status.shard.index for status in found if status.state.has_result]
    collected = collect(plan, done, say)
    for text in collected.problems:
        say(text)
    add_to_index(parse_address(store or plan.store, plan.workspace), collected, say)
    return collected
