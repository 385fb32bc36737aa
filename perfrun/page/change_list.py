"""The changes of level that the page begins with, the most relevant first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from perfrun.changes.change_report import ChangeRow
from perfrun.changes.cuts import Cut, cuts_of
from perfrun.changes.detect import find_changes
from perfrun.changes.observations import night_of
from perfrun.changes.watched import NoResultsError, choose_series
from perfrun.page.document import ChangeShown, Culprit
from perfrun.page.events import Search, confirmed_by_nights, culprit_of, searches
from perfrun.page.material import Material
from perfrun.summary.metrics import WALL_TIME

MOST_CHANGES = 200
RECENT_DAYS = 14  # as in a night's report
_RANKS = {"confirmed": 0, "candidate": 1, "not_reproduced": 2}


@dataclass(frozen=True, kw_only=True)
class Found:
    """The changes of the material, and the series that were judged or could not be yet."""

    rows: tuple[ChangeRow, ...] = ()
    judged: int = 0
    short: int = 0  # series with too few nights
    cuts: tuple[Cut, ...] = ()  # with the levels on both sides


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a change is on the page."""

    method: int | None
    series: int | None
    at: int | None


def found_changes(material: Material, since: float) -> Found:
    """Search all primary metrics for changes since a time, with what nights found about them."""
    primary = [one for one in material.series if not one.derived_from]
    try:
        chosen = choose_series(primary, index=material.selection)
    except NoResultsError:
        return Found()
    oldest = date.fromordinal(night_of(since)) if since else None
    found = find_changes(chosen.watched, chosen.left_out, since=oldest, beside=material.scans)
    rows = sorted(found.rows, key=_relevance)
    rows = confirmed_by_nights(material.workspace, rows)
    return Found(
        rows=tuple(rows),
        judged=found.series,
        short=chosen.left_out["short"],
        cuts=cuts_of((*chosen.watched, *chosen.short), found.watches),
    )


def _relevance(row: ChangeRow) -> tuple[bool, int, int, bool, float]:
    """Return what changes are sorted by: worse first, then what pairs say, then the newest."""
    newest = -date.fromisoformat(row.alarm_night).toordinal()
    return row.direction != "worse", _RANKS.get(row.status, 1), newest, *_size(row)


def _size(row: ChangeRow) -> tuple[bool, float]:
    return row.metric != WALL_TIME, -abs(row.ratio - 1)


def shown_changes(
    material: Material,
    rows: Iterable[ChangeRow],
    newest: float,
    place_of: Callable[[ChangeRow], Place],
) -> list[tuple[ChangeShown, ChangeRow]]:
    """Return the changes as the page shows them, the most relevant first."""
    ordered = sorted(rows, key=_relevance)[:MOST_CHANGES]
    by_search = searches(material.workspace) if ordered else []
    recent = night_of(newest) - RECENT_DAYS
    return [(_shown(row, by_search, recent, place_of(row)), row) for row in ordered]


def _shown(row: ChangeRow, found: Sequence[Search], recent: int, place: Place) -> ChangeShown:
    search = culprit_of(row, found)
    judged = row.confirmation or {}
    return ChangeShown(
        method=place.method,
        series=place.series,
        metric=row.metric,
        direction=row.direction,
        ratio=row.ratio,
        low=row.low,
        high=row.high,
        night=row.night,
        alarm_night=row.alarm_night,
        at=place.at,
        status=row.status,
        pairs=judged.get("pairs") or 0,
        text=confirmation_text(row.status, judged),
        commits=tuple(commit_texts(row.commits_before, row.commits_after)),
        culprit=None if search is None else culprit_shown(search, row),
        environment=tuple(_environment(row)),
        machine_suspect=row.machine_suspect,
        is_recent=date.fromisoformat(row.alarm_night).toordinal() >= recent,
    )


def _environment(row: ChangeRow) -> Iterator[str]:
    """Yield what else differs; the commits have a place of their own."""
    moved = tuple(f"{name} {before[:12]} -> " for name, before in row.commits_before.items())
    for text in row.environment_differences or ():
        if not (moved and text.startswith(moved)):
            yield text


def culprit_shown(search: Search, row: ChangeRow) -> Culprit:
    """Return the commit that explains a change, with its repository where several moved."""
    before, after = row.commits_before, row.commits_after
    moved = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return Culprit(
        commit=search.culprit["name"],
        repository=(search.culprit["repository"] or "") if len(moved) > 1 else "",
        subject=search.culprit["subject"] or "",
        author=search.culprit["author"] or "",
        ratio=search.ratio,
        low=search.low,
        high=search.high,
    )


def confirmation_text(status: str, judged: Mapping[str, Any]) -> str:
    """Return `confirmed by 12 pairs: 1.09 (1.08..1.11)`, or why there is no such thing."""
    if not judged:
        return "no pairs have been run"
    name = {"confirmed": "confirmed by", "not_reproduced": "not reproduced in"}.get(status)
    pairs = f"{judged['pairs']} pair{'' if judged['pairs'] == 1 else 's'}"
    figures = f": {judged['ratio']:.3f}" if judged["ratio"] else ""
    if figures and judged["low"] and judged["high"]:
        figures += f" ({judged['low']:.3f}..{judged['high']:.3f})"
    if name:
        return f"{name} {pairs}{figures}"
    reason = f": {judged['reason']}" if judged["reason"] else ""
    return f"open after {pairs}{figures}{reason}" if judged["pairs"] else f"open{reason}"


def commit_texts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the commits that changed: `models 1a2b3c4d5e..6f7a8b9c0d`."""
    names = sorted(before.keys() | after.keys())
    return [
        f"{name} {before.get(name, 'none')[:10]}..{after.get(name, 'none')[:10]}"
        for name in names
        if before.get(name) != after.get(name)
    ]
