"""Histories as the index has them: observations, levels, change points, what else changed when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from perfrun.analysis.costs import figure
from perfrun.changes.beginnings import source_text
from perfrun.changes.observations import night_of, observations_of
from perfrun.changes.watched import history_of, watch_series
from perfrun.errors import UsageError
from perfrun.plots.data import Cut, HistoryData, Level, Observed, Shift, is_drawable
from perfrun.summary.counted_trials import counted_places
from perfrun.summary.record import read_record
from perfrun.summary.series_identity import section, text
from perfrun.summary.series_times import intervals

if TYPE_CHECKING:
    from perfrun.analysis.detection import Detected
    from perfrun.store.index import Store
    from perfrun.store.query import Origin, Series, SeriesKey

MOST_OBSERVATIONS = 2000  # of one history; more are no longer told apart
_MOST_READ = 400  # summaries that are opened for the interval within a trial
_IDS_AT_ONCE = 500  # in a query


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """An observation with the trials that it is made of."""

    key: SeriesKey
    observed: Observed
    origin: Origin  # of the trial nearest to the value
    place: int | None  # among the observations that changes are looked for in


def histories(
    store: Store, method: str, metric: str, clones: Mapping[str, Path] | None = None
) -> tuple[HistoryData, ...]:
    """Return a metric's histories, one for each method, environment, machine and settings.

    `method` may be a pattern. Change points are those of `perfrun detect --method=METHOD`.
    """
    found = [one for one in store.series(method, metric, clones=clones) if one.values]
    kinds: dict[SeriesKey, list[Series]] = {}
    for one in found:
        kinds.setdefault(replace(one.key, driver="", source=""), []).append(one)
    changes = _changes(store, method, metric, found, clones)
    made = []
    for several in kinds.values():
        ordered = sorted(several, key=lambda one: min(row.timestamp for row in one.origins.rows))
        history = _history(store, ordered, changes)
        if history.observations:
            made.append(history)
    return tuple(sorted(made, key=lambda one: (one.method, -one.observations[-1].time)))


def _changes(
    store: Store,
    method: str,
    metric: str,
    found: Sequence[Series],
    clones: Mapping[str, Path] | None,
) -> dict[SeriesKey, list[Detected]]:
    """Return the change points by series, judged together with the method's primary metrics."""
    from perfrun.analysis.detection import changes_of, watch_suite  # numpy and scipy

    if any(one.derived_from for one in found):
        judged: Iterable[Series] = found
    else:
        judged = store.series(method, clones=clones, which="primary")
    try:
        watched, _ = watch_series(judged)
    except UsageError:  # there is none to watch
        return {}
    several = [history_of(one) for one in watched]
    changes: dict[SeriesKey, list[Detected]] = {}
    for change in changes_of(several, watch_suite(several)):
        one = watched[change.series]
        if one.metric == metric:
            changes.setdefault(replace(one.subject, metric=metric), []).append(change)
    return changes


def _history(
    store: Store, several: Sequence[Series], changes: Mapping[SeriesKey, Sequence[Detected]]
) -> HistoryData:
    """Return the history of series that follow on each other, as after a change of the driver."""
    every = [seen for one in several for seen in _seen(one) if is_drawable(seen.observed.value)]
    in_order = all(a.observed.time <= b.observed.time for a, b in pairwise(every))
    if len(several) > 1 and not in_order:  # two drivers in turns: only time orders them
        every.sort(key=lambda seen: seen.observed.time)
        in_order = True
    older = max(0, len(every) - MOST_OBSERVATIONS)
    shown = every[older:]
    shifts = _shifts(shown, changes)
    cuts = tuple(_cuts(shown, _versions(store, shown)))
    first = several[-1]
    key = first.key
    return HistoryData(
        method=key.method,
        metric=key.metric,
        unit=first.unit,
        direction=first.direction,
        about=tuple(fact for fact in (key.environment, key.hardware, key.settings) if fact),
        observations=tuple(_with_interval(shown, key.metric)),
        in_order_of_time=in_order,
        levels=tuple(_levels(shown, shifts, cuts)),
        shifts=tuple(shifts),
        cuts=cuts,
        older=older,
    )


