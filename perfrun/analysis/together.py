"""Test the series of a suite for a change at a time that is known from other series.

One commit often moves many series. Where enough of them have begun a new level in the same night,
that night is tested in all the others, too. The place is known then, so nothing is paid for having
searched all places, the noise of the suite is pooled (`pooling`), and the family (Benjamini and
Hochberg) has the changes found so far. Where none of them is sure yet, but many hint at the same
night, that night is tested in all; it counts when so many at once are discoveries.

The constants are chosen by `simulations/suite.py`; docs/research/detection.md has its tables.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfrun.analysis.changepoint import SeriesWatch
from perfrun.analysis.scan import (
    FEWEST_AFTER,
    FEWEST_BEFORE,
    FEWEST_LEVEL,
    MOST_AFTER,
    PlaceToTest,
    p_values_at,
)
from perfrun.analysis.stats import benjamini_hochberg

# Share of false discoveries in a family of one night. The family is judged on up to twenty nights,
# so that those of all of them are more: about a share of 0.01 of what is found.
TOGETHER = 0.005
FEWEST_TOGETHER = 8  # series that began a new level in a night, before others are tested
HINT = 0.05  # p-value of a series that may have begun one, where nothing is sure yet
FEWEST_NIGHTS = 3  # since a night that is tested because of such series

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_NEVER = -1


class Joining(NamedTuple):
    """A series that changed with others: its number, its places, and the p-value of the test."""

    series: int
    first_after: int
    last: int
    p_value: float


class CommonNight:
    """A night in which several series began a new level, and the tests of the others."""

    def __init__(
        self,
        night: int,
        changed: Collection[int],
        watches: Sequence[SeriesWatch],
        days: Sequence[Integers],
    ) -> None:
        """Test the series that have not `changed` in that night, for all numbers of nights after.

        `days` has the nights of the observations of each series.
        """
        self._found = len(changed)
        places: list[PlaceToTest] = []
        series: list[int] = []
        firsts: list[int] = []
        nights = np.full((len(watches), MOST_AFTER), _NEVER, dtype=np.int64)
        for number, (watch, own) in enumerate(zip(watches, days, strict=True)):
            place = int(own.searchsorted(night))
            known = place - watch.start
            if number in changed or place < FEWEST_BEFORE or known < FEWEST_LEVEL:
                continue
            after = own[place : place + MOST_AFTER]
            if len(after) < FEWEST_AFTER:
                continue
            nights[len(series), : len(after)] = after
            series.append(number)
            firsts.append(place)
            places.append(watch.place_to_test(place))
        self._series, self._firsts = np.array(series, dtype=np.int64), firsts
        self._nights = nights[: len(series)]
        self._p_values = p_values_at(places)  # a row for each number of observations after

    @property
    def last_night(self) -> int:
        """The last night on which a series is tested."""
        return int(self._nights.max(initial=_NEVER))

    def leave_out(self, series: int) -> None:
        """Test a series no more: it has a new level."""
        self._nights[self._series == series] = _NEVER

    def joining(self, night: int, share: float) -> list[Joining]:
        """Return the series that are discoveries as of this night."""
        is_tonight = self._nights == night
        rows = np.flatnonzero(is_tonight[:, FEWEST_AFTER - 1 :].any(axis=1))
        # Of several observations in a night the last.
        columns = MOST_AFTER - 1 - np.argmax(is_tonight[rows, ::-1], axis=1)
        p_values = self._p_values[columns, rows]
        if p_values.min(initial=1.0) > share:
            return []
        family = np.concatenate([np.zeros(self._found), p_values])
        adjusted = np.array(benjamini_hochberg(family)[self._found :])
        return [
            Joining(
                series=int(self._series[rows[at]]),
                first_after=self._firsts[rows[at]],
                last=self._firsts[rows[at]] + int(columns[at]),
                p_value=float(p_values[at]),
            )
            for at in np.flatnonzero(adjusted <= share).tolist()
        ]

    def add(self, series: int) -> None:
        """Count a series that joined among the changes found."""
        self._found += 1
        self.leave_out(series)


class CommonNights:
    """The nights in which enough accepted changes began."""

    def __init__(
        self, share: float, watches: Sequence[SeriesWatch], days: Sequence[Integers]
    ) -> None:
        self._share, self._watches, self._days = share, watches, days
        self._begun: dict[int, set[int]] = {}  # by night, until there are enough
        self._common: dict[int, CommonNight] = {}

    def add(self, series: int) -> None:
        """Enter the last accepted change of a series."""
        for common in self._common.values():
            common.leave_out(series)
        night = int(self._days[series][self._watches[series].start])
        if night in self._common:
            self._common[night].add(series)
        else:
            self._begun.setdefault(night, set()).add(series)

    def joining(self, night: int, hints: Integers) -> list[Joining]:
        """Return the changes of this night that began when others did.

        `hints` are the nights in which steps of series may have begun, one for each such series.
        """
        if self._share <= 0:
            return []
        self._try(night, hints)
        for begin in [n for n, own in self._begun.items() if len(own) >= FEWEST_TOGETHER]:
            changed = self._begun.pop(begin)
            self._common[begin] = CommonNight(begin, changed, self._watches, self._days)
        for begin in [n for n, common in self._common.items() if common.last_night < night]:
            del self._common[begin]
        found: dict[int, Joining] = {}
        for common in self._common.values():
            for one in common.joining(night, self._share):
                if one.series not in found or one.p_value < found[one.series].p_value:
                    found[one.series] = one
        return list(found.values())

    def _try(self, night: int, hints: Integers) -> None:
        """Test the nights that many series hint at; one in which enough have changed is common."""
        begins, counts = np.unique(hints, return_counts=True)
        # Noise alone hints at the nights of large suites, too: those of 640 series and more.
        fewest = max(FEWEST_TOGETHER, HINT / 4 * len(self._watches))
        for at in np.argsort(-counts, kind="stable"):
            begin = int(begins[at])
            is_known = begin in self._common or night - begin < FEWEST_NIGHTS - 1
            if counts[at] < fewest or is_known:
                continue
            changed = self._begun.get(begin, set())
            tried = CommonNight(begin, changed, self._watches, self._days)
            if len(changed) + len(tried.joining(night, self._share)) >= FEWEST_TOGETHER:
                self._begun.pop(begin, None)
                self._common[begin] = tried
