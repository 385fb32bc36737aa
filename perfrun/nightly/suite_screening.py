"""Suspects of a night: screened, put to pairs, and told in the words of the report."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from perfrun.changes.change_report import ChangeRow
from perfrun.changes.observations import night_of
from perfrun.changes.suspects import (
    MOST_PAIRS,
    SeriesName,
    SuspectSeries,
    level_starts,
    name_of,
    screen,
    suspect_of,
)
from perfrun.nightly.night_state import RECENT_DAYS
from perfrun.nightly.report import NightReport
from perfrun.nightly.suite import Suite
from perfrun.reports.figures import changed_by
from perfrun.run.interruption import Interruption
from perfrun.run.progress import Screen

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch
    from perfrun.changes.watched import WatchedSeries

_MOST_NOTES = 8  # lines about suspects that go on
_WITHHELD_NIGHTS = 3  # that a change which the history shows waits for its pairs at most
_SAME_NIGHTS = 2  # by which the history may be off
_SPENT = "the time for pairs was spent before they had decided"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The changes as pairs leave them, and the lines about what is open."""

    rows: tuple[ChangeRow, ...]
    notes: tuple[str, ...]


def with_suspects(
    suite: Suite,
    report: NightReport,
    rows: Sequence[ChangeRow],
    new: Sequence[ChangeRow],
    watched: Sequence[WatchedSeries],
    watches: Sequence[SeriesWatch],
    screen_: Screen,
    interruption: Interruption,
) -> Asked:
    """Screen tonight's series, run the pairs of the suspects, and say what came of it.

    The changes that the history alone shows tonight (`new`) are suspects, too. One of which the
    sides cannot be run again is reported as the history has it. Raises PerfrunError, OSError and
    Interrupted.
    """
    from perfrun.changes.screen_pairs import SuspectPairs  # all that a run needs

    assert suite.confirm_budget is not None
    day = night_of(report.begun)
    budget_s = suite.confirm_budget.seconds(sum(one.spent_s for one in report.methods))
    pairs = SuspectPairs(
        suite.workspace,
        report.night,
        day,
        {method.method for method in report.methods},
        budget_s,
        screen_,
        interruption,
        deadline=report.deadline,
    )
    starts = level_starts(watched, watches, pairs.confirmed)
    found = [
        suspect_of(one, pairs.open.get(name_of(one.one)))
        for one in screen(watched, starts, frozenset([report.night]))
    ]
    new = [row for row in new if not row.machine_suspect]  # the canary moved: no pairs for it
    owners = _owners(rows, watched)
    of_history: list[SuspectSeries] = []
    for row in new:
        owner = owners.get(id(row))
        if owner is None or _covers(pairs.confirmed, row, name_of(owner)):
            continue
        if owner.observations[len(owner.observations) - 1].point.label == report.night:
            of_history.append(_suspect_of_row(row, owner, day))
    told, tonight = {one.series for one in of_history}, {id(row) for row in new}
    pairs.run([*of_history, *(one for one in found if one.series not in told)])
    asked = _AskedTonight(night=report.night, day=day, deadline=report.deadline)
    after: list[ChangeRow | None] = []
    for row in rows:
        name = name_of(owners[id(row)]) if id(row) in owners else ()
        known = pairs.open.get(name)
        question = known if known is not None and _is_step(known, row) else None
        is_lost = question is not None and question.why_not is not None
        if not is_lost and _covers(pairs.confirmed, row, name):
            continue
        is_asked = question is not None and id(row) in tonight
        after.append(_judged(row, question, asked) if question and is_asked else row)
    confirmed = [confirmed_row(one) for one in pairs.confirmed if day - one.told_day < RECENT_DAYS]
    return Asked(
        rows=(*confirmed, *(row for row in after if row is not None)),
        notes=(
            *pairs.problems,
            *_notes(tuple(pairs.open.values()), pairs.confirmed, report.night),
        ),
    )


