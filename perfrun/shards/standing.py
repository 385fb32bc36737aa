"""How a submission stands: its shards by state, its machines, what is missing and why."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from perfrun.reports.figures import time_left
from perfrun.reports.table import Column, Table
from perfrun.reports.terminal import Terminal
from perfrun.shards.plan import Plan, ShardState
from perfrun.shards.status import ShardStatus
from perfrun.shards.telling import SHARD_COLUMNS, shard_cells
from perfrun.shown import write_json, write_lines

_MOST_ROWS = 50  # of the table of what is missing


def seconds_left(found: Sequence[ShardStatus]) -> float | None:
    """Return the time that what waits and runs takes, at as many at a time as run now.

    None when nothing waits or runs, or when no shard has ended yet. A shard takes what the median
    one of its method and setting took, or else of its method, or else of all.
    """
    left = [one for one in found if one.state.is_open]
    ended = [one for one in found if one.state.has_result and one.seconds is not None]
    if not left or not ended:
        return None
    known: dict[tuple[Any, ...], list[float]] = {}
    for one in ended:
        for key in _keys(one):
            known.setdefault(key, []).append(one.seconds or 0.0)
    total = sum(
        statistics.median(next(known[key] for key in _keys(one) if key in known)) for one in left
    )
    return total / max(1, sum(one.state is ShardState.RUNNING for one in left))


def _keys(status: ShardStatus) -> tuple[tuple[Any, ...], ...]:
    shard = status.shard
    return (shard.method, shard.environment, shard.setting), (shard.method,), ()


def document(plan: Plan, found: Sequence[ShardStatus]) -> dict[str, Any]:
    """Return the document of a submission, as `--format=json` prints it."""
    counts = Counter(one.state for one in found)
    return {
        "submission": plan.submission,
        "suite": plan.suite,
        "engine": plan.engine,
        "created": plan.created,
        "folder": str(plan.folder),
        "states": {state.value: counts[state] for state in ShardState if counts[state]},
        "seconds_left": seconds_left(found),
        "machines": machines(found),
        "shards": [
            {
                "index": one.shard.index,
                "method": one.shard.method,
                "environment": one.shard.environment,
                "round": one.shard.round,
                "setting": dict(one.shard.setting),
                "state": one.state.value,
                "attempts": len(one.attempts),
                "machine": one.host,
                "seconds": one.seconds,
                "reason": one.reason,
            }
            for one in found
        ],
    }


def machines(found: Sequence[ShardStatus]) -> list[dict[str, Any]]:
    """Return what each machine did: every attempt counts, also one that another replaced."""
    rows: dict[str, dict[str, Any]] = {}
    for one in found:
        for attempt in one.attempts:
            if attempt.begun is None:
                continue
            row = rows.setdefault(
                attempt.begun.host,
                {"machine": attempt.begun.host, "shards": 0, "attempts": 0, "machine_failures": 0},
            )
            row["attempts"] += 1
            is_last = attempt is one.last
            row["shards"] += is_last and one.state.has_result
            row["machine_failures"] += attempt.ended is not None and attempt.ended.how == "machine"
    return sorted(rows.values(), key=lambda row: str(row["machine"]))


def show(plan: Plan, found: Sequence[ShardStatus], name: str, *, as_json: bool) -> None:
    """Print how a submission stands; `name` is what commands call it."""
    if as_json:
        write_json(document(plan, found))
        return
    counts: Mapping[ShardState, int] = Counter(one.state for one in found)
    parts = [f"{counts[state]} {state.value}" for state in ShardState if counts.get(state)]
    write_lines([f"{plan.submission} on {plan.engine}: {len(found)} shards, {', '.join(parts)}"])
    left_s = seconds_left(found)
    if left_s is not None:
        write_lines([f"about {time_left(left_s)} left"])
    screen = Terminal(sys.stdout, sys.stderr, quiet=True)
    rows = machines(found)
    if len(rows) > 1:
        screen.table(
            Table(
                columns=(
                    Column(heading="machine"),
                    Column(heading="shards", right=True),
                    Column(heading="attempts", right=True),
                    Column(heading="machine failures", right=True),
                ),
                rows=tuple(
                    (
                        str(row["machine"]),
                        str(row["shards"]),
                        str(row["attempts"]),
                        str(row["machine_failures"]),
                    )
                    for row in rows
                ),
            )
        )
    _show_problems(found, screen)
    missing = sum(not one.state.has_result and not one.state.is_open for one in found)
    if missing:
        write_lines([f"{missing} have no result: `perfrun submit --resume {name}` runs them"])
    if counts.get(ShardState.FAILED):
        write_lines(
            ["a failed benchmark is run again only with --retry_failed: it would fail again"]
        )


def _show_problems(found: Sequence[ShardStatus], screen: Terminal) -> None:
    bad = [one for one in found if one.state not in (ShardState.DONE, *_NO_NEWS) or one.reason]
    if not bad:
        return
    columns = (
        *SHARD_COLUMNS,
        Column(heading="state"),
        Column(heading="machine"),
        Column(heading="why", prose=True),
    )
    rows = tuple(
        (*shard_cells(one.shard), one.state.value, one.host, one.reason) for one in bad[:_MOST_ROWS]
    )
    screen.table(
        Table(
            columns=columns,
            rows=rows,
            narrow=(
                ("shard", "method", "setting", "environment", "round"),
                ("shard", "state", "machine", "why"),
            ),
        )
    )
    if len(bad) > _MOST_ROWS:
        write_lines([f"and {len(bad) - _MOST_ROWS} more; --format=json has all"])


_NO_NEWS = (ShardState.WAITING, ShardState.RUNNING, ShardState.UNKNOWN)
