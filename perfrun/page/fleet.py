"""The newest submissions of a workspace on the page: what ran, what is missing, and why.

Only files are read. No engine is asked, so what waits in a queue is not told from what nothing
will run; `perfrun fleet` asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfrun.errors import PerfrunError
from perfrun.reports.figures import time_left
from perfrun.reports.table import Table, as_cell
from perfrun.shards import standing, sweep_table
from perfrun.shards.plan import Plan, ShardState
from perfrun.shards.plan_file import plan_files, read_plan
from perfrun.shards.status import ShardStatus, statuses
from perfrun.store import quarantine
from perfrun.store.quarantine import Quarantine
from perfrun.text import counted

_MOST_SUBMISSIONS = 3  # the newest
_MOST_SHARDS = 10_000  # that are looked at, of all submissions
_MOST_TRIALS = 1000  # whose summaries are read for the tables of sweeps
_MOST_PROBLEMS, _MOST_MACHINES, _MOST_ROWS = 50, 100, 200


def submissions_shown(
    workspace: Path, labels: Collection[str] | None = None
) -> tuple[dict[str, Any], ...]:
    """Return the newest submissions, of those with these ids where some are given."""
    found: list[dict[str, Any]] = []
    shards, trials = _MOST_SHARDS, _MOST_TRIALS
    held = _held(workspace)
    for plan in _plans(workspace, labels):
        if len(plan.shards) > shards:
            note = f"{len(plan.shards):,} shards are too many to be looked at here"
            found.append(_shown(plan, (), held, (f"{note}: perfrun fleet has them",)))
            continue
        shards -= len(plan.shards)
        known = statuses(plan)
        results, notes = None, list[str]()
        if any(shard.setting for shard in plan.shards):
            needed = sum(len(one.last.ended.trials) for one in known if one.last and one.last.ended)
            if needed <= trials:
                trials -= needed
                results = sweep_table.table(sweep_table.rows_of(plan, known, ()))
            else:
                notes.append(f"{needed:,} trials are too many for a table here: fleet --table")
        found.append(_shown(plan, known, held, notes, results))
    return tuple(found)


def _plans(workspace: Path, labels: Collection[str] | None) -> Iterator[Plan]:
    left = _MOST_SUBMISSIONS
    for path in plan_files(workspace):
        if labels is not None and path.parent.name not in labels:
            continue
        if not left:
            return
        try:
            plan = read_plan(path)
        except PerfrunError:
            continue
        left -= 1
        yield plan


def _held(workspace: Path) -> Quarantine:
    try:
        return quarantine.read(workspace)
    except PerfrunError:  # commands that count results say so
        return Quarantine()


def _shown(
    plan: Plan,
    found: Sequence[ShardStatus],
    held: Quarantine,
    notes: Sequence[str],
    results: Table | None = None,
) -> dict[str, Any]:
    counts = Counter(one.state for one in found)
    left_s = standing.seconds_left(_with_waiting(found))
    bad = [one for one in found if one.state.is_bad and (one.attempts or one.reason)]
    machines = standing.machines(found)
    tables = [
        _table("What failed, and why", *_problems(bad), len(bad)),
        _table("Machines", *_machines(machines, held), len(machines)),
    ]
    if results is not None:
        # Names of metrics stay as they are.
        own = ("method", "environment", "setting", "machine", "trials")
        headings = [
            column.heading.capitalize() if column.heading in own else column.heading
            for column in results.columns
        ]
        rows = [
            [" ".join(as_cell(cell).lines) for cell in row] for row in results.rows[:_MOST_ROWS]
        ]
        tables.append(_table("Results by setting", headings, rows, len(results.rows)))
    return {
        "submission": plan.submission,
        "suite": plan.suite,
        "engine": plan.engine,
        "created": plan.created,
        "shards": len(plan.shards),
        "states": {state.value: counts[state] for state in ShardState if counts[state]},
        "seconds_left": left_s,
        "left": "" if left_s is None else f"about {time_left(left_s)} left",
        "is_good": bool(found) and counts[ShardState.DONE] == len(found),
        "tables": [one for one in tables if one["rows"]],
        "notes": list(notes),
    }


def _with_waiting(found: Sequence[ShardStatus]) -> Sequence[ShardStatus]:
    """While some run, what has not begun waits for its turn."""
    if not any(one.state is ShardState.RUNNING for one in found):
        return found
    return [
        replace(one, state=ShardState.WAITING) if one.state is ShardState.UNKNOWN else one
        for one in found
    ]


def _problems(bad: Sequence[ShardStatus]) -> tuple[list[str], list[list[str]]]:
    headings = ["Method", "Setting", "State", "Why", "Machine", "Environment", "Round"]
    rows = [
        [
            one.shard.method,
            one.shard.setting_text,
            one.state.value,
            one.reason or ("was ended from outside" if one.state is ShardState.PREEMPTED else ""),
            one.host,
            one.shard.environment,
            str(one.shard.round),
        ]
        for one in bad[:_MOST_PROBLEMS]
    ]
    return headings, rows


def _machines(
    machines: Sequence[Mapping[str, Any]], held: Quarantine
) -> tuple[list[str], list[list[str]]]:
    """Return what each machine did, those first that are in quarantine or have failed."""
    headings = ["Machine", "Shards", "Attempts", "Machine failures", "Quarantine"]
    rows = []
    for one in machines:
        period = held.of(one["machine"])
        because = "" if period is None else period.because or "yes"
        numbers = [str(one[name]) for name in ("shards", "attempts", "machine_failures")]
        rows.append([one["machine"], *numbers, because])
    order = sorted(rows, key=lambda row: (not row[4], -int(row[3])))
    return headings, order[:_MOST_MACHINES]


def _table(title: str, headings: list[str], rows: list[list[str]], of: int) -> dict[str, Any]:
    """Return a table, without the columns that have nothing."""
    more = f", {len(rows)} of {counted(of, 'row')}" if of > len(rows) else ""
    kept = [at for at in range(len(headings)) if any(row[at] for row in rows)]
    return {
        "title": f"{title}{more}",
        "headings": [headings[at] for at in kept],
        "rows": [[row[at] for at in kept] for row in rows],
    }