def _owners(
    rows: Sequence[ChangeRow], watched: Sequence[WatchedSeries]
) -> dict[int, WatchedSeries]:
    """Return the series of each row, by its id.

    The names that a row has may be those of several series, which differ in a setting or the
    driver. Then its trials tell which one it is of.
    """
    by_names: dict[SeriesName, list[WatchedSeries]] = {}
    for one in watched:
        by_names.setdefault(name_of(one)[:4], []).append(one)
    found = {}
    for row in rows:
        several = by_names.get((row.method, row.metric, row.environment, row.hardware), [])
        for one in several:
            if len(several) == 1 or row.after_execution_id in (
                observation.point.execution_id for observation in one.observations
            ):
                found[id(row)] = one
                break
    return found


def _covers(confirmed: Collection[SuspectSeries], row: ChangeRow, name: SeriesName) -> bool:
    """Return True when pairs have confirmed this change of the history before it was sure."""
    return any(one.series == name and _is_step(one, row) for one in confirmed)


def _is_step(one: SuspectSeries, row: ChangeRow) -> bool:
    """Return True when a suspect and a change of one series are the same step.

    What the history says of its night is a little uncertain. A step some nights later is another.
    """
    day = date.fromisoformat(row.night).toordinal()
    is_near = one.before_day - _SAME_NIGHTS <= day <= one.after_day + _SAME_NIGHTS
    return one.direction == row.direction and is_near


def _suspect_of_row(row: ChangeRow, one: WatchedSeries, tonight: int) -> SuspectSeries:
    """Return the question that a change raises which the history alone shows."""
    import numpy as np

    from perfrun.analysis.screening import LEAST_NOISE, MOST_BEFORE, MOST_ODDS

    logs = np.log(np.asarray(one.observations.values[-MOST_BEFORE:], dtype=np.float64))
    noise = 1.4826 * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2)
    day = date.fromisoformat(row.night).toordinal()
    return SuspectSeries(
        series=name_of(one),
        direction=row.direction,
        first_day=day,
        before_day=day - 1,
        after_day=day,
        before_summary=row.before_summary,
        after_summary=row.after_summary,
        before_execution_id=row.before_execution_id,
        after_execution_id=row.after_execution_id,
        shift=math.log(row.ratio),
        noise=max(noise, LEAST_NOISE),
        odds=MOST_ODDS,
        seen_day=tonight,
        commits_before=row.commits_before,
        commits_after=row.commits_after,
    )


@dataclass(frozen=True, kw_only=True)
class _AskedTonight:
    """The night whose pairs are judged."""

    night: str
    day: int
    deadline: float | None

    def is_waiting(self, row: ChangeRow, one: SuspectSeries) -> bool:
        """Return True for a change whose pairs have some more nights to decide."""
        age = self.day - date.fromisoformat(row.alarm_night).toordinal()
        return one.asked_in == self.night and age < _WITHHELD_NIGHTS

    @property
    def why_open(self) -> str:
        from perfrun.changes.confirm import TOO_LATE  # all that a run needs

        is_late = self.deadline is not None and self.deadline <= time.time()
        return TOO_LATE if is_late else _SPENT


def _judged(row: ChangeRow, one: SuspectSeries, asked: _AskedTonight) -> ChangeRow | None:
    """Return a change of the history as its pairs leave it; None while it waits for them.

    What the history has proved is not withheld for the want of time: when tonight had none for its
    pairs, or they have not decided after some nights, it is reported as it is.
    """
    from perfrun.changes.confirm import NOT_AS_RECORDED  # all that a run needs

    if one.why_not is not None:
        reason = f"{one.why_not}; so the history alone decides"
        return replace(row, confirmation=confirmation_of(one, reason))
    if one.goes_on:
        if asked.is_waiting(row, one):
            return None
        return replace(row, confirmation=confirmation_of(one, asked.why_open))
    if len(one.pairs) >= MOST_PAIRS:
        return replace(row, confirmation=confirmation_of(one, "all pairs are spent"))
    if one.not_reconstructed:  # the cause may be among these
        return replace(row, confirmation=confirmation_of(one, NOT_AS_RECORDED))
    return replace(row, status="not_reproduced", confirmation=confirmation_of(one, None))


