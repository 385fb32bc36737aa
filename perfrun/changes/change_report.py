"""The text that `perfrun detect` prints: values in, text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfrun.changes.beginnings import Beginning, beginning_text
from perfrun.changes.cuts import Cut, cut_blocks, is_shown
from perfrun.changes.outlook import (
    SensitivityRow,
    ShiftRow,
    sensitivity_lines,
    shift_lines,
)
from perfrun.reports.figures import changed_by
from perfrun.reports.table import Column, Table, aligned
from perfrun.shown import page
from perfrun.summary.derived_metrics import DerivedRatio, derived_rows
from perfrun.summary.metrics import WALL_TIME

_REASONS = {
    "short": "too few nights",
    "no_direction": "no direction is better",
    "not_positive": "values that are not positive",
}
_MOST_DIFFERENCES = 5
NO_COMMIT = "the night before ran the same commits, image and packages: not the code's"


@dataclass(frozen=True, kw_only=True)
class ChangeRow:
    """One change of one series."""

    method: str
    metric: str
    environment: str
    hardware: str
    before_execution_id: str  # of the last trial at the old level
    after_execution_id: str  # of the first trial at the new level
    night: str  # the evening of the first observation at the new level, as a date
    alarm_night: str  # the evening of the observation that made the evidence sufficient
    ratio: float
    low: float
    high: float
    p_value: float
    direction: str
    machine_suspect: bool
    detectors: tuple[str, ...]
    commits_before: Mapping[str, str]
    commits_after: Mapping[str, str]
    environment_differences: tuple[str, ...] | None
    before_summary: str = ""  # path
    after_summary: str = ""
    evidence: Container[str] = field(default=(), compare=False)  # labels up to the alarm
    alarm_label: str = ""  # of the observation that made the evidence sufficient
    ran_the_same: bool = False  # at both sides, on record: commits, image and environment
    status: str = "candidate"
    confirmation: Mapping[str, Any] | None = None  # the result of the pairs; None: none were run
    derived: tuple[DerivedRatio, ...] = ()  # metrics computed from the same samples
    settings: str = ""  # of the series: variables, flags of the benchmark


def changes_page(
    series: int,
    left_out: Mapping[str, int],
    rows: Sequence[ChangeRow],
    *,
    shifts: Sequence[ShiftRow] = (),
    young: Sequence[SensitivityRow] = (),
    begun_anew: Sequence[Beginning] = (),
    cuts: Sequence[Cut] = (),
    creep: Sequence[str] = (),
    suspects: Sequence[str] | None = None,
) -> str:
    """Return all changes, grouped by night and commits, what is not sure yet, and the totals."""
    groups: dict[tuple[str, str], list[ChangeRow]] = {}
    for row in rows:
        groups.setdefault((row.night, _commits(row)), []).append(row)
    lines = []
    for (night, commits), own in groups.items():
        lines += [
            f"{night}  {commits}",
            *_table(own),
            *_confirmations(own),
            *_environment(own),
            "",
        ]
    told = {(cut.method, cut.environment, cut.date) for cut in cuts if is_shown(cut)}
    anew = [one for one in begun_anew if (one.method, one.environment, one.date) not in told]
    lines += _blocks(
        *cut_blocks(cuts),
        creep,
        shift_lines(shifts),
        [f"{one.method}: {beginning_text(one)}" for one in anew],
        sensitivity_lines(young),
        suspects or (),
    )
    counts = [f"{left_out[why]} {text}" for why, text in _REASONS.items() if left_out.get(why)]
    more = f"; left out: {', '.join(counts)}" if counts else ""
    if rows:
        worse = sum(row.direction == "worse" for row in rows)
        total = f"{series} series, changes: {len(rows)}, for the worse: {worse}{more}."
        lines.append(f"{total} {_confirmed(rows)}")
    else:
        judged = f"{series} series, no change" if series else "No series could be judged"
        lines.append(f"{judged}{more}.")
    return page(lines)


def change_row(row: ChangeRow) -> dict[str, Any]:
    """Return a change as `--format=json` prints it."""
    return {
        "method": row.method,
        "metric": row.metric,
        "before_execution_id": row.before_execution_id,
        "after_execution_id": row.after_execution_id,
        "ratio": row.ratio,
        "direction": row.direction,
        "status": row.status,
        "low": row.low,
        "high": row.high,
        "p_value": row.p_value,
        "night": row.night,
        "alarm_night": row.alarm_night,
        "machine_suspect": row.machine_suspect,
        "detectors": list(row.detectors),
        "commits_before": dict(row.commits_before),
        "commits_after": dict(row.commits_after),
        "environment_differences": (
            None if row.environment_differences is None else list(row.environment_differences)
        ),
        "environment": row.environment,
        "hardware": row.hardware,
        "settings": row.settings,
        "ran_the_same": row.ran_the_same,
        "confirmation": row.confirmation,
        "derived": derived_rows(row.derived),
    }


def _confirmed(rows: Sequence[ChangeRow]) -> str:
    """Return how many changes the pairs have confirmed."""
    if all(row.confirmation is None for row in rows):
        return "Candidates: no paired run has confirmed them."
    names = {"confirmed": "confirmed", "not_reproduced": "not reproduced", "candidate": "open"}
    counts = Counter(row.status for row in rows)
    return "By paired runs: " + ", ".join(f"{counts[key]} {name}" for key, name in names.items())


def _confirmations(rows: Sequence[ChangeRow]) -> list[str]:
    lines = []
    for row in rows:
        result = row.confirmation
        if result is None:
            continue
        figures = (
            f", {result['ratio']:.3f} times in {result['pairs']} pairs" if result["ratio"] else ""
        )
        interval = f" ({result['low']:.3f}..{result['high']:.3f})" if result["low"] else ""
        reason = f": {result['reason']}" if result["reason"] else ""
        name = row.status.replace("_", " ")
        lines.append(f"    {row.metric} {row.method}: {name}{figures}{interval}{reason}")
        lines += [f"      not as recorded, {text}" for text in result["not_reconstructed"]]
    return lines


def _blocks(*several: Sequence[str]) -> list[str]:
    return [line for block in several if block for line in (*block, "")]


def _table(rows: Sequence[ChangeRow]) -> list[str]:
    """Return a line for each method with its settings: its first change, and what else changed."""
    of_methods: dict[tuple[str, ...], list[ChangeRow]] = {}
    for row in sorted(rows, key=lambda row: row.metric != WALL_TIME):
        key = (row.method, row.environment, row.hardware, row.settings)
        of_methods.setdefault(key, []).append(row)
    cells = [
        (
            first.direction + (", with the canary" if first.machine_suspect else ""),
            f"{first.metric} {changed_by(first.ratio)}",
            f"({changed_by(first.low)} to {changed_by(first.high)})",
            f"{first.method} {first.settings}".rstrip(),
            f"seen {first.alarm_night}",
            _others(first, others),
        )
        for first, *others in of_methods.values()
    ]
    columns = (Column(heading=""),) * 6
    _, *lines = aligned(Table(columns=columns, rows=tuple(cells)))
    return [f"  {line}".rstrip() for line in lines]


def _others(first: ChangeRow, others: Sequence[ChangeRow]) -> str:
    """Return the other changes of the method: `(also flops +9 %, and 3 derived metrics)`."""
    texts = [f"also {row.metric} {changed_by(row.ratio)} {row.direction}" for row in others]
    count = len({one.metric for row in (first, *others) for one in row.derived})
    texts += [f"and {count} derived metric{'s' * (count != 1)}"] if count else []
    return f"({', '.join(texts)})" if texts else ""


def _commits(row: ChangeRow) -> str:
    """Return the commits that changed: `models 1a2b3c4d5e -> 6f7a8b9c0d`."""
    names = sorted(row.commits_before.keys() | row.commits_after.keys())
    if not names:
        return "no checkout recorded"
    moved = [
        f"{name} {row.commits_before.get(name, 'none')[:10]} -> "
        f"{row.commits_after.get(name, 'none')[:10]}"
        for name in names
        if row.commits_before.get(name) != row.commits_after.get(name)
    ]
    return "; ".join(moved) or "no commit changed"


def _environment(rows: Sequence[ChangeRow]) -> list[str]:
    """Return what else differs in the same night, such as the host, and whether it can be code."""
    ran_the_same = all(row.ran_the_same for row in rows)
    found = {row.environment_differences for row in rows}
    is_known = len(found) == 1 and None not in found
    if not is_known and not ran_the_same:
        return []
    texts = (rows[0].environment_differences or ()) if is_known else ()
    more = f"; and {len(texts) - _MOST_DIFFERENCES} more" if len(texts) > _MOST_DIFFERENCES else ""
    shown = [f"{'; '.join(texts[:_MOST_DIFFERENCES])}{more}"] if texts else []
    shown += [NO_COMMIT] if ran_the_same else []
    return [f"  environment: {'; '.join(shown) or 'no difference found'}"]
