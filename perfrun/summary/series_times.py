"""The times of a series in a summary, and the confidence intervals that follow from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfrun.summary.metrics import MEDIAN, WALL_TIME, MetricValue
from perfrun.summary.series_identity import is_number, objects, section

_MOST_SERIES = 1000  # of a summary, as many as a trial may have

Interval = tuple[float, float]


def steady_times(series: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the samples of the steady part, in seconds a step; of all where none is steady."""
    times, every = series.get("times_s"), series.get("times_every")
    if not isinstance(times, list) or not all(is_number(one) and one >= 0 for one in times):
        return ()
    first = section(series, "steadiness").get("steady_from")
    if isinstance(first, int) and isinstance(every, int) and first > 0 < every:
        times = times[math.ceil(first / every) :]
    return tuple(map(float, times))


def series_of_wall_time(
    several: Sequence[Mapping[str, Any]], wall_time: float | None
) -> Mapping[str, Any] | None:
    """Return the series whose median is the wall time, else the first; None where there is none."""
    of_wall = (s for s in several if section(s, "statistics").get("median_s") == wall_time)
    return next(of_wall, several[0] if several else None)


def median_interval_of(series: Mapping[str, Any]) -> Interval | None:
    """Return the 95 % confidence interval of the series' median, in seconds."""
    figures = section(series, "statistics")
    low, high = figures.get("median_low_s"), figures.get("median_high_s")
    return (float(low), float(high)) if is_number(low) and is_number(high) else None


def intervals(
    document: Mapping[str, Any], metrics: Mapping[str, MetricValue]
) -> dict[str, Interval]:
    """Return the intervals of those metrics that are medians of series, or rates made from them.

    An interval is one within the trial. What other trials would give may lie outside of it.
    """
    known = dict(_known(document))
    return {
        name: known[one.value]
        for name, one in metrics.items()
        if one.value in known
        and (name.rpartition("/")[2] in (WALL_TIME, MEDIAN) or one.direction == "higher")
    }


def _known(document: Mapping[str, Any]) -> Iterator[tuple[float, Interval]]:
    """Yield each median, and each rate that follows from one, with its interval."""
    for one in objects(section(document, "perfrun").get("series"))[:_MOST_SERIES]:
        median, interval = section(one, "statistics").get("median_s"), median_interval_of(one)
        if not is_number(median) or interval is None:
            continue
        yield median, interval
        rate, (low, high) = one.get("throughput_per_s"), interval
        if is_number(rate) and low > 0 and high > 0:
            yield rate, (rate * median / high, rate * median / low)
