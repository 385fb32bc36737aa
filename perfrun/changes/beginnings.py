"""Series that begin anew because the benchmark's module, or its version, changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perfrun.summary.series_identity import VERSION

if TYPE_CHECKING:
    from perfrun.store.query import Series, SeriesKey

_SHORT_HASH = 10


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """A series that goes on where one of another source, with everything else equal, was."""

    method: str
    environment: str
    hardware: str
    date: str  # of its first trial, local time
    before: str  # hash of the module or version of the benchmark; '' when unknown
    after: str
    trials: int  # of the new series, of the metric with the most


def beginnings(found: Iterable[Series]) -> dict[SeriesKey, Beginning]:
    """Return how series began that are not the first of their kind, by key without metric."""
    kinds: dict[SeriesKey, dict[SeriesKey, list[Series]]] = {}
    for series in found:
        own = replace(series.key, metric="")
        kinds.setdefault(replace(own, source=""), {}).setdefault(own, []).append(series)
    begun: dict[SeriesKey, Beginning] = {}
    for of_kind in kinds.values():
        if len(of_kind) < 2:  # nearly all; the trials are not looked at
            continue
        ordered = sorted((min(map(_begin, own)), key.source, key) for key, own in of_kind.items())
        for (_, before, _), (time, after, key) in pairwise(ordered):
            begun[key] = Beginning(
                method=key.method,
                environment=key.environment,
                hardware=key.hardware,
                date=datetime.fromtimestamp(time).date().isoformat(),
                before=before,
                after=after,
                trials=max(len(one.values) for one in of_kind[key]),
            )
    return begun


def _begin(series: Series) -> float:
    return min(row.timestamp for row in series.origins.rows)


def beginning_rows(found: Sequence[Beginning]) -> list[dict[str, Any]]:
    """Return the key `begun_anew` of `--format=json`."""
    return [asdict(one) for one in found]


def beginning_text(one: Beginning) -> str:
    """Return `series begins anew on 2026-11-17: module changed (hash a1b2 -> c3d4)`."""
    return f"series begins anew on {one.date}: {changed_source(one.before, one.after)}"


def changed_source(before: str, after: str) -> str:
    """Return `module changed (hash a1b2 -> c3d4)`, or that the version did."""
    sources = (before, after)
    if any(source.startswith(VERSION) for source in sources):
        return f"version changed ({' -> '.join(source_text(source) for source in sources)})"
    return f"module changed (hash {' -> '.join(source_text(source, '') for source in sources)})"


def source_text(source: str, kind: str = "module ") -> str:
    """Return the source of a series for people: its version, or a hash that is cut short."""
    if source.startswith(VERSION):
        return source
    return f"{kind}{source[:_SHORT_HASH]}" if source else "unknown"
