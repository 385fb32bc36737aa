"""Detect changes of level in the histories of a whole suite, and which of them the machine made.

A nightly job judges hundreds of series every night. A change is accepted in a night when its own
series raises an alarm and it is among that night's discoveries (Benjamini and Hochberg over all
series of the night), so that the share of false ones stays bounded however large the suite. Where
several accepted changes began in one night, that night is tested in the other series (`together`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfrun.analysis.changepoint import ALARM, Change, SeriesWatch
from perfrun.analysis.directions import worse_or_better
from perfrun.analysis.kept_scans import NOTED, KeptScans
from perfrun.analysis.scan import ScanResult
from perfrun.analysis.stats import benjamini_hochberg
from perfrun.analysis.together import HINT, TOGETHER, CommonNights

FALSE_DISCOVERIES = 0.05  # share of the accepted changes, at most
MIN_EFFECT = 0.01  # smaller differences are not relevant, however sure they are
_SAME_TIME = 2  # nights between changes that are called simultaneous
_CANARY = 0.05  # p-value from which on a canary has changed too

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Verdict = Literal["worse", "better"]


@dataclass(frozen=True, kw_only=True)
class History:
    """One series: its observations in order, one or several a night."""

    values: Sequence[float]  # positive
    nights: Sequence[int]  # day number of each observation, ascending
    direction: Literal["lower", "higher"]  # which way is better
    is_canary: bool = False  # its code never changes, so a change is the machine's
    repeats: Sequence[bool] = ()  # True where an observation ran what the one before it ran
    name: str = ""  # under which what its scan says is kept; '' for none


@dataclass(frozen=True, kw_only=True)
class Detected:
    """A change of level. Indices count the series given, and the observations of that series."""

    series: int
    first_after: int
    alarm: int
    ratio: float  # after over before
    low: float  # of its 95 % interval
    high: float
    p_value: float
    direction: Verdict
    machine_suspect: bool  # a canary changed in the same direction in those nights
    detectors: tuple[str, ...]  # that find it: score, energy, separation, together; afterwards pelt


def detect(
    histories: Sequence[History],
    *,
    alarm: float = ALARM,
    false_discoveries: float = FALSE_DISCOVERIES,
    min_effect: float = MIN_EFFECT,
    begun_since: int = 0,
    alarm_since: int = 0,
) -> tuple[Detected, ...]:
    """Return the changes that a nightly job reports, in order, judging each night as the last one.

    Changes that began before `begun_since`, or raised their alarm before `alarm_since`, are left
    out. Raises ValueError for values that are not positive and finite.
    """
    watches = watch_suite(
        histories, alarm=alarm, false_discoveries=false_discoveries, min_effect=min_effect
    )
    return changes_of(histories, watches, begun_since=begun_since, alarm_since=alarm_since)


def watch_suite(
    histories: Sequence[History],
    *,
    alarm: float = ALARM,
    false_discoveries: float = FALSE_DISCOVERIES,
    min_effect: float = MIN_EFFECT,
    together: float = TOGETHER,
    kept: KeptScans | None = None,
) -> list[SeriesWatch]:
    """Return the histories with the changes that a nightly job accepts. Raises as `detect`.

    With a `together` of 0 no series is tested for what others show. With `kept`, observations that
    it knows are not judged again; the changes are the same.
    """
    if max(alarm, false_discoveries) > NOTED:
        kept = None
    repeats = [own.repeats for own in histories]
    watches, scanned = SeriesWatch.all_of(
        [one.values for one in histories], repeats, kept, [one.name for one in histories]
    )
    p_values = scanned.p_values
    days = [np.asarray(history.nights, dtype=np.int64) for history in histories]
    calendar = _Calendar(days, scanned)
    with_alarm = set(calendar.every[p_values <= alarm].tolist())  # few of the nights
    least = math.log1p(min_effect)
    common = CommonNights(together, watches, days)
    for night in calendar.nights:
        accepted = []
        if night in with_alarm:
            accepted = _accept(watches, calendar.of(night), alarm, false_discoveries, least)
            for number in accepted:
                common.add(number)
        for one in common.joining(night, calendar.hints(night)):
            if abs(watches[one.series].shift(one.last, one.first_after)) >= least:
                watches[one.series].cut_at(one.last, one.first_after, one.p_value)
                common.add(one.series)
                accepted.append(one.series)
        for number in accepted:
            with_alarm.update(days[number][watches[number].p_values <= alarm].tolist())
    return watches


def changes_of(
    histories: Sequence[History],
    watches: Sequence[SeriesWatch],
    *,
    begun_since: int = 0,
    alarm_since: int = 0,
) -> tuple[Detected, ...]:
    """Return the accepted changes in order; those before `begun_since`, `alarm_since` left out."""
    found = [
        _detected(number, change, histories, watches)
        for number, watch in enumerate(watches)
        for change in watch.changes()
        if histories[number].nights[change.first_after] >= begun_since
        and histories[number].nights[change.alarm] >= alarm_since
    ]
    return tuple(sorted(found, key=lambda one: (_begin(one, histories), one.series)))


class _NightObservations(NamedTuple):
    """The observation with the least p-value of each series that has any in a night."""

    series: list[int]
    places: list[int]
    p_values: Floats


class _Calendar:
    """The observations of all series, by night."""

    def __init__(self, days: Sequence[Integers], scanned: ScanResult) -> None:
        """Take the nights of each series, and the p-values of all, end to end; these may change."""
        self._scanned, self._p_values = scanned, scanned.p_values
        self.every = np.concatenate(days) if days else np.empty(0, dtype=np.int64)
        self._order = np.argsort(self.every, kind="stable")  # by series, then by observation
        self._days = self.every[self._order]
        sizes = [len(own) for own in days]
        self._series = np.repeat(np.arange(len(days)), sizes)
        self._begins = np.cumsum([0, *sizes])
        self.nights: list[int] = np.unique(self._days).tolist()

    def hints(self, night: int) -> Integers:
        """Return the nights in which steps may have begun, by the score of this night alone."""
        first, end = np.searchsorted(self._days, (night, night + 1))
        rows = self._order[first:end]
        rows = rows[self._scanned.score_p_values[rows] <= HINT]
        splits = self._begins[self._series[rows]] + self._scanned.splits[rows]
        found: Integers = self.every[splits]
        return found

    def of(self, night: int) -> _NightObservations:
        """Return the observations of one night."""
        first, end = np.searchsorted(self._days, (night, night + 1))
        places = self._order[first:end]
        ranks = np.lexsort((self._p_values[places], self._series[places]))
        series, firsts = np.unique(self._series[places], return_index=True)
        best = places[ranks[firsts]]
        return _NightObservations(
            series.tolist(), (best - self._begins[series]).tolist(), self._p_values[best]
        )


def _accept(
    watches: Sequence[SeriesWatch],
    observations: _NightObservations,
    alarm: float,
    false_discoveries: float,
    least: float,
) -> list[int]:
    """Accept the changes that are discoveries of this night; return their series' numbers."""
    if observations.p_values.min() > alarm:
        return []
    accepted = []
    adjusted = np.array(benjamini_hochberg(observations.p_values))
    for at in np.flatnonzero((observations.p_values <= alarm) & (adjusted <= false_discoveries)):
        number, place = observations.series[at], observations.places[at]
        if abs(watches[number].shift(place)) >= least:
            watches[number].cut(place)
            accepted.append(number)
    return accepted


