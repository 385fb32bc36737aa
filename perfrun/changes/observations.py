"""The observations of a history: the median of the trials of each run, or of each night."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from perfrun.store.query import Facts, Origins, Point, RowsToRead, point_of
from perfrun.summary.counted_trials import counted_places
from perfrun.summary.document import Status

_NOON = timedelta(hours=12)
_QUARTER_S = 900
_OUT_OF_BOUNDS = Status.OUT_OF_BOUNDS.value
_CALENDARS: WeakKeyDictionary[Origins, _TrialCalendar] = WeakKeyDictionary()
_REPEATS: WeakKeyDictionary[Origins, Sequence[bool]] = WeakKeyDictionary()


class Observation(NamedTuple):
    """The trials of one run, or, without run ids, of one night from noon to noon."""

    day: int  # ordinal of the date at whose noon the night began, local time
    value: float  # median of the trials that count
    disturbed: bool  # True when most of its trials were
    point: Point  # the trial nearest to the value


@dataclass(frozen=True, kw_only=True)
class _TrialCalendar:
    """The observations that count, as far as they do not depend on the metric."""

    days: tuple[int, ...]
    not_falling: tuple[int, ...]
    disturbed: tuple[bool, ...]
    counted: Sequence[Sequence[int]]  # the places of the trials that count, by observation
    single: Sequence[int]  # the same when each observation has one trial; else empty


class Observations:
    """The observations of a series, in columns: there may be a million, and few are read singly."""

    def __init__(
        self, origins: Origins, figures: Sequence[float], calendar: _TrialCalendar
    ) -> None:
        self._origins, self._figures, self._calendar = origins, figures, calendar
        if calendar.single == range(len(figures)):
            self.values = figures
        elif calendar.single:
            self.values = [figures[place] for place in calendar.single]
        else:
            self.values = [median([figures[at] for at in own]) for own in calendar.counted]

    @property
    def not_falling(self) -> Sequence[int]:
        """The days; an observation that stands after a later one has the later one's day."""
        return self._calendar.not_falling

    @property
    def repeats(self) -> Sequence[bool]:
        """True where an observation ran what the one before it ran, on record."""
        found = _REPEATS.get(self._origins)
        if found is None:
            found = _REPEATS[self._origins] = _repeats(self._origins, self._calendar)
        return found

    @property
    def span(self) -> tuple[float, float]:
        """The times of the first and the last trial, those that do not count included."""
        times = self._origins.times
        return min(times), max(times)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Observation:
        nearest = self._nearest(number)
        return Observation(
            day=self._calendar.days[number],
            value=self.values[number],
            disturbed=self._calendar.disturbed[number],
            point=point_of(self._origins.rows[nearest], self._figures[nearest]),
        )

    def _nearest(self, number: int) -> int:
        """Return the trial of an observation that is nearest to its value."""
        value, figures = self.values[number], self._figures
        return min(self._calendar.counted[number], key=lambda at: abs(figures[at] - value))

    def trial_to_read(self, number: int) -> tuple[RowsToRead, int] | None:
        """Return the trials and the place among them of an observation's point; None if read."""
        rows = self._origins.rows
        return (rows, self._nearest(number)) if isinstance(rows, RowsToRead) else None

    def __iter__(self) -> Iterator[Observation]:
        return (self[number] for number in range(len(self)))


class LabelsUpTo(Container[str]):
    """The labels of the observations up to one; those of a large index are read when asked for."""

    def __init__(self, observations: Observations, last: int) -> None:
        self._observations, self._last = observations, last

    def __contains__(self, label: object) -> bool:
        places = range(self._last, -1, -1)  # it is asked for those of the last nights
        return any(self._observations[place].point.label == label for place in places)


def read_ahead(several: Iterable[tuple[Observations, int]]) -> None:
    """Read the texts of single observations at once, rather than one by one."""
    found = [one for own, number in several if (one := own.trial_to_read(number))]
    if found:
        found[0][0].read_ahead(found)


