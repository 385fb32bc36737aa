"""The data of the served page: what is in the index, the newest histories, and their changes.

It is the same document as that of `perfrun report`, without what needs every summary to be read:
the details of trials, which the page asks for one by one.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from statistics import median
from typing import TYPE_CHECKING, Any

from perfrun import __version__
from perfrun.changes.observations import Observation, observations_of
from perfrun.changes.watched import NoResultsError, choose_series
from perfrun.page.history import hardware_key
from perfrun.page.packed import packed, packed_flags, packed_times, packed_whole
from perfrun.serve.questions import (
    MOST_SUBJECTS,
    SHOWN_POINTS,
    Index,
    Newest,
    Total,
    newest_of,
    totals,
)
from perfrun.text import redacted

if TYPE_CHECKING:
    from perfrun.changes.change_report import ChangeRow
    from perfrun.store.query import Series

_MOST_CHANGES = 100
_RECENT_DAYS = 14
_BASELINE = 10  # observations before the newest one
_HASH = 12
_DISTURBED = 1


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A series of the page: the newest observations of one metric of one subject."""

    method: int
    series: Series
    points: Sequence[Observation]


def overview(index: Index, title: str) -> dict[str, Any]:
    """Return the data of the page. Raises StoreError."""
    with index.asked() as connection:
        found = totals(connection)
        shown = sorted(found, key=lambda one: -one.last)[:MOST_SUBJECTS]
        shown = sorted(shown, key=lambda one: (one.subject.method, one.subject.id))
        newest = newest_of(connection, shown)
    entries = _entries(shown, newest)
    commits: dict[str, int] = {}
    changes = _changes(entries)
    last = max((one.last for one in found), default=None)
    document = {
        "schema": 1,
        "perfrun": __version__,
        "made": time.time(),
        "title": title,
        "selection": f"the newest {SHOWN_POINTS} nights of each series",
        "newest": last,
        "machines": _machines(found, newest),
        "outcomes": _outcomes(found),
        "warnings": [],
        "changes": changes,
        "methods": _methods(shown, newest, entries),
        "series": [_series(one, commits) for one in entries],
        "commits": [{"id": name, "subject": "", "repository": ""} for name in commits],
        "details": [],
        "pairs": [],
        "versus": [],
        "shared": [],
        "left_out": _left_out(found, shown),
    }
    return dict(finite(redacted(document)))


