"""The results that are served: the page, made again when the index has changed, and documents."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perfrun.changes.beginnings import beginnings
from perfrun.changes.cuts import cuts_of_series
from perfrun.changes.history import history_document
from perfrun.page.render import render
from perfrun.serve.journals import FollowedRun
from perfrun.serve.overview import Overview, method_page, overview
from perfrun.serve.questions import (
    Index,
    Place,
    Selection,
    Total,
    find_series,
    known_metrics,
    page_of_trials,
    series_id,
    summaries_of,
    totals,
)
from perfrun.serve.refused import missing
from perfrun.store.index import open_store
from perfrun.summary.metrics import direction_of, unit_of
from perfrun.summary.record import BadSummary, parse_record, read_content
from perfrun.text import redacted
from perfrun.untrusted import Refused, parse_json, read_file

MOST_LISTED = 1000  # methods or trials in one answer
MOST_POINTS = 10_000
_MOST_OPENED = 16  # methods whose pages are kept
_UP_TO_DATE_S = 60.0  # between two looks for summaries that no run has added
_SHARE = 20  # and at most so much of one core for them: 5 %
_LARGEST_REPORT = 2**26
_LARGEST_JOURNAL_LOOKS = 1024  # of a MiB each
_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,199}")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A document as it is sent."""

    data: bytes  # JSON
    etag: str


@dataclass(frozen=True, kw_only=True)
class Page:
    """The page as it was when the index had this stamp."""

    stamp: str
    answer: Answer
    html: bytes
    overview: Overview