def _detected(
    number: int, change: Change, histories: Sequence[History], watches: Sequence[SeriesWatch]
) -> Detected:
    history = histories[number]
    earlier = [c.first_after for c in watches[number].changes() if c.alarm < change.alarm]
    raised_by = change.raised_by
    level_since = history.nights[max(earlier, default=0)]
    return Detected(
        series=number,
        first_after=change.first_after,
        alarm=change.alarm,
        ratio=math.exp(change.shift),
        low=math.exp(change.shift - change.reach),
        high=math.exp(change.shift + change.reach),
        p_value=change.p_value,
        direction=_verdict(change.shift, history),
        machine_suspect=any(
            other.is_canary and _changed_too(other, watch, history, change, level_since)
            for other, watch in zip(histories, watches, strict=True)
        ),
        detectors=(*raised_by, "pelt") if watches[number].pelt_finds(change) else raised_by,
    )


def _verdict(shift: float, history: History) -> Verdict:
    return worse_or_better(grew=shift > 0, direction=history.direction)


def _changed_too(
    canary: History, watch: SeriesWatch, history: History, change: Change, level_since: int
) -> bool:
    """True when the canary changed in the same direction at the same time.

    That is by an accepted change of its own, or by a single test of the nights from the change to
    its alarm, which needs far less evidence than an alarm. The baseline of that test are the nights
    that the other series had at its level before.
    """
    verdict = _verdict(change.shift, history)
    begin, end = history.nights[change.first_after], history.nights[change.alarm]
    for own in watch.changes():
        together = abs(canary.nights[own.first_after] - begin) <= _SAME_TIME
        if together and _verdict(own.shift, canary) == verdict:
            return True
    places = [place for place, night in enumerate(canary.nights) if begin <= night <= end]
    if not places:
        return False
    since = bisect_left(canary.nights, level_since)
    shift, p_value = watch.shift_between(since, places[0], places[-1])
    same_way = _verdict(shift, canary) == verdict
    return p_value <= _CANARY and same_way and abs(shift) >= math.log1p(MIN_EFFECT)


def _begin(found: Detected, histories: Sequence[History]) -> int:
    return histories[found.series].nights[found.first_after]
