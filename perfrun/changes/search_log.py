"""The log of a search, written event by event: `<workspace>/bisect/<id>/search.jsonl`.

The first line says what is searched; each further line is an event. These lines alone determine
the next pair, so a killed search continues from them. A line that a crash cut off is ignored, and
so is one with a wrong value.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.errors import PerfrunError, UsageError
from perfrun.locks import FileLock
from perfrun.run.journal import (
    Fields,
    are_texts,
    begun_at,
    is_amount,
    is_count,
    is_event,
    is_seed,
    is_text,
)
from perfrun.untrusted import Refused, read_file

LOG_NAME = "search.jsonl"
LOCK_NAME = "lock"
_SCHEMA = 1
_LARGEST_BYTES = 2**28  # of a log; that of a hundred thousand pairs has a tenth of it


@dataclass(frozen=True, kw_only=True)
class MeasuredPair:
    """A pair of trials, each with a value of the metric."""

    a: int
    b: int
    values: tuple[float, float]
    summaries: tuple[str, str]


@dataclass
class SearchLog:
    """The log file and its content."""

    path: Path
    seed: int
    pairs: list[MeasuredPair] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)  # revision -> why it does not run
    trials: int = 0  # that were run, failed ones included
    spent_s: float = 0.0  # by all of these trials, and to make their environments
    lost: dict[int, tuple[int, float]] = field(default_factory=dict)  # trials, s: by revision

    @property
    def folder(self) -> Path:
        """The folder of the search."""
        return self.path.parent

    def pair(self, found: MeasuredPair, seconds: float = 0.0) -> None:
        """Record a pair of which both trials gave a value."""
        self.pairs.append(found)
        self.trials += 2
        self.spent_s += seconds
        event = {"a": found.a, "b": found.b, "values": found.values, "summaries": found.summaries}
        self._append({"event": "pair", **event, "seconds": seconds})

    def failed(self, trials: int, seconds: float = 0.0, revision: int | None = None) -> None:
        """Record trials that do not make a pair, because of a revision."""
        self._lose(trials, seconds, revision)
        event = {"event": "failed", "trials": trials, "seconds": seconds}
        self._append(event if revision is None else {**event, "revision": revision})

    def _lose(self, trials: int, seconds: float, revision: int | None) -> None:
        self.trials += trials
        self.spent_s += seconds
        if revision is not None:
            before = self.lost.get(revision, (0, 0.0))
            self.lost[revision] = (before[0] + trials, before[1] + seconds)

    def skip(self, revision: int, why: str) -> None:
        """Record that a revision does not run."""
        self.broken[revision] = why
        self._append({"event": "broken", "revision": revision, "why": why})

    def end(self, status: str) -> None:
        """Record the end of the search."""
        self._append({"event": "end", "status": status})

    def _append(self, event: Mapping[str, Any]) -> None:
        try:
            self._write(event)
        except OSError as error:
            raise PerfrunError(
                f"{self.path} cannot be written: {error.strerror}; --resume goes on from before"
            ) from None

    def _write(self, event: Mapping[str, Any]) -> None:
        with self.path.open("ab+") as file:
            # A line that was cut off is ended first; otherwise this one would be lost with it.
            if file.tell():
                file.seek(-1, os.SEEK_END)
            before = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(before + json.dumps(event).encode() + b"\n")


def begin_search(
    searches: Path,
    fingerprint: str,
    revisions: Sequence[str],
    seed: int,
    repositories: Mapping[str, Sequence[str]] | None = None,
) -> SearchLog:
    """Start a new search. Raises UsageError when the workspace cannot be written.

    `repositories` has the commits of each, in its own order, where several moved together.
    """
    folder = searches / f"{datetime.now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
    log = SearchLog(path=folder / LOG_NAME, seed=seed)
    first: dict[str, Any] = {"schema": _SCHEMA, "fingerprint": fingerprint, "seed": seed}
    first["revisions"] = list(revisions)
    if repositories:
        first["repositories"] = {name: list(own) for name, own in repositories.items()}
    try:
        folder.mkdir(parents=True)
        log._write({"event": "begin", "begun": time.time(), **first})
    except OSError as error:
        raise UsageError(f"--workspace: {error.filename}: {error.strerror}") from None
    return log


def unfinished_search(
    searches: Path, fingerprint: str, *, ended_too: bool = False
) -> SearchLog | None:
    """Return the newest search with that fingerprint, unless it has an answer.

    A search that ended undecided can continue, too, perhaps with more pairs allowed; one with an
    answer gives it again without a pair, where it may be one that has ended, too.
    """
    found = []
    for path in searches.glob(f"*/{LOG_NAME}"):
        events = []
        with contextlib.suppress(OSError):
            events = _events(path)
        first = events[0] if events and events[0]["event"] == "begin" else {}
        if first.get("fingerprint") == fingerprint:
            begun = begun_at(path.parent.name, first, partial(_begun_by, path))
            found.append((begun, path, events))
    if not found:
        return None
    _, path, events = max(found, key=lambda one: one[:2])
    return None if has_ended(path) and not ended_too else _read(path, events)


def _begun_by(path: Path) -> float:
    """Return a time at which the search had begun: its lock is made next and never written."""
    files = [path, path.with_name(LOCK_NAME)]
    return min(file.stat().st_mtime for file in files if file.exists())


def has_ended(path: Path) -> bool:
    """Return True when a search has an answer; an undecided search can continue."""
    try:
        events = _events(path)
    except OSError:
        return False
    return bool(events) and events[-1]["event"] == "end" and events[-1]["status"] != "undecided"


def search_lock(log: SearchLog) -> FileLock:
    """Return the lock of a search, to be entered and owned."""
    return FileLock(log.folder / LOCK_NAME)


def _content(path: Path) -> bytes:
    """Read a log. Raises OSError, also for what is no file of a log's size."""
    try:
        return read_file(path, _LARGEST_BYTES)
    except Refused as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None