def finite(value: Any) -> Any:
    """Return a document with None in place of what JSON cannot hold."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _entries(shown: Sequence[Total], newest: Mapping[int, Newest]) -> list[_Entry]:
    return [
        _Entry(method=number, series=series, points=_points(series))
        for number, one in enumerate(shown)
        for series in newest[one.subject.id].series
    ]


def _points(series: Series) -> Sequence[Observation]:
    found = observations_of(series.origins, series.values)
    return [found[at] for at in range(max(0, len(found) - SHOWN_POINTS), len(found))]


def _series(entry: _Entry, commits: dict[str, int]) -> dict[str, Any]:
    series, points = entry.series, entry.points
    values = [point.value for point in points]
    return {
        "method": entry.method,
        "metric": series.key.metric,
        "unit": series.unit,
        "direction": series.direction,
        "derived": bool(series.derived_from),
        "n": len(points),
        "time": asdict(packed_times([point.point.timestamp for point in points])),
        "value": asdict(packed(values)),
        "low": None,
        "high": None,
        "flags": packed_flags(_DISTURBED if point.disturbed else 0 for point in points),
        "cuts": [],
        "commit": _commit_column(points, commits),
        "baseline": _baseline(values),
        "noise": _noise(values),
    }


def _commit_column(points: Sequence[Observation], commits: dict[str, int]) -> dict[str, Any] | None:
    names = [_commit(point.point.commits) for point in points]
    if not any(names):
        return None
    return asdict(packed_whole([commits.setdefault(name, len(commits)) for name in names]))


def _commit(commits: Mapping[str, str]) -> str:
    """Return the commits of an observation as one text; mostly there is one checkout."""
    return " ".join(commit[:_HASH] for _, commit in sorted(commits.items()))


def _baseline(values: Sequence[float]) -> float | None:
    before = values[-_BASELINE - 1 : -1]
    return median(before) if before else None


def _noise(values: Sequence[float]) -> float | None:
    from perfrun.analysis.stats import relative_noise  # numpy and scipy

    return relative_noise(values[-_BASELINE - 1 :])


def _methods(
    shown: Sequence[Total], newest: Mapping[int, Newest], entries: Sequence[_Entry]
) -> list[dict[str, Any]]:
    places: dict[int, list[int]] = {}
    for place, entry in enumerate(entries):
        places.setdefault(entry.method, []).append(place)
    return [
        _method(one, newest[one.subject.id], places.get(number, []), entries)
        for number, one in enumerate(shown)
    ]


def _method(
    total: Total, newest: Newest, own: Sequence[int], entries: Sequence[_Entry]
) -> dict[str, Any]:
    values = [point.value for point in entries[own[0]].points] if own else []
    return {
        "name": total.subject.method,
        "environment": total.subject.environment,
        "hardware": hardware_key(total.subject.hardware),
        "hardware_text": total.subject.hardware,
        "settings": total.subject.settings,
        "main": own[0] if own else None,
        "series": list(own),
        "state": newest.status,
        "trials": total.trials,
        "failed": total.failed,
        "last": total.last,
        "against_last_night": _ratio(values, values[-2] if len(values) > 1 else None),
        "against_baseline": _ratio(values, _baseline(values)),
        "noise": _noise(values),
        "grade": newest.grade,
        "detail": None,
    }


def _ratio(values: Sequence[float], base: float | None) -> float | None:
    return values[-1] / base if values and base else None


def _machines(found: Sequence[Total], newest: Mapping[int, Newest]) -> list[dict[str, Any]]:
    """Return the kinds of machines; each is named as the one that ran its newest trial."""
    kinds: dict[tuple[str, str], list[Total]] = {}
    for one in found:
        kinds.setdefault((one.subject.hardware, one.subject.driver), []).append(one)
    return [
        {
            "name": _hostname(own, newest),
            "cpu": hardware,
            "accelerators": f"driver {driver}" if driver else "",
            "trials": sum(one.trials for one in own),
            "last": max(one.last for one in own),
        }
        for (hardware, driver), own in kinds.items()
    ]


def _hostname(own: Sequence[Total], newest: Mapping[int, Newest]) -> str:
    known = [one for one in own if one.subject.id in newest]
    return newest[max(known, key=lambda one: one.last).subject.id].hostname if known else ""


def _outcomes(found: Iterable[Total]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for one in found:
        counted.update(one.by_status)
    return dict(counted)


def _left_out(found: Sequence[Total], shown: Sequence[Total]) -> list[str]:
    if len(found) > len(shown):
        left_out = len(found) - len(shown)
        return [f"{left_out} of {len(found)} methods, with older trials, are left out"]
    return []


def _changes(entries: Sequence[_Entry]) -> list[dict[str, Any]]:
    """Return the changes in the histories that are shown: worse ones first, the newest of them."""
    from perfrun.changes.detect import find_changes  # numpy and scipy

    try:
        chosen = choose_series(entry.series for entry in entries)
    except NoResultsError:
        return []
    rows = find_changes(chosen.watched, chosen.left_out).rows
    places = {
        (entry.series.key.method, entry.series.key.metric, point.point.execution_id): (number, at)
        for number, entry in enumerate(entries)
        for at, point in enumerate(entry.points)
    }
    found = [
        _change(row, entries, *place)
        for row in rows
        if (place := places.get((row.method, row.metric, row.after_execution_id)))
    ]
    newest = max((row.night for row in rows), default="")
    for one in found:
        one["is_recent"] = _days(newest) - _days(one["night"]) <= _RECENT_DAYS
    found.sort(key=lambda one: one["night"], reverse=True)
    found.sort(key=lambda one: one["direction"] != "worse")
    return found[:_MOST_CHANGES]


def _days(night: str) -> int:
    return date.fromisoformat(night).toordinal()


def _change(row: ChangeRow, entries: Sequence[_Entry], series: int, at: int) -> dict[str, Any]:
    commits = [
        f"{name} {row.commits_before.get(name, '')[:_HASH]}..{commit[:_HASH]}"
        for name, commit in sorted(row.commits_after.items())
        if row.commits_before.get(name) != commit
    ]
    return {
        "method": entries[series].method,
        "metric": row.metric,
        "series": series,
        "direction": row.direction,
        "ratio": row.ratio,
        "low": row.low,
        "high": row.high,
        "night": row.night,
        "alarm_night": row.alarm_night,
        "at": at,
        "status": row.status,
        "pairs": 0,
        "text": "found in the history; not confirmed by pairs here",
        "commits": commits,
        "culprit": None,
        "environment": list(row.environment_differences or ()),
        "machine_suspect": row.machine_suspect,
    }
