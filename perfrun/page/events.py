"""What nights and searches have found about changes: confirmations and culprits, from their files.

They are `nights/<night>/report.json` and `bisect/<search>/answer.json` of a workspace. What is of
another form than perfrun writes counts as absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.changes.change_report import ChangeRow
from perfrun.page.kept_documents import LARGEST_BYTES, names_in, read_checked
from perfrun.untrusted import Folder

_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:-\d{1,6})?\Z", re.ASCII)
_TOLD_DAYS = 15  # a change is in the reports of so many nights after its alarm
_MOST_SEARCHES = 300
_MOST_CHANGES = 10_000  # of a report
_ratio = schema.maybe(schema.number(0, 1e9))
_texts = schema.listed(schema.text(), 100)
_CONFIRMATION = schema.table(
    {
        "reason": schema.maybe(schema.text()),
        "ratio": _ratio,
        "low": _ratio,
        "high": _ratio,
        "pairs": schema.whole(0, 10**6),
        "not_reconstructed": _texts,
    },
    absent={"reason": None, "ratio": None, "low": None, "high": None, "pairs": 0},
)
_CHANGE = schema.table(
    {
        **{
            name: schema.text()
            for name in ("method", "metric", "environment", "direction", "night", "alarm_night")
        },
        "status": schema.one_of("candidate", "confirmed", "not_reproduced"),
        "confirmation": schema.maybe(_CONFIRMATION),
        "after_execution_id": schema.text(),
    },
    needs=("method", "metric", "environment", "direction", "night", "alarm_night", "status"),
    absent={"confirmation": None, "after_execution_id": ""},
)
_REPORT = schema.table({"changes": schema.listed(_CHANGE, _MOST_CHANGES)}, absent={"changes": []})
_REVISION = schema.table(
    {
        "name": schema.text(),
        "author": schema.maybe(schema.text()),
        "date": schema.maybe(schema.text()),
        "subject": schema.maybe(schema.text()),
        "repository": schema.maybe(schema.text()),
    },
    needs=("name",),
    absent={"author": None, "subject": None, "repository": None},
)
_ANSWER = schema.table(
    {
        "status": schema.text(),
        "method": schema.text(),
        "metric": schema.text(),
        "direction": schema.maybe(schema.text()),
        "culprit": schema.maybe(_REVISION),
        "ratio": _ratio,
        "low": _ratio,
        "high": _ratio,
    },
    needs=("status", "method", "metric"),
    absent={"culprit": None, "direction": None, "ratio": None, "low": None, "high": None},
)
_COMMITS = schema.listed(schema.text(), 100_000)
_BEGIN = schema.table(
    {"revisions": _COMMITS, "repositories": schema.mapped(_COMMITS, 100)},
    absent={"revisions": [], "repositories": {}},
)


@dataclass(frozen=True, kw_only=True)
class Search:
    """A bisection that has found its commit."""

    method: str
    metric: str
    direction: str
    culprit: Mapping[str, Any]
    ratio: float | None
    low: float | None
    high: float | None
    revisions: Sequence[str]  # that were searched, the good one first; of the culprit's repository


def confirmed_by_nights(workspace: Path, rows: Sequence[ChangeRow]) -> list[ChangeRow]:
    """Return the changes with the status and confirmation that the nights' reports have."""
    found = {id(row): row for row in rows}
    begins = {(row.metric, row.after_execution_id) for row in rows}
    open_rows = [row for row in rows if row.confirmation is None]
    nights = workspace / "nights"
    for day, name in _nights(nights):
        if not any(_is_told(row, day) for row in open_rows):
            continue
        told = [one for one in _changes(nights, name) if one["confirmation"] is not None]
        for row in [row for row in open_rows if _is_told(row, day)]:
            match = _told_of(row, told, begins)
            if match is not None:
                found[id(row)] = _with(row, match)
                open_rows.remove(row)
        if not open_rows:
            break
    return [found[id(row)] for row in rows]


