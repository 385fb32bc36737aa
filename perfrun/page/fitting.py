"""Make a page small enough to be sent: what tells least is left out, and the page says what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from perfrun.page.document import Page, document_of, without_series

Document = dict[str, Any]
_FEW_ROWS = 20
MOST_BYTES = 1_000_000  # of the page, with its script and style


def fitted(page: Page, most_bytes: int, version: str) -> tuple[Page, Document]:
    """Return the page with at most so many bytes of data, and its document."""
    document = document_of(page, version)
    for step in (_derived, _fleet, _intervals, _others, _few_details, _commits, _all_intervals):
        over = size_of(document) - most_bytes
        if over <= 0:
            break
        smaller, what = step(page, document, over)
        if what:
            page = replace(smaller, left_out=(*page.left_out, what))
            document = document_of(page, version)
    return page, document


def size_of(document: Any) -> int:
    """Return the size of a document as it stands in the page, where some characters are escaped."""
    text = json.dumps(document, separators=(",", ":"))
    return len(text) + 5 * sum(text.count(character) for character in "<>&")


def _least(page: Page) -> Iterator[int]:
    """Yield the series that tell least first, never those that stand for a method or changed."""
    needed = {one.main for one in page.methods} | {one.series for one in page.changes}
    places = {at: place for one in page.methods for place, at in enumerate(one.series)}
    rank = sorted(
        (at for at in range(len(page.series)) if at not in needed),
        key=lambda at: (page.series[at].derived, places.get(at, 0)),
        reverse=True,
    )
    yield from rank


def _derived(page: Page, document: Document, over: int) -> tuple[Page, str]:
    gone = _enough(document, [at for at in _least(page) if page.series[at].derived], over)
    return without_series(page, gone), _many(len(gone), "history", "histories", "derived metrics")


def _fleet(page: Page, _document: Document, _over: int) -> tuple[Page, str]:
    """Leave the first rows of each table of a submission."""
    gone = 0
    fleet = []
    for one in page.fleet:
        gone += sum(max(0, len(table["rows"]) - _FEW_ROWS) for table in one["tables"])
        tables = [{**table, "rows": table["rows"][:_FEW_ROWS]} for table in one["tables"]]
        fleet.append({**one, "tables": tables})
    return replace(page, fleet=tuple(fleet)), _many(gone, "row", "rows", "submissions")


def _others(page: Page, document: Document, over: int) -> tuple[Page, str]:
    gone = _enough(document, list(_least(page)), over)
    return without_series(page, gone), _many(len(gone), "history", "histories", "further metrics")


def _enough(document: Document, candidates: list[int], over: int) -> list[int]:
    """Return as many of the series as take what is too much."""
    gone: list[int] = []
    saved = 0
    for at in candidates:
        if saved >= over:
            break
        saved += size_of(document["series"][at]) + 1
        gone.append(at)
    return gone


def _many(count: int, one: str, several: str, of: str) -> str:
    return f"{count} {one if count == 1 else several} of {of}" if count else ""


def _intervals(page: Page, _document: Document, _over: int) -> tuple[Page, str]:
    main = {one.main for one in page.methods} | {one.series for one in page.changes}
    gone = [at for at, one in enumerate(page.series) if one.low is not None and at not in main]
    series = tuple(
        replace(one, low=None, high=None) if at in set(gone) else one
        for at, one in enumerate(page.series)
    )
    return replace(page, series=series), _many(
        len(gone), "interval", "intervals", "further metrics"
    )


def _few_details(page: Page, _document: Document, _over: int) -> tuple[Page, str]:
    """Keep samples and timelines of the methods that changed or failed only."""
    told = {one.method for one in page.changes if one.direction == "worse"}
    told |= {at for at, one in enumerate(page.methods) if one.failed}
    gone = [one for one in page.details if one.method not in told]
    small = tuple(
        one
        if one.method in told
        else replace(one, samples=None, warmup=None, timeline=(), steady_from=None)
        for one in page.details
    )
    return replace(
        page, details=small
    ), f"samples and timelines of {len(gone)} methods" if gone else ""


def _commits(page: Page, _document: Document, _over: int) -> tuple[Page, str]:
    if not any(one.subject for one in page.commits):
        return page, ""
    return replace(
        page, commits=tuple(replace(one, subject="") for one in page.commits)
    ), "subjects of commits"


def _all_intervals(page: Page, _document: Document, _over: int) -> tuple[Page, str]:
    """Leave out all intervals: what remains are the histories that stand for their methods."""
    if not any(one.low for one in page.series):
        return page, ""
    series = tuple(replace(one, low=None, high=None) for one in page.series)
    return replace(page, series=series), "all intervals"
