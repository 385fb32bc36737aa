"""The content of the served page: that of a report, made of the newest trials of each method.

All of a method - its further metrics, its newest trial in detail, its pairs - is made when it is
opened, since that needs summaries and logs to be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from perfrun import __version__
from perfrun.compare.differences import differences
from perfrun.errors import UsageError
from perfrun.page.change_list import MOST_CHANGES, Found, found_changes
from perfrun.page.content import Asked, page_of
from perfrun.page.document import document_of
from perfrun.page.history import MethodKey, RunKey, key_of_record, trials_of
from perfrun.page.material import Material, selection_of, series_of_records, urls_of
from perfrun.serve.questions import (
    MOST_SUBJECTS,
    Index,
    Newest,
    Total,
    newest_of,
    newest_trials,
    span,
    totals,
    whereabouts,
)
from perfrun.serve.refused import missing
from perfrun.store.ancestry import by_ancestry
from perfrun.store.garbage_collection import no_collection
from perfrun.store.query import Series
from perfrun.store.reading import read_trials, read_urls
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.text import redacted

NIGHTS = 365  # before the newest trial, as in a report
_DAY_S = 86400.0
_ID_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The page without the details of its methods, and what these are made with."""

    document: Mapping[str, Any]
    keys: Mapping[str, MethodKey]  # of the methods, by the id in their address
    since: float
    newest: float | None
    found: Found
    searched: frozenset[tuple[MethodKey, str]]  # methods and metrics, for changes
    begins: Mapping[RunKey, float]


@no_collection()
def overview(index: Index, workspace: Path, title: str) -> Overview:
    """Return the page. Raises StoreError."""
    with index.asked() as connection:
        begun = span(connection)
        since = max(0.0, begun[1] - NIGHTS * _DAY_S) if begun else 0.0
        totalled = totals(connection, since)
        shown = sorted(totalled, key=lambda one: -one.last)[:MOST_SUBJECTS]
        newest = newest_of(connection, shown, since)
        urls = read_urls(connection)
        material = Material(
            workspace=workspace,
            selection=selection_of(index.address.shown, since, begun[0] if begun else since),
            trials=newest.trials,
            series=by_ancestry(newest.series, urls, {}, index.root),
            tallies=[tally for one in totalled for tally in one.tallies],
            urls=urls,
            clones={},
        )
        found = _explained(found_changes(material, since), material.series, connection, index)
    page = page_of(material, Asked(title=title, since=since, found=found, has_pairs=False))
    page = replace(page, left_out=(*page.left_out, *_left_out(totalled, shown, newest)))
    document = document_of(page, __version__)
    keys = sorted({key_of_record(one) for one in newest.trials})  # as the page has them
    for one, key in zip(document["methods"], keys, strict=True):
        one["href"] = f"/api/page/{method_id(key)}"
    return Overview(
        document=redacted(document),
        keys={method_id(key): key for key in keys},
        since=since,
        newest=page.newest,
        found=found,
        searched=frozenset((_key_of(one), one.key.metric) for one in material.series),
        begins=trials_of(newest.trials, {}).begins,
    )


def method_id(key: MethodKey) -> str:
    """Return the id of a row of the page, which is the same in every index that has it."""
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:_ID_DIGITS]


def _key_of(series: Series) -> MethodKey:
    own = series.key
    return MethodKey(own.method, own.environment, own.hardware, own.settings)


def _explained(
    found: Found, series: Sequence[Series], connection: Connection, index: Index
) -> Found:
    """Add to the changes what else differs between the trials before and after them."""
    rows = found.rows[:MOST_CHANGES]
    named = {name for row in rows for name in (row.before_execution_id, row.after_execution_id)}
    begun = {
        row.execution_id: row.timestamp
        for origins in {id(one.origins): one.origins for one in series}.values()
        for row in origins.rows
        if row.execution_id in named
    }
    places = whereabouts(connection, index, begun)
    explained = [
        replace(
            row,
            evidence=frozenset(),  # which is for the pairs of `detect --confirm`
            environment_differences=_differences(
                places.get(row.before_execution_id), places.get(row.after_execution_id)
            ),
        )
        for row in rows
    ]
    return replace(found, rows=tuple(explained))


def _differences(
    before: tuple[str, str] | None, after: tuple[str, str] | None
) -> tuple[str, ...] | None:
    """Return what differs between two trials, given uid and path; None where one is gone."""
    records = [_read(*one) if one else None for one in (before, after)]
    base, new = records
    if base is None or new is None:
        return None
    try:
        return tuple(one.text for one in differences([base], [new]))
    except UsageError:  # a damaged summary
        return None


def _read(uid: str, path: str) -> SummaryRecord | None:
    """Return a trial's summary: an index may name any file, so it must be that of this trial."""
    try:
        found = read_record(Path(path))
    except (OSError, ValueError):
        return None
    return found if found.uid == uid else None


def _left_out(found: Sequence[Total], shown: Sequence[Total], newest: Newest) -> list[str]:
    texts = []
    if len(found) > len(shown):
        left_out = len(found) - len(shown)
        texts.append(f"{left_out} of {len(found)} methods, with older trials, are left out")
    if any(one.trials > newest.most_trials for one in shown):
        texts.append(
            f"changes are searched in the newest {newest.most_trials} trials of each method"
        )
    if newest.left_out:
        texts.append(
            f"changes are searched in few metrics of so many methods; {newest.left_out} further "
            "ones are shown, and searched, where their method is opened"
        )
    return texts


@no_collection()
def method_page(index: Index, workspace: Path, whole: Overview, name: str) -> dict[str, Any]:
    """Return all of one method as a page of its own. Raises StoreError and Refused."""
    key = whole.keys.get(name)
    if key is None:
        raise missing("no such method")
    with index.asked() as connection:
        records = list(read_trials(connection, index.root, newest_trials(connection, key)))
        urls = urls_of(records)
        series = by_ancestry(series_of_records(records), urls, {}, index.root)
        material = Material(
            workspace=workspace,
            selection="",
            trials=records,
            series=series,
            urls=urls,
            clones={},
            begins=whole.begins,
        )
        further = [one for one in series if (key, one.key.metric) not in whole.searched]
        more = found_changes(replace(material, series=further), whole.since)
        more = _explained(more, further, connection, index)
    # A change does not name the settings of its method, so it is known by its trial.
    own = {(one.method, one.execution_id) for one in records}
    rows = [r for r in whole.found.rows if (r.method, r.after_execution_id) in own]
    asked = Asked(
        title=key.method,
        since=whole.since,
        newest=whole.newest,
        found=replace(
            whole.found,
            rows=(*rows, *more.rows),
            cuts=(*whole.found.cuts, *more.cuts),
        ),
        has_versus=False,
        has_fleet=False,
    )
    return dict(redacted(document_of(page_of(material, asked), __version__)))
