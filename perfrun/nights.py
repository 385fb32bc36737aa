"""From the points of a series to one observation a night. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from perfrun.store.query import Point

_NOON = timedelta(hours=12)


class Night(NamedTuple):
    """The trials of one run, or, where no run is known, of one night from noon to noon."""

    day: int  # ordinal of the date at whose noon it began, local time
    value: float  # median of the trials that count
    disturbed: bool  # most of its trials were
    point: Point  # the trial nearest to the value


def nights_of(points: Sequence[Point]) -> tuple[Night, ...]:
    """The nights in the order of the points.

    Disturbed trials of a night are left out, and disturbed nights of a series, unless they are the
    most: then they are what this machine has to offer.
    """
    runs = {point.run_id for point in points}
    if len(runs) == len(points) and "" not in runs:  # a trial a run, as most nights of most people
        nights = [_single(point) for point in points]
    else:
        groups: dict[str | int, list[Point]] = {}
        for point in points:
            groups.setdefault(point.run_id or _day(point.timestamp), []).append(point)
        nights = [_night(group) for group in groups.values()]
    quiet = tuple([night for night in nights if not night.disturbed])
    return quiet if 2 * len(quiet) >= len(nights) else tuple(nights)


def _single(point: Point) -> Night:
    return Night(_day(point.timestamp), point.value, point.disturbed, point)


def _night(points: Sequence[Point]) -> Night:
    if len(points) == 1:
        return _single(points[0])
    quiet = [point for point in points if not point.disturbed]
    is_disturbed = 2 * len(quiet) < len(points)
    counted = points if is_disturbed else quiet
    value = median(point.value for point in counted)
    return Night(
        day=_day(points[0].timestamp),
        value=value,
        disturbed=is_disturbed,
        point=min(counted, key=lambda point: abs(point.value - value)),
    )


@lru_cache(maxsize=2**18)  # the figures of a trial share its time
def _day(timestamp: float) -> int:
    return (datetime.fromtimestamp(timestamp) - _NOON).toordinal()
