"""Search an index for the changes of which incidents are made, with what is known of each cause."""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from perfrun.changes.change_report import ChangeRow
from perfrun.changes.detect import find_changes
from perfrun.changes.search_log import LOCK_NAME, LOG_NAME
from perfrun.changes.watched import WatchedSeries, choose_series
from perfrun.incidents.grouping import Improvement, Improvements, Sighting
from perfrun.incidents.incident import (
    Commits,
    Culprit,
    Drifting,
    Returned,
    Step,
    Worsening,
    is_same_step,
)
from perfrun.locks import is_held
from perfrun.page.events import (
    Search,
    confirmed_by_nights,
    culprit_of,
    revisions_of,
    searches,
)
from perfrun.page.kept_documents import names_in
from perfrun.summary.document import Status

if TYPE_CHECKING:
    from perfrun.store.index import Store

_LEVEL = 20  # observations of a level
_JUDGED = 6  # observations next to a change that say if its level is of correct trials
_OUT_OF_BOUNDS = Status.OUT_OF_BOUNDS.value
_GOING_ON = 20  # newest searches that are looked at for one that goes on
_LONGEST = 300  # characters of a difference


class Told(Step, Protocol):
    """A change as another search, or a night, has told it."""

    @property
    def method(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def environment(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def ratio(self) -> float: ...
    @property
    def confirmation(self) -> Mapping[str, Any] | None: ...
    @property
    def machine_suspect(self) -> bool: ...
    @property
    def before_execution_id(self) -> str: ...
    @property
    def after_execution_id(self) -> str: ...
    @property
    def commits_before(self) -> Mapping[str, str]: ...
    @property
    def commits_after(self) -> Mapping[str, str]: ...
    @property
    def environment_differences(self) -> tuple[str, ...] | None: ...


@dataclass(frozen=True, kw_only=True)
class Found:
    """The changes of an index, and the number of series that were searched."""

    sightings: tuple[Sighting, ...]
    improvements: Improvements
    series: int
    short: int  # series with too few nights


def search(
    store: Store,
    workspace: Path,
    *,
    canaries: Sequence[str] = (),
    known_canaries: Iterable[str] = (),
    clones: Mapping[str, Path] | None = None,
    tonight: Sequence[Told] = (),
) -> Found:
    """Find the changes of all primary metrics, as `perfrun detect` does.

    `known_canaries` are those that suites have named; one without results counts as absent.
    `tonight` holds what a night has confirmed and not written yet; what its pairs have confirmed
    before the history shows it counts as found. Raises NoResultsError.
    """
    series = tuple(store.series(clones=clones, which="primary"))
    methods = {one.key.method for one in series}
    known = [name for name in known_canaries if any(fnmatchcase(m, name) for m in methods)]
    chosen = choose_series(series, None, [*canaries, *known], store.address.shown)
    found = find_changes(chosen.watched, chosen.left_out, beside=store.scans_beside)
    rows = confirmed_by_nights(workspace, [_with_tonight(row, tonight) for row in found.rows])
    owners = _Owners(chosen.watched)
    rows += _by_pairs(tonight, rows, owners)
    own = [(row, one) for row in rows if (one := owners.of(row)) is not None]
    by_search = searches(workspace) if rows else []
    going_on = _going_on(workspace) if rows else []
    drifts = _drifts(own)
    sightings = []
    better: dict[tuple[str, str], list[tuple[ChangeRow, WatchedSeries]]] = {}
    for row, one in own:
        is_better = row.direction == "better"
        if _is_wrong(one, _place(one, row), after=is_better):
            continue
        if is_better:
            better.setdefault((_short_key(one), one.metric), []).append((row, one))
            continue
        culprit = culprit_of(row, by_search)
        # Where a bisection has found the commit, it is a step, whatever else moves there.
        drift = drifts.get(id(row)) if culprit is None else None
        change = replace(_worsening(row, one), drift=drift)
        sightings.append(
            Sighting(
                change=change,
                culprit=None if culprit is None else _culprit(culprit),
                is_bisecting=any(_covers(revisions, change) for revisions in going_on),
            )
        )
    return Found(
        sightings=tuple(sightings),
        improvements={key: _improvements(found) for key, found in better.items()},
        series=found.series,
        short=chosen.left_out["short"],
    )


def _drifts(own: Sequence[tuple[ChangeRow, WatchedSeries]]) -> dict[int, Drifting]:
    """Return the drift that a change is part of, by the id of its row."""
    from perfrun.analysis.drift import drifts_of  # numpy

    by_series: dict[int, list[tuple[int, ChangeRow, WatchedSeries]]] = {}
    for row, one in own:
        by_series.setdefault(id(one), []).append((_place(one, row), row, one))
    found = {}
    for several in by_series.values():
        several.sort(key=lambda each: each[0])
        one = several[0][2]
        days = one.observations.not_falling
        logs = [math.log(value) for value in one.observations.values]
        steps = [(place, 1 if row.ratio > 1 else -1) for place, row, _ in several]
        for (_, row, _), drift in zip(several, drifts_of(logs, days, steps), strict=True):
            if drift is not None:
                found[id(row)] = Drifting(
                    begin=date.fromordinal(int(days[drift.first])).isoformat(),
                    end=date.fromordinal(int(days[drift.last])).isoformat(),
                    ratio=math.exp(drift.change),
                )
    return found


class _Owners:
    """The series that changes were found in. Those of one name may differ in their settings."""

    def __init__(self, watched: Sequence[WatchedSeries]) -> None:
        self._found: dict[tuple[str, ...], list[WatchedSeries]] = {}
        for one in watched:
            key = (one.method, one.metric, one.environment, one.hardware)
            self._found.setdefault(key, []).append(one)

    def of(self, row: ChangeRow) -> WatchedSeries | None:
        """Return the series of a change."""
        key = (row.method, row.metric, row.environment, row.hardware)
        several = self._found.get(key, [])
        if len(several) < 2:
            return several[0] if several else None
        return next((one for one in several if _has(one, row.after_execution_id)), None)

    def named(self, told: Told) -> WatchedSeries | None:
        """Return the series of a change as a night tells it: without the hardware."""
        names = (told.method, told.metric, told.environment)
        for key, several in self._found.items():
            if key[:3] == names:
                for one in several:
                    if _has(one, told.after_execution_id):
                        return one
        return None


def _has(one: WatchedSeries, execution_id: str) -> bool:
    return any(own.point.execution_id == execution_id for own in one.observations)


def _by_pairs(
    tonight: Sequence[Told], rows: Sequence[ChangeRow], owners: _Owners
) -> list[ChangeRow]:
    """Return the changes for the worse that pairs have confirmed and no history shows yet."""
    found = []
    for told in tonight:
        if (told.status, told.direction) != ("confirmed", "worse") or told.confirmation is None:
            continue
        one = owners.named(told)
        if one is not None and not any(is_told(r, told) and owners.of(r) is one for r in rows):
            found.append(_row_of(told, told.confirmation, one))
    return found


def _row_of(told: Told, pairs: Mapping[str, Any], one: WatchedSeries) -> ChangeRow:
    return ChangeRow(
        method=told.method,
        metric=told.metric,
        environment=told.environment,
        hardware=one.hardware,
        settings=one.subject.settings,
        before_execution_id=told.before_execution_id,
        after_execution_id=told.after_execution_id,
        night=told.night,
        alarm_night=told.alarm_night,
        ratio=told.ratio,
        low=pairs["low"] or told.ratio,
        high=pairs["high"] or told.ratio,
        p_value=0.0,
        direction=told.direction,
        machine_suspect=told.machine_suspect,
        detectors=("pairs",),
        commits_before=told.commits_before,
        commits_after=told.commits_after,
        environment_differences=told.environment_differences,
        status=told.status,
        confirmation=pairs,
    )


def _with_tonight(row: ChangeRow, tonight: Sequence[Told]) -> ChangeRow:
    for told in tonight:
        if told.confirmation is not None and is_told(row, told):
            return replace(row, status=told.status, confirmation=told.confirmation)
    return row


def is_told(row: ChangeRow, told: Told) -> bool:
    """Return True for the same change in two searches."""
    names = ("method", "metric", "environment", "direction")
    is_named = all(getattr(row, name) == getattr(told, name) for name in names)
    return is_named and is_same_step(row, told)


def _worsening(row: ChangeRow, one: WatchedSeries) -> Worsening:
    at = _place(one, row)
    return Worsening(
        method=row.method,
        metric=row.metric,
        environment=row.environment,
        hardware=row.hardware,
        settings=one.subject.settings,
        series=_short_key(one),
        ratio=row.ratio,
        low=row.low,
        high=row.high,
        level=_level(one, 0, at) or one.observations.values[at] / row.ratio,
        night=row.night,
        alarm_night=row.alarm_night,
        status=row.status,
        is_machine=row.machine_suspect or one.is_canary,
        before_execution_id=row.before_execution_id,
        after_execution_id=row.after_execution_id,
        commits=moved(row.commits_before, row.commits_after),
        differences=_differences(row),
    )


def _short_key(one: WatchedSeries) -> str:
    return hashlib.sha256(repr(one.subject).encode("utf-8", "replace")).hexdigest()[:16]


def _improvements(
    better: Sequence[tuple[ChangeRow, WatchedSeries]],
) -> tuple[Improvement, ...]:
    """Return the changes for the better of one series, each with the level up to the next."""
    ordered = sorted(((_place(one, row), row, one) for row, one in better), key=lambda own: own[0])
    ends = [*(at for at, _, _ in ordered[1:]), len(ordered[-1][2].observations)]
    return tuple(
        Improvement(
            returned=Returned(
                night=row.night,
                alarm_night=row.alarm_night,
                commits=moved(row.commits_before, row.commits_after),
            ),
            level=_level(one, at, end),
        )
        for (at, row, one), end in zip(ordered, ends, strict=True)
    )


def _place(one: WatchedSeries, row: ChangeRow) -> int:
    """Return the place of the first observation at the new level; a night may have several."""
    days, day = one.observations.not_falling, _day(row.night)
    end = bisect_right(days, day)
    for at in chain(range(end - 1, -1, -1), range(end, len(days))):
        if one.observations[at].point.execution_id == row.before_execution_id:
            return min(at + 1, len(days) - 1)
    return min(bisect_left(days, day), len(days) - 1)


def _level(one: WatchedSeries, first: int, end: int) -> float:
    """Return the median of the last of these observations; 0 without any."""
    chosen = one.observations.values[first:end]
    return median(chosen[-_LEVEL:]) if chosen else 0.0


def _day(night: str) -> int:
    return date.fromisoformat(night).toordinal()


def _is_wrong(one: WatchedSeries, at: int, *, after: bool) -> bool:
    """Return True when most trials of a level missed a bound of their figures: it is no baseline.

    What was fast because it was wrong is not worse once it is right. Where most of a series miss a
    bound, that says nothing about a level.
    """
    number = len(one.observations)
    level = range(at, min(at + _JUDGED, number)) if after else range(max(0, at - _JUDGED), at)

    def wrong(places: Sequence[int]) -> bool:
        missed = sum(one.observations[at].point.status == _OUT_OF_BOUNDS for at in places)
        return 2 * missed > len(places)

    return wrong(level) and not wrong(range(number))


def moved(before: Mapping[str, str], after: Mapping[str, str]) -> Commits:
    """Return the commits of the checkouts that differ: before and after, '' where unknown."""
    return {
        name: (before.get(name, ""), after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def _differences(row: ChangeRow) -> tuple[str, ...] | None:
    """Return what differs besides the commits, which have a place of their own."""
    if row.environment_differences is None:
        return None
    commits = tuple(f"{name} {before[:12]} -> " for name, before in row.commits_before.items())
    return tuple(
        re.sub(r"\s+", " ", text)[:_LONGEST]
        for text in row.environment_differences
        if not (commits and text.startswith(commits))
    )


def _culprit(found: Search) -> Culprit:
    own = found.culprit
    return Culprit(
        name=own["name"],
        author=own["author"] or "",
        subject=own["subject"] or "",
        repository=own["repository"] or "",
    )


def _going_on(workspace: Path) -> list[Sequence[str]]:
    """Return the revisions of each bisection that runs now."""
    folder = workspace / "bisect"
    found: list[Sequence[str]] = []
    for name in sorted(names_in(folder), reverse=True)[:_GOING_ON]:
        own = names_in(folder / name)
        if LOG_NAME in own and LOCK_NAME in own and is_held(folder / name / LOCK_NAME):
            found.append(revisions_of(folder / name))
    return found


def _covers(revisions: Sequence[str], change: Worsening) -> bool:
    return any(pair[0] in revisions and pair[1] in revisions for pair in change.commits.values())
