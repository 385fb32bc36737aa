"""Creep: the level of every night against a pinned baseline, which changes add up against.

A hundredth of the noise a night is no change on any night, and five percent after a year. Compared
are the first two weeks of nights from the baseline on and the last two weeks
(`perfrun.analysis.level_shift`). A series that goes on another's (`perfrun.changes.cuts`) is
compared across the cut when the step there is known: the step itself is no creep.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfrun.analysis.directions import worse_or_better
from perfrun.changes.cuts import CONFIDENCE, Cut, handovers, settled
from perfrun.changes.observations import night_of
from perfrun.changes.watched import WatchedSeries
from perfrun.compare import baselines
from perfrun.options.parsers import parse_share
from perfrun.reports.figures import changed_by, percent
from perfrun.summary.metrics import WALL_TIME

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch
    from perfrun.analysis.level_shift import LevelShift

NIGHTS = 14  # observations of either level
DEFAULT_BOUND = 0.05
_PIN_DAYS = 28  # the nights of the baseline lie within so many days of its first
_MOST_LINES = 10
State = Literal["beyond", "returned"]


@dataclass(frozen=True, kw_only=True)
class CreepRule:
    """What nights are compared with, and the bound of the cumulative change."""

    baseline: str  # a name, or a date as 2026-11-01
    bound: float = DEFAULT_BOUND


@dataclass(frozen=True, kw_only=True)
class Pin:
    """The nights that baseline levels begin with, as ordinals of dates."""

    name: str
    day: int | None  # of all methods; None: by method
    days: Mapping[str, int]

    def of(self, method: str) -> int | None:
        """Return the first night of the baseline of a method; None without one."""
        return self.days.get(method) if self.day is None else self.day


@dataclass(frozen=True, kw_only=True)
class CreepRow:
    """A metric whose cumulative change passed the bound."""

    method: str
    metric: str
    environment: str
    hardware: str
    state: State
    night: str  # with which it passed the bound, or came back
    since: str  # first night of the baseline
    ratio: float  # the last nights' level over that of the baseline
    low: float  # 95 % interval
    high: float
    direction: str  # worse or better
    changes: int  # that were found by themselves since then
    label: str  # of the trials of that night
    timestamp: float  # of one of them


@dataclass(frozen=True, kw_only=True)
class Creep:
    """All series against the baseline."""

    baseline: str
    bound: float
    compared: int
    not_comparable: int  # no nights at the baseline, or a cut whose step is not known
    too_few: int  # nights since
    rows: tuple[CreepRow, ...]


def parse_rule(baseline: str, bound: str | None = None) -> CreepRule:
    """Parse `--creep_baseline` and `--creep_bound`. Raises UsageError."""
    share = parse_share(bound, "--creep_bound", above_zero=True)
    return CreepRule(baseline=baseline, bound=DEFAULT_BOUND if share is None else share)


def find_pin(rule: CreepRule, workspace: Path) -> Pin:
    """Return the baseline of that name, or else the date. Raises UsageError, WorkspaceError."""
    name = rule.baseline
    known = baselines.read(workspace, name) if baselines.is_name(name) else None
    if known is None:
        try:
            return Pin(name=name, day=date.fromisoformat(name).toordinal(), days={})
        except ValueError:
            known = baselines.named(workspace, name)  # it says what there is
    days: dict[str, int] = {}
    for trial in known.trials:
        try:
            day = night_of(trial.timestamp)
        except (OverflowError, OSError, ValueError):  # beyond Python's calendar
            continue
        days[trial.method] = min(day, days.get(trial.method, day))
    return Pin(name=name, day=None, days=days)


class _Segment(NamedTuple):
    """The observations of one series since the baseline, or since its begin."""

    one: WatchedSeries
    values: Sequence[float]
    begin: int  # first of the level that later ones are compared with
    end: int  # after the last of it


def creep_of(
    several: Sequence[WatchedSeries],
    watches: Sequence[SeriesWatch],
    cuts: Iterable[Cut],
    pin: Pin,
    bound: float,
) -> Creep:
    """Compare the series that have no successor, on every night since the baseline.

    `watches` are of the first of the series, with the changes that were found in them.
    """
    pairs = handovers(several)
    before = {id(pair.after): pair.before for pair in pairs}
    ended = {id(pair.before) for pair in pairs}
    known = {(cut.subject, cut.metric) for cut in cuts if settled(cut)}
    found = dict(zip(map(id, several), watches, strict=False))
    rows: list[CreepRow] = []
    compared = not_comparable = too_few = 0
    for one in several:
        if id(one) in ended or not len(one.observations):
            continue
        segments = _segments(one, before, known, pin)
        if segments is None:
            not_comparable += 1
        elif len(one.observations) - segments[-1].end < NIGHTS:
            too_few += 1
        else:
            compared += 1
            if row := _judged(segments, found, bound):
                rows.append(row)
    return Creep(
        baseline=pin.name,
        bound=bound,
        compared=compared,
        not_comparable=not_comparable,
        too_few=too_few,
        rows=tuple(sorted(rows, key=_order)),
    )


def _order(row: CreepRow) -> tuple[Any, ...]:
    is_wall_time = row.metric == WALL_TIME
    return row.state, row.direction != "worse", -row.ratio, row.method, not is_wall_time, row.metric


def _segments(
    one: WatchedSeries, before: Mapping[int, WatchedSeries], known: set[Any], pin: Pin
) -> list[_Segment] | None:
    """Return the series since the baseline, the oldest first; None where they cannot be compared.

    Each but the first begins with a cut.
    """
    from perfrun.analysis.level_shift import FEWEST

    day = pin.of(one.method)
    found: list[_Segment] = []
    while day is not None:
        days = one.observations.not_falling  # some: an empty series is left out before
        begins_soon = id(one) not in before and days[0] < day + _PIN_DAYS
        if days[0] <= day or begins_soon:
            begin = bisect_left(days, day)
            end = min(bisect_left(days, day + _PIN_DAYS), begin + NIGHTS)
            if end - begin < FEWEST:
                return None
            return [_Segment(one, one.observations.values, begin, end), *found]
        end = min(NIGHTS, len(days))
        if (one.subject, one.metric) not in known or id(one) not in before or end < FEWEST:
            return None
        found.insert(0, _Segment(one, one.observations.values, 0, end))
        one = before[id(one)]
    return None


def _judged(
    segments: Sequence[_Segment], watches: Mapping[int, SeriesWatch], bound: float
) -> CreepRow | None:
    """Return the last time that the series passed the bound or came back; None if it never did."""
    import numpy as np
    from numpy.lib.stride_tricks import sliding_window_view

    from perfrun.analysis.level_shift import FEWEST, added, level_shift, trimmed_levels

    earlier: list[LevelShift] = []
    for own in segments[:-1]:
        rest = own.values[own.end :][-NIGHTS:]
        if len(rest) >= FEWEST:  # fewer: it ended soon after the baseline, without time to creep
            earlier.append(level_shift(own.values[own.begin : own.end], rest))
    one, values, begin, end = segments[-1]
    base = values[begin:end]
    logs = np.log(np.asarray(values[end:], dtype=np.float64))
    levels = trimmed_levels(sliding_window_view(logs, NIGHTS))
    own_base = trimmed_levels(np.log(np.asarray(base, dtype=np.float64))[None, :])[0]
    sizes = levels - own_base + sum(shift.shift for shift in earlier)

    def judged(at: int) -> LevelShift:
        last = end + at + NIGHTS
        return added([*earlier, level_shift(base, values[last - NIGHTS : last])])

    state: State | None = None
    event = 0
    # Most nights lie far from the bound, and need no interval.
    for at, size in enumerate(sizes.tolist()):
        limit = math.log1p(bound) if size > 0 else -math.log1p(-bound)
        if state == "beyond":
            is_near = abs(size) <= limit
            if is_near and (
                abs(size) <= limit / 2 or abs(size) + judged(at).reach(CONFIDENCE) <= limit
            ):
                state, event = "returned", at
        elif abs(size) > limit and abs(size) - judged(at).reach(CONFIDENCE) >= limit:
            state, event = "beyond", at
    if state is None:
        return None
    now = judged(len(sizes) - 1)
    low, high = now.interval(CONFIDENCE)
    night = one.observations[end + event + NIGHTS - 1]
    first = segments[0]
    return CreepRow(
        method=one.method,
        metric=one.metric,
        environment=one.environment,
        hardware=one.hardware,
        state=state,
        night=date.fromordinal(night.day).isoformat(),
        since=date.fromordinal(first.one.observations[first.begin].day).isoformat(),
        ratio=math.exp(now.shift),
        low=low,
        high=high,
        direction=worse_or_better(grew=now.shift > 0, direction=one.direction),
        changes=sum(_changes_since(own, watches) for own in segments),
        label=night.point.label,
        timestamp=night.point.timestamp,
    )


def _changes_since(own: _Segment, watches: Mapping[int, SeriesWatch]) -> int:
    watch = watches.get(id(own.one))
    return sum(one.first_after > own.begin for one in watch.changes()) if watch else 0


def creep_document(found: Creep | None) -> dict[str, Any] | None:
    """Return the key `creep` of `--format=json`."""
    if found is None:
        return None
    document = asdict(found)
    for row in document["rows"]:
        del row["label"], row["timestamp"]
    return document


def creep_lines(found: Creep | None, since: date | None = None) -> list[str]:
    """Return the metrics beyond the bound, those that came back, and how many were compared."""
    if found is None:
        return []
    oldest = since.isoformat() if since else ""
    shown = [row for row in found.rows if row.state == "beyond" or row.night >= oldest]
    lines = [row_text(row, found) for row in shown[:_MOST_LINES]]
    more = len(shown) - len(lines)
    lines += [f"and {more} more against {found.baseline}"] if more > 0 else []
    counts = [
        f"{count} {text}"
        for count, text in (
            (found.not_comparable, "not comparable (no nights there, or a step that is not known)"),
            (found.too_few, f"with fewer than {NIGHTS} nights since"),
        )
        if count
    ]
    left_out = f"; {', '.join(counts)}" if counts else ""
    return [*lines, f"Against {found.baseline}: {found.compared} series compared{left_out}."]


def row_text(row: CreepRow, found: Creep) -> str:
    """Return `wall_time of X +6.2 % (+5.1 % to +7.3 %) since v1 (2026-06-01), worse: ...`."""
    figures = f"{changed_by(row.ratio)} ({changed_by(row.low)} to {changed_by(row.high)})"
    begun = "" if row.since == found.baseline else f" ({row.since})"
    what = f"{row.metric} of {row.method} {figures} since {found.baseline}{begun}"
    if row.state == "returned":
        return f"{what}: within {percent(found.bound)} again since {row.night}"
    found_too = f"with {row.changes} change{'s' * (row.changes != 1)} found in between"
    changes = found_too if row.changes else "though no single night shows a change"
    return f"{what}, {row.direction}: beyond {percent(found.bound)} since {row.night}, {changes}"


class Turn(NamedTuple):
    """A night that tells what is new: the label of its trials, and when it began."""

    label: str
    begun: float

    def tells(self, row: CreepRow) -> bool:
        """Return True for what was known when the night began, or what it made sure itself.

        Trials of others that run beside it, it may have seen or not: they are for the next night.
        """
        return row.label == self.label or row.timestamp < self.begun


def new_lines(
    found: Creep, tonight: Turn, last: Turn | None = None, untold: Collection[str] = ()
) -> list[str]:
    """Return what tonight is the first to tell. `last` is the night that did so before it.

    Without one, nights of the labels `untold` have told nobody. What trials without a night showed
    before the first of all is not new.
    """

    def is_new(row: CreepRow) -> bool:
        if last is None:
            return row.label == tonight.label or row.label in untold
        return tonight.tells(row) and not last.tells(row)

    return [row_text(row, found) for row in found.rows if is_new(row)]