def _events(path: Path) -> list[dict[str, Any]]:
    events = []
    for line in _content(path).split(b"\n"):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if is_event(event, _FIELDS):
            events.append(event)
    return events


_REVISIONS = {"pair": ("a", "b"), "broken": ("revision",), "failed": ("revision",)}


def _is_revision(value: object) -> bool:
    return value is None or is_count(value)  # an older perfrun did not write it


def _are_two_values(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_value, value))


def _is_value(value: object) -> bool:
    return type(value) in (int, float) and 0 < value < 1e300  # type: ignore[operator]


def _are_two_texts(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_text, value))


_FIELDS: Mapping[str, Fields] = {
    "begin": {"begun": is_amount, "fingerprint": is_text, "seed": is_seed, "revisions": are_texts},
    "pair": {
        "a": is_count,
        "b": is_count,
        "values": _are_two_values,
        "summaries": _are_two_texts,
        "seconds": is_amount,
    },
    "failed": {"trials": is_count, "seconds": is_amount, "revision": _is_revision},
    "broken": {"revision": is_count, "why": is_text},
    "end": {"status": is_text},
}


def _read(path: Path, events: Sequence[Mapping[str, Any]]) -> SearchLog:
    log = SearchLog(path=path, seed=events[0]["seed"])
    revisions = len(events[0].get("revisions") or ())
    for event in events:
        if event["event"] not in _FIELDS:
            continue  # of a later perfrun; nothing in it was checked
        if any((event.get(name) or 0) >= revisions for name in _REVISIONS.get(event["event"], ())):
            continue
        seconds = event.get("seconds") or 0.0
        if event["event"] == "pair":
            log.spent_s += seconds
            values, summaries = event["values"], event["summaries"]
            log.pairs.append(
                MeasuredPair(
                    a=event["a"],
                    b=event["b"],
                    values=(values[0], values[1]),
                    summaries=(summaries[0], summaries[1]),
                )
            )
            log.trials += 2
        elif event["event"] == "failed":
            log._lose(event["trials"], seconds, event.get("revision"))
        elif event["event"] == "broken":
            log.broken[event["revision"]] = event["why"]
    return log