def observations_of(origins: Origins, values: Sequence[float]) -> Observations:
    """Return the observations of a series, in the order of its trials.

    Disturbed trials of an observation and disturbed observations of a series are left out, unless
    most are disturbed: then that is the normal state of this machine.
    """
    calendar = _CALENDARS.get(origins)
    if calendar is None:
        calendar = _CALENDARS[origins] = _calendar(origins)
    return Observations(origins, values, calendar)


def _calendar(origins: Origins) -> _TrialCalendar:
    if isinstance(origins.rows, RowsToRead) and origins.rows.quiet_single_runs:
        return _plain_calendar(origins.times)
    rows = origins.facts
    groups = _groups(rows)
    if len(groups) == len(rows):  # the fast path for one trial an observation
        observations = [
            (night_of(row.timestamp), row.disturbed, own)
            for row, own in zip(rows, groups, strict=True)
        ]
    else:
        observations = [_observation(rows, group) for group in groups]
    quiet = [one for one in observations if not one[1]]
    kept = quiet if 2 * len(quiet) >= len(observations) else observations
    days = tuple([day for day, _, _ in kept])
    counted = tuple([places for _, _, places in kept])
    return _TrialCalendar(
        days=days,
        not_falling=tuple(accumulate(days, max)),
        disturbed=tuple([disturbed for _, disturbed, _ in kept]),
        counted=counted,
        single=_single(counted),
    )


def _repeats(origins: Origins, calendar: _TrialCalendar) -> Sequence[bool]:
    of_trials = origins.digests
    if calendar.single:
        digests = [of_trials[place] for place in calendar.single]
    else:
        several = [{of_trials[place] for place in own} for own in calendar.counted]
        digests = [own.pop() if len(own) == 1 else "" for own in several]
    return (False, *(a == b != "" for a, b in pairwise(digests)))[: len(digests)]


def _plain_calendar(times: Sequence[float]) -> _TrialCalendar:
    """Return the calendar of trials that are a run each and count all."""
    days = tuple([_night_of_quarter(int(time // _QUARTER_S)) for time in times])
    not_falling = tuple(accumulate(days, max))
    return _TrialCalendar(
        days=days,
        not_falling=days if days == not_falling else not_falling,  # of millions, kept once
        disturbed=(False,) * len(days),
        counted=_Alone(len(days)),
        single=range(len(days)),
    )


class _Alone(Sequence[Sequence[int]]):
    """The places of trials that are an observation each, one by one."""

    def __init__(self, count: int) -> None:
        self._places = range(count)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: Any) -> Any:
        return (self._places[number],)


def _single(counted: Sequence[Sequence[int]]) -> Sequence[int]:
    if any(len(own) != 1 for own in counted):
        return ()
    places = [own[0] for own in counted]
    return range(len(places)) if places == list(range(len(places))) else places


def _groups(rows: Sequence[Facts]) -> Sequence[Sequence[int]]:
    """Return the places of the trials of each run or night."""
    runs = {row.run_id for row in rows}
    if len(runs) == len(rows) and "" not in runs:  # one trial a run, the usual case
        return [(place,) for place in range(len(rows))]
    groups: dict[str | int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.run_id or night_of(row.timestamp), []).append(place)
    return list(groups.values())


def _observation(rows: Sequence[Facts], places: Sequence[int]) -> tuple[int, bool, Sequence[int]]:
    """Return its day, True when it is disturbed, and the places of the trials that count.

    Trials that missed a bound of their figures count where most of the observation's did: then that
    is what the method does, and perhaps the change that is looked for.
    """
    correct = [place for place in places if rows[place].status != _OUT_OF_BOUNDS]
    counted, is_disturbed = counted_places(
        rows, correct if 2 * len(correct) >= len(places) else places
    )
    return night_of(rows[places[0]].timestamp), is_disturbed, counted


def night_of(timestamp: float) -> int:
    """Return the ordinal of the day at whose noon, local time, the night of a time began."""
    return _night_of_quarter(int(timestamp // _QUARTER_S))


@lru_cache(65536)
def _night_of_quarter(number: int) -> int:
    """Return the same for a quarter of an hour: noon begins one in every time zone."""
    return (datetime.fromtimestamp(number * _QUARTER_S) - _NOON).toordinal()
