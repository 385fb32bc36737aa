"""The series of an index that can be searched for changes, and those that cannot yet or at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from perfrun.changes.observations import Observations, observations_of
from perfrun.errors import UsageError
from perfrun.store.garbage_collection import no_collection

if TYPE_CHECKING:
    from perfrun.analysis.detection import History
    from perfrun.store.query import Series, SeriesKey


@dataclass(frozen=True, kw_only=True)
class WatchedSeries:
    """A series that is searched for changes."""

    method: str
    metric: str
    environment: str
    hardware: str
    direction: Literal["lower", "higher"]
    observations: Observations
    is_canary: bool
    subject: SeriesKey  # the key without the metric


@dataclass(frozen=True, kw_only=True)
class ChosenSeries:
    """The series to search, those with too few nights, and the number of all others by reason."""

    watched: Sequence[WatchedSeries]  # canaries always among them
    short: Sequence[WatchedSeries]
    left_out: Counter[str]  # short, no_direction, not_positive


class NoResultsError(UsageError):
    """There is no series of that kind."""


def watch_series(
    found: Iterable[Series],
    method: str | None = None,
    canaries: Iterable[str] = (),
    index: str = "the index",
) -> tuple[Sequence[WatchedSeries], Counter[str]]:
    """Return the series to search, canaries always among them, and the others by reason."""
    chosen = choose_series(found, method, canaries, index)
    return chosen.watched, chosen.left_out


@no_collection()
def choose_series(
    found: Iterable[Series],
    method: str | None = None,
    canaries: Iterable[str] = (),
    index: str = "the index",
) -> ChosenSeries:
    """Sort the series by what can be done with them. Raises UsageError where there are none."""
    from perfrun.analysis.scan import FEWEST_OBSERVATIONS

    patterns = tuple(canaries)
    watched: list[WatchedSeries] = []
    short: list[WatchedSeries] = []
    left_out: Counter[str] = Counter()
    methods = set()
    for series in found:
        is_canary = any(fnmatchcase(series.key.method, pattern) for pattern in patterns)
        methods.add(series.key.method)
        if is_canary or not method or fnmatchcase(series.key.method, method):
            one = watched_of(series, is_canary=is_canary)
            if isinstance(one, str):
                left_out[one] += 1
            elif len(one.observations) < FEWEST_OBSERVATIONS:
                left_out["short"] += 1
                short.append(one)
            else:
                watched.append(one)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in methods):
            raise UsageError(f"--canary={pattern}: no such method in {index}")
    is_there = not method or any(fnmatchcase(name, method) for name in methods)
    if not (watched or left_out) or not is_there:
        raise NoResultsError(f"{index} holds no results of that kind")
    return ChosenSeries(watched=watched, short=short, left_out=left_out)


def watched_of(series: Series, *, is_canary: bool = False) -> WatchedSeries | str:
    """Return a series as it is searched, or the reason why it cannot be."""
    direction = series.direction
    if direction == "none":
        return "no_direction"
    observations = observations_of(series.origins, series.values)
    if observations.values and min(observations.values) <= 0:
        return "not_positive"
    return WatchedSeries(
        method=series.key.method,
        metric=series.key.metric,
        environment=series.key.environment,
        hardware=series.key.hardware,
        direction=direction,
        observations=observations,
        is_canary=is_canary,
        subject=replace(series.key, metric=""),
    )


def history_of(one: WatchedSeries) -> History:
    """Return the observations of a series as its changes are looked for."""
    from perfrun.analysis.detection import History

    return History(
        values=one.observations.values,
        nights=one.observations.not_falling,
        direction=one.direction,
        is_canary=one.is_canary,
        repeats=one.observations.repeats,
        name="\0".join((*astuple(one.subject), one.metric)),
    )
