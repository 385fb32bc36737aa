"""From the figures of a series to one observation a night. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from statistics import median
from typing import NamedTuple
from weakref import WeakKeyDictionary

from perfrun.store.query import Origin, Origins, Point, point_of

_NOON = timedelta(hours=12)
_QUARTER_S = 900


class Night(NamedTuple):
    """The trials of one run, or, where no run is known, of one night from noon to noon."""

    day: int  # ordinal of the date at whose noon it began, local time
    value: float  # median of the trials that count
    disturbed: bool  # most of its trials were
    point: Point  # the trial nearest to the value


@dataclass(frozen=True, kw_only=True)
class _Calendar:
    """What follows from the trials alone, for each night that counts."""

    days: tuple[int, ...]
    not_falling: tuple[int, ...]
    disturbed: tuple[bool, ...]
    counted: tuple[Sequence[int], ...]  # the places of its trials that count
    single: Sequence[int]  # the same when that is one in every night; else empty


_CALENDARS: WeakKeyDictionary[Origins, _Calendar] = WeakKeyDictionary()


class Nights:
    """The nights of a series, in columns: there may be a million, and few are looked at closer."""

    def __init__(self, origins: Origins, figures: Sequence[float], calendar: _Calendar) -> None:
        self._origins, self._figures, self._calendar = origins, figures, calendar
        if calendar.single == range(len(figures)):
            self.values = figures
        elif calendar.single:
            self.values = [figures[place] for place in calendar.single]
        else:
            self.values = [median([figures[at] for at in own]) for own in calendar.counted]

    @property
    def not_falling(self) -> Sequence[int]:
        """The days; of a night that stands after a later one, that one's."""
        return self._calendar.not_falling

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Night:
        value, figures = self.values[number], self._figures
        nearest = min(self._calendar.counted[number], key=lambda at: abs(figures[at] - value))
        return Night(
            day=self._calendar.days[number],
            value=value,
            disturbed=self._calendar.disturbed[number],
            point=point_of(self._origins.rows[nearest], figures[nearest]),
        )

    def __iter__(self) -> Iterator[Night]:
        return (self[number] for number in range(len(self)))


def nights_of(origins: Origins, values: Sequence[float]) -> Nights:
    """The nights in the order of the trials.

    Disturbed trials of a night are left out, and disturbed nights of a series, unless they are the
    most: then they are what this machine has to offer.
    """
    calendar = _CALENDARS.get(origins)
    if calendar is None:
        calendar = _CALENDARS[origins] = _calendar(origins.rows)
    return Nights(origins, values, calendar)


def _calendar(rows: Sequence[Origin]) -> _Calendar:
    groups = _groups(rows)
    if len(groups) == len(rows):  # a trial a night is quickly judged
        nights = [
            (_day(row.timestamp), row.disturbed, own) for row, own in zip(rows, groups, strict=True)
        ]
    else:
        nights = [_night(rows, group) for group in groups]
    quiet = [night for night in nights if not night[1]]
    kept = quiet if 2 * len(quiet) >= len(nights) else nights
    days = tuple([day for day, _, _ in kept])
    counted = tuple([places for _, _, places in kept])
    return _Calendar(
        days=days,
        not_falling=tuple(accumulate(days, max)),
        disturbed=tuple([disturbed for _, disturbed, _ in kept]),
        counted=counted,
        single=_single(counted),
    )


def _single(counted: Sequence[Sequence[int]]) -> Sequence[int]:
    if any(len(own) != 1 for own in counted):
        return ()
    places = [own[0] for own in counted]
    return range(len(places)) if places == list(range(len(places))) else places


def _groups(rows: Sequence[Origin]) -> Sequence[Sequence[int]]:
    """The places of the trials of each run or night."""
    runs = {row.run_id for row in rows}
    if len(runs) == len(rows) and "" not in runs:  # a trial a run, as most nights of most people
        return [(place,) for place in range(len(rows))]
    groups: dict[str | int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.run_id or _day(row.timestamp), []).append(place)
    return list(groups.values())


def _night(rows: Sequence[Origin], places: Sequence[int]) -> tuple[int, bool, Sequence[int]]:
    """Its day, whether it is disturbed, and the places of the trials that count."""
    quiet = [place for place in places if not rows[place].disturbed]
    is_disturbed = 2 * len(quiet) < len(places)
    return _day(rows[places[0]].timestamp), is_disturbed, places if is_disturbed else quiet


def _day(timestamp: float) -> int:
    return _day_of_quarter(int(timestamp // _QUARTER_S))


@lru_cache(4096)
def _day_of_quarter(number: int) -> int:
    """Of a quarter of an hour since the epoch: noon is where one begins, in every time zone."""
    return (datetime.fromtimestamp(number * _QUARTER_S) - _NOON).toordinal()