def _nights(folder: Path) -> list[tuple[str, str]]:
    """Return date and name of each night, the newest first."""
    ends = [(_DATE.search(name[-20:]), name) for name in names_in(folder)]
    return sorted(((end[1], name) for end, name in ends if end), reverse=True)


def _is_told(row: ChangeRow, day: str) -> bool:
    try:
        alarm = date.fromisoformat(row.alarm_night)
        first, last = alarm - timedelta(days=1), alarm + timedelta(days=_TOLD_DAYS)
    except (ValueError, OverflowError):
        return False
    return first.isoformat() <= day <= last.isoformat()


def _told_of(
    row: ChangeRow, told: Sequence[Mapping[str, Any]], begins: Collection[tuple[str, str]]
) -> Mapping[str, Any] | None:
    """Return what a night says of a change: of the one that begins with the same trial, first.

    A method with other settings may have changed in the same night, and begins with other trials.
    """
    same = [one for one in told if _is_same(row, one)]
    own = [one for one in same if one["after_execution_id"] == row.after_execution_id]
    free = (one for one in same if (one["metric"], one["after_execution_id"]) not in begins)
    return own[0] if own else next(free, None)


def _is_same(row: ChangeRow, told: Mapping[str, Any]) -> bool:
    """Return True for the same change; its alarm may have moved as results came or went."""
    names = ("method", "metric", "environment", "direction")
    return (
        all(told[name] == getattr(row, name) for name in names)
        and told["night"] <= row.alarm_night
        and row.night <= told["alarm_night"]
    )


def _with(row: ChangeRow, told: Mapping[str, Any]) -> ChangeRow:
    return replace(row, status=told["status"], confirmation=told["confirmation"])


def _changes(nights: Path, name: str) -> list[dict[str, Any]]:
    document = read_checked(nights / name, "report.json", _REPORT)
    return [] if document is None else list(document["changes"])


def searches(workspace: Path) -> list[Search]:
    """Return the bisections of a workspace that have found a commit, the newest first."""
    found = []
    folder = workspace / "bisect"
    for name in sorted(names_in(folder), reverse=True)[:_MOST_SEARCHES]:
        answer = read_checked(folder / name, "answer.json", _ANSWER)
        if answer is None or answer["status"] != "found" or answer["culprit"] is None:
            continue
        found.append(
            Search(
                method=answer["method"],
                metric=answer["metric"],
                direction=answer["direction"] or "",
                culprit=answer["culprit"],
                ratio=answer["ratio"],
                low=answer["low"],
                high=answer["high"],
                revisions=revisions_of(folder / name, answer["culprit"]["repository"]),
            )
        )
    return found


def revisions_of(folder: Path, repository: str | None = None) -> list[str]:
    """Return the revisions of a search: the first line of its log.

    Where several repositories moved, those of the one, in its order, or of all.
    """
    try:
        with Folder(folder) as held:
            first = held.read("search.jsonl", LARGEST_BYTES).partition(b"\n")[0]
        document = schema.checked(_BEGIN, json.loads(first), "search.jsonl", [])
    except (OSError, ValueError, RecursionError):  # Refused and Wrong are ValueErrors
        return []
    several = document["repositories"]
    if repository in several:
        return list(several[repository])
    return [one for own in several.values() for one in own] or list(document["revisions"])


def culprit_of(row: ChangeRow, found: Iterable[Search]) -> Search | None:
    """Return the search that explains a change: of its figure, and over its commits."""
    for one in found:
        if (one.method, one.metric, one.direction) != (row.method, row.metric, row.direction):
            continue
        places = {revision: at for at, revision in enumerate(one.revisions)}
        before = [places[c] for c in row.commits_before.values() if c in places]
        after = [places[c] for c in row.commits_after.values() if c in places]
        culprit = places.get(one.culprit["name"])
        if culprit is None or not (before or after):
            continue
        if all(at < culprit for at in before) and all(at >= culprit for at in after):
            return one
    return None