class Results:
    """The results of one index; its methods may be called in several threads."""

    def __init__(self, index: Index, workspace: Path, title: str) -> None:
        self._index, self._workspace, self._title = index, workspace, title
        self._page: Page | None = None
        self._opened: OrderedDict[tuple[str, str], Answer] = OrderedDict()  # by stamp and method
        self._making = threading.Lock()
        self._refreshing = threading.Lock()
        self._refreshed_at_s, self._refreshed_in_s = time.monotonic(), 0.0
        self._folder_state = self._output_state()
        self.made_in_s = 0.0

    def stamp(self) -> str:
        """Return a text that is another one when there are new results. Raises StoreError."""
        return self._index.stamp()

    def page(self) -> Page:
        """Return the page, made again if the index has changed. Raises StoreError."""
        with self._making:
            stamp = self.stamp()  # who has waited for another page may need none
            if self._page is None or self._page.stamp != stamp:
                begin_s = time.thread_time()
                self._page = None  # its memory is needed for the next one
                made = overview(self._index, self._workspace, self._title)
                self._page = Page(
                    stamp=stamp,
                    answer=_answer(made.document),
                    html=render(made.document, live=True).encode("utf-8", "replace"),
                    overview=made,
                )
                self._opened.clear()
                self.made_in_s = time.thread_time() - begin_s
            return self._page

    def method(self, name: str) -> Answer:
        """Return all of a method of the page. Raises StoreError and Refused."""
        page = self.page()
        with self._making:  # one at a time, since each reads files
            known = self._opened.get((page.stamp, name))
            if known is None:
                known = _answer(method_page(self._index, self._workspace, page.overview, name))
                self._opened[page.stamp, name] = known
                if len(self._opened) > _MOST_OPENED:
                    self._opened.popitem(last=False)
        return known

    def bring_up_to_date(self, *, is_running: bool) -> None:
        """Read new summaries into the workspace's own index. Raises StoreError.

        A run adds its own. Others are looked for when the folder has changed, once a minute at
        most, and not beside a run that measures.
        """
        state = self._output_state()
        due_s = self._refreshed_at_s + max(_UP_TO_DATE_S, _SHARE * self._refreshed_in_s)
        if is_running or state == self._folder_state or time.monotonic() < due_s:
            return
        with self._refreshing, self._index.asked():  # which fails where the index is gone
            begin_s = time.thread_time()
            with open_store(self._index.address) as store:
                store.refresh()
            self._refreshed_at_s = time.monotonic()
            self._refreshed_in_s = time.thread_time() - begin_s
            self._folder_state = state

    def _output_state(self) -> int:
        if self._index.root is None:
            return 0
        try:
            return os.stat(self._index.root / "output").st_mtime_ns  # noqa: PTH116
        except OSError:
            return 0

    def methods(self, pattern: str, most: int, after: str) -> dict[str, Any]:
        """Return the document of the methods. Raises StoreError."""
        with self._index.asked() as connection:
            found = [
                one
                for one in totals(connection)
                if not pattern or fnmatchcase(one.subject.method, pattern)
            ]
            begin = next((at for at, one in enumerate(found, 1) if one.subject.digest == after), 0)
            if after and not begin:
                raise missing("no page begins there")
            shown = found[begin : begin + most]
            rows = [
                {
                    **_subject(one),
                    "trials": one.trials,
                    "failed": one.failed,
                    "last": one.last,
                    "series": [
                        {
                            "id": series_id(one.subject.digest, metric.name),
                            "metric": metric.name,
                            "unit": unit_of(metric.name, metric.unit) or None,
                            "direction": direction_of(metric.name, metric.direction),
                            "derived_from": metric.derived_from or None,
                        }
                        for metric in known_metrics(connection, one.subject.id)
                    ],
                }
                for one in shown
            ]
        is_last = begin + most >= len(found)
        return {"methods": rows, "next": None if is_last else shown[-1].subject.digest}

    def series(self, wanted: str, most: int, before: float | None) -> dict[str, Any]:
        """Return the document of `perfrun history` with one series. Raises StoreError."""
        with self._index.asked() as connection:
            chosen, same = find_series(connection, self._index, wanted, most, before)
        if chosen is None:
            raise missing("no such series")
        document = history_document(same, beginnings(same), cuts_of_series(same))
        own = document["series"][next(at for at, one in enumerate(same) if one is chosen)]
        return {"series": [own]}

    def trials(self, selection: Selection, most: int, after: Place | None) -> dict[str, Any]:
        """Return a page of trials, as `perfrun show` lists them. Raises StoreError."""
        with self._index.asked() as connection:
            found, place = page_of_trials(connection, self._index, selection, most, after)
        rows = [
            {
                "uid": row.uid,
                "execution_id": row.execution_id,
                "run_id": row.run_id,
                "method": method,
                "trial_id": row.trial_id,
                "timestamp": row.timestamp,
                "outcome": row.status,
                "grade": row.grade,
                "summary": path or None,
            }
            for row, method, path in found
        ]
        return {"trials": rows, "next": f"{place.timestamp!r}_{place.number}" if place else None}

    def summary(self, uid: str) -> Any:
        """Return a trial's summary from its file. Raises StoreError and Refused.

        An index may name any file: only one that is the summary of this very trial is shown.
        """
        with self._index.asked() as connection:
            paths = summaries_of(connection, self._index, uid)
        if not paths:
            raise missing("no such trial")
        why = "its summary is gone"
        for path in paths:
            try:
                content = read_content(Path(path))
                if parse_record(content, Path(path)).uid == uid:
                    return _strict(parse_json(content))
            except BadSummary as error:
                why = f"its summary {error}"
            except Refused as error:
                why = f"its summary cannot be used: {error}"
            except (OSError, ValueError):
                continue
        raise missing(why)

    def run(self, run_id: str) -> dict[str, Any]:
        """Return the state, the report and the newest trials of a run. Raises StoreError."""
        state, report = self._journal(run_id)
        found = self.trials(Selection(run_id=run_id), MOST_LISTED, None)["trials"]
        if state is None and not found:
            raise missing("no such run")
        return {"run_id": run_id, "state": state, "report": report, "trials": found}

    def _journal(self, run_id: str) -> tuple[dict[str, Any] | None, Any]:
        if not _RUN_ID.fullmatch(run_id):
            return None, None
        run = FollowedRun(path=self._workspace / "runs" / f"{run_id}.jsonl")
        for _ in range(_LARGEST_JOURNAL_LOOKS):
            before = run.offset
            list(run.read())
            if run.offset == before:
                break
        if not run.offset:
            return None, None
        try:
            content = read_file(run.path.with_suffix(".report.json"), _LARGEST_REPORT)
            return run.document(), _strict(parse_json(content))
        except (OSError, Refused):
            return run.document(), None


def _answer(document: Mapping[str, Any]) -> Answer:
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
    return Answer(data=data, etag=f'"{hashlib.sha256(data).hexdigest()[:32]}"')


def _subject(one: Total) -> Mapping[str, str]:
    names = ("method", "environment", "hardware", "driver", "source", "settings")
    return {name: getattr(one.subject, name) for name in names}


def _strict(value: Any) -> Any:
    """Return a document without NaN and infinities, which JSON does not have, as texts."""
    if isinstance(value, dict):
        return {name: _strict(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_strict(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def encoded(document: Any) -> bytes:
    """Return a document as JSON of ASCII, without secrets."""
    return json.dumps(redacted(document), allow_nan=False).encode("ascii") + b"\n"