def confirmation_of(one: SuspectSeries, reason: str | None) -> dict[str, Any]:
    """Return the key `confirmation`, as `detect --confirm` has it."""
    from perfrun.analysis.pairs import PairRule, judge

    found = judge(one.pairs, "lower", PairRule(max_pairs=MOST_PAIRS))
    return {
        "reason": reason,
        "ratio": found.ratio,
        "low": found.interval.low if found.interval else None,
        "high": found.interval.high if found.interval else None,
        "pairs": len(one.pairs),
        "not_reconstructed": list(one.not_reconstructed),
    }


def confirmed_row(one: SuspectSeries) -> ChangeRow:
    """Return a change that pairs have confirmed, whether or not the history shows it yet."""
    confirmation = confirmation_of(one, None)
    return ChangeRow(
        method=one.method,
        metric=one.metric,
        environment=one.series[2],
        hardware=one.series[3],
        settings=one.series[6],
        before_execution_id=one.before_execution_id,
        after_execution_id=one.after_execution_id,
        night=_date(one.first_day),
        alarm_night=_date(one.told_day),
        ratio=confirmation["ratio"] or 1.0,
        low=confirmation["low"] or 0.0,
        high=confirmation["high"] or math.inf,
        p_value=one.alpha,
        direction=one.direction,
        machine_suspect=False,  # both sides ran here and now
        detectors=("pairs",),
        commits_before=one.commits_before,
        commits_after=one.commits_after,
        environment_differences=one.differences,
        before_summary=one.before_summary,
        after_summary=one.after_summary,
        evidence=frozenset([one.told_in]),
        alarm_label=one.told_in,
        status="confirmed",
        confirmation=confirmation,
    )


def _date(day: int) -> str:
    return date.fromordinal(day).isoformat()


def _notes(
    suspects: Sequence[SuspectSeries], confirmed: Sequence[SuspectSeries], night: str
) -> list[str]:
    """Return a line for each that was confirmed tonight, and for each suspect that goes on."""
    lines = [
        f"{_shift(one)}: confirmed by {len(one.pairs)} pairs, {_nights_after(one)}."
        for one in confirmed
        if one.told_in == night
    ]
    going = sorted(
        (one for one in suspects if one.goes_on and one.pairs), key=lambda one: -one.chance
    )
    lines += [
        f"Suspect: {_shift(one)}: {len(one.pairs)} pairs so far, goes on the next night."
        for one in going[:_MOST_NOTES]
    ]
    if len(going) > _MOST_NOTES:
        lines.append(f"{len(going) - _MOST_NOTES} more suspects go on the next night.")
    lost = [one for one in suspects if one.why_not is not None]
    reasons: dict[str, list[SuspectSeries]] = {}
    for one in lost:
        reasons.setdefault(str(one.why_not), []).append(one)
    lines += [
        f"Suspect: {', '.join(_shift(one) for one in own[:2])}"
        f"{f' and {len(own) - 2} more' if len(own) > 2 else ''}: no pairs ({why}); "
        "its history alone decides."
        for why, own in list(reasons.items())[:_MOST_NOTES]
    ]
    return lines


def _shift(one: SuspectSeries) -> str:
    return (
        f"{one.metric} of {one.method} {changed_by(math.exp(one.shift))} "
        f"since {_date(one.first_day)} ({one.direction})"
    )


def _nights_after(one: SuspectSeries) -> str:
    nights = one.told_day - one.first_day
    if nights <= 0:
        return "in the first night at the new level"
    return f"{nights} night{'s' * (nights != 1)} after the first at the new level"
