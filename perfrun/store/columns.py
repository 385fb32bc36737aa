"""Put the figures that were read together as series, in columns. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any

from perfrun.store.query import Origin, Origins, Series, SeriesKey
from perfrun.summary_metrics import direction_of, unit_of

Columns = tuple[list[Origin], list[float]]  # the trials of a series, and the figure of each

_BY_TIME = attrgetter("timestamp", "execution_id")


def by_time(
    figures: Iterable[tuple[Any, ...]], ordered: Sequence[int]
) -> Iterable[tuple[Any, ...]]:
    """The figures in the order of their trials, which mostly is that in which they are read."""
    if ordered == sorted(ordered):
        return figures
    places = {trial_id: place for place, trial_id in enumerate(ordered)}
    return sorted(figures, key=lambda figure: places.get(figure[0], -1))


def columns_of(
    figures: Iterable[tuple[Any, ...]], origins: Mapping[int, tuple[int, Origin]]
) -> dict[int, dict[int, Columns]]:
    """The figures of each subject's metrics; those of a trial come one after the other."""
    found: dict[int, dict[int, Columns]] = {}
    last = origin = None
    own: dict[int, Columns] = {}
    for trial_id, metric_id, value in figures:
        if trial_id != last:
            last, origin = trial_id, None
            if trial_id in origins:
                subject, origin = origins[trial_id]
                own = found.setdefault(subject, defaultdict(_no_figures))
        if origin is not None:
            rows, values = own[metric_id]
            rows.append(origin)
            values.append(value)
    return found


def _no_figures() -> Columns:
    return [], []


def series_of(
    columns: Mapping[int, Mapping[int, Columns]],
    about: Mapping[int, Any],
    stated: Mapping[int, Any],
) -> Iterator[Series]:
    """Bring together what is one series: a metric is stored once for each unit that was stated.

    The figures are by time. What the latest trial states counts.
    """
    together: dict[tuple[int, str], list[tuple[Any, Columns]]] = {}
    for subject, of_metrics in columns.items():
        for metric_id, found in of_metrics.items():
            named = stated[metric_id]
            together.setdefault((subject, named.name), []).append((named, found))
    shared: dict[int, list[Origins]] = {}  # those of a subject that differ
    for key in sorted(together, key=lambda key: (about[key[0]].method, key[1], key[0])):
        parts = sorted(together[key], key=lambda part: _BY_TIME(part[1][0][-1]))
        said = [named for named, _ in parts if named.unit or named.direction]
        unit, direction = (said[-1].unit, said[-1].direction) if said else ("", "")
        rows, values = _joined([found for _, found in parts])
        yield Series(
            key=_key(about[key[0]], key[1]),
            unit=unit_of(key[1], unit),
            direction=direction_of(key[1], direction),
            origins=_shared(shared.setdefault(key[0], []), tuple(rows)),
            values=values,
            derived_from=parts[-1][0].derived_from,
        )


def _joined(parts: Sequence[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    pairs = [pair for rows, values in parts for pair in zip(rows, values, strict=True)]
    pairs.sort(key=lambda pair: _BY_TIME(pair[0]))
    return [origin for origin, _ in pairs], [value for _, value in pairs]


def _shared(known: list[Origins], rows: tuple[Origin, ...]) -> Origins:
    """The one object for these trials: a trial has most of a method's metrics, or all."""
    for one in known:
        if len(one.rows) == len(rows) and all(map(is_, one.rows, rows)):
            return one
    known.append(Origins(rows))
    return known[-1]


def _key(about: Any, metric: str) -> SeriesKey:
    return SeriesKey(
        method=about.method,
        metric=metric,
        environment=about.environment,
        hardware=about.hardware,
        driver=about.driver,
        source=about.source,
        settings=about.settings,
    )