def _seen(series: Series) -> Iterator[_Seen]:
    """Yield the observations in their order, and those that are left out as disturbed."""
    groups: dict[str | int, list[int]] = {}
    rows = series.origins.rows
    for place, row in enumerate(rows):
        groups.setdefault(row.run_id or night_of(row.timestamp), []).append(place)
    kept: dict[str | int, int] = {}
    for number, one in enumerate(observations_of(series.origins, series.values)):
        kept[one.point.run_id or night_of(one.point.timestamp)] = number
    for name, places in groups.items():
        own, disturbed = counted_places(rows, places)
        values = [series.values[place] for place in own]
        known = figure(values)
        middle = median(values)
        nearest = min(own, key=lambda place: abs(series.values[place] - middle))
        observed = Observed(
            time=rows[places[0]].timestamp,
            value=middle,
            low=_end(known.low) if known else None,
            high=_end(known.high) if known else None,
            trials=len(own),
            disturbed=disturbed,
            counts=name in kept,
        )
        yield _Seen(key=series.key, observed=observed, origin=rows[nearest], place=kept.get(name))


def _end(value: float | None) -> float | None:
    return value if value is not None and is_drawable(value) else None


def _with_interval(shown: Sequence[_Seen], metric: str) -> Iterator[Observed]:
    """Yield the observations; one of a single trial has the interval within that trial."""
    single = [seen for seen in shown if seen.observed.trials == 1]
    wanted = {id(seen) for seen in single} if len(single) <= _MOST_READ else set()
    for seen in shown:
        one = seen.observed
        if id(seen) not in wanted:
            yield one
            continue
        try:
            record = read_record(Path(seen.origin.summary_path))
        except (OSError, ValueError):
            yield one
            continue
        low, high = intervals(record.document, record.metrics).get(metric, (None, None))
        yield replace(one, low=_end(low), high=_end(high))


def _shifts(shown: Sequence[_Seen], changes: Mapping[SeriesKey, Sequence[Detected]]) -> list[Shift]:
    found = []
    for number, seen in enumerate(shown):
        for change in changes.get(seen.key, ()):
            if number and seen.place == change.first_after:
                found.append(Shift(first=number, ratio=change.ratio, direction=change.direction))
    return found


def _versions(store: Store, shown: Sequence[_Seen]) -> dict[str, tuple[str, str]]:
    """Return the framework of trials and its version, by execution id."""
    from perfrun.store.query import Selector

    found = {}
    ids = sorted({seen.origin.execution_id for seen in shown})
    for at in range(0, len(ids), _IDS_AT_ONCE):
        for record in store.trials(Selector(execution_ids=tuple(ids[at : at + _IDS_AT_ONCE]))):
            framework = section(record.context, "framework")
            name, version = text(framework.get("name")), text(framework.get("version"))
            if name and version:
                found[record.execution_id] = (name, version)
    return found


def _cuts(shown: Sequence[_Seen], versions: Mapping[str, tuple[str, str]]) -> Iterator[Cut]:
    """Yield what changed from one observation to the next: driver, benchmark, framework."""
    for first, (one, other) in enumerate(pairwise(shown), start=1):
        if one.key.driver != other.key.driver:
            told = f"driver {_arrow(one.key.driver, other.key.driver)}"
            yield Cut(first=first, kind="driver", text=told, begins_anew=True)
        if one.key.source != other.key.source:
            yield Cut(
                first=first,
                kind="benchmark",
                text=f"benchmark edited: {_sources(one.key.source, other.key.source)}",
                begins_anew=True,
            )
        before, after = (versions.get(seen.origin.execution_id) for seen in (one, other))
        if before and after and before != after:
            name = after[0]
            told = _arrow(before[1], after[1]) if before[0] == name else f"after {before[0]}"
            yield Cut(first=first, kind=name, text=f"{name} {told}", begins_anew=False)


def _arrow(before: str, after: str) -> str:
    return f"{before or 'none'} \u2192 {after or 'none'}"


def _sources(before: str, after: str) -> str:
    return _arrow(source_text(before, "")[:_SHORT], source_text(after, "")[:_SHORT])


_SHORT = 16  # of a version; a hash is shorter


def _levels(
    shown: Sequence[_Seen], shifts: Sequence[Shift], cuts: Sequence[Cut]
) -> Iterator[Level]:
    """Yield the median between each two changes or cuts, of the observations that count."""
    ends = {shift.first for shift in shifts} | {cut.first for cut in cuts if cut.begins_anew}
    for begin, end in pairwise([0, *sorted(ends), len(shown)]):
        own = [n for n in range(begin, end) if shown[n].observed.counts]
        if len(own) > 1:
            middle = median(shown[n].observed.value for n in own)
            yield Level(first=own[0], last=own[-1], value=middle)
