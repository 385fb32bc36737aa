"""The nodes whose results count for nothing: `<workspace>/quarantine.json`.

People say which nodes these are, so the file is no part of the index. Where histories and baselines
are read (`Store.series`, `perfrun.compare.selection`), results of these nodes are left out; no
result is removed.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.durable import make_folder, sync_names
from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.schema import Wrong
from perfrun.shown import say
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import Refused, parse_json, read_file

FILE = "quarantine.json"
MOST = 10_000  # periods of nodes
LONGEST_NAME = 255  # characters
LONGEST_REASON = 500
_VERSION = 1
_LARGEST_BYTES = 16 * 2**20
_NEVER = math.inf
_SHOWN = 8  # nodes in the line about them


@dataclass(frozen=True, kw_only=True)
class Period:
    """A time in which the results of a node do not count."""

    node: str  # its host name
    at: float  # when somebody said so; seconds since the epoch, as all of them
    because: str
    since: float | None = None  # None: all of its results
    until: float | None = None  # None: it has not been released

    @property
    def is_open(self) -> bool:
        """True until the node is released."""
        return self.until is None

    def holds(self, timestamp: float) -> bool:
        """Return True for a time within the period."""
        return (self.since or -_NEVER) <= timestamp < (_NEVER if self.is_open else self.until or 0)


@dataclass(frozen=True)
class Quarantine:
    """The periods of all nodes, oldest first."""

    periods: tuple[Period, ...] = ()

    @cached_property
    def _by_node(self) -> Mapping[str, list[Period]]:
        found: dict[str, list[Period]] = {}
        for one in self.periods:
            found.setdefault(one.node, []).append(one)
        return found

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have a period, open or not."""
        return tuple(self._by_node)

    def of(self, node: str) -> Period | None:
        """Return the open period of a node; None where it is in no quarantine."""
        return next((one for one in self._by_node.get(node, ()) if one.is_open), None)

    def leaves_out(self, node: str, timestamp: float) -> bool:
        """Return True for a result that does not count."""
        return any(one.holds(timestamp) for one in self._by_node.get(node, ()))


_FIELDS = {
    "node": schema.text(LONGEST_NAME),
    "at": schema.seconds,
    "because": schema.text(LONGEST_REASON),
    "since": schema.maybe(schema.seconds),
    "until": schema.maybe(schema.seconds),
}
_FILE = schema.table(
    {
        "version": schema.whole(1, _VERSION),
        "periods": schema.listed(schema.table(_FIELDS, needs=tuple(_FIELDS)), MOST),
    },
    needs=("version", "periods"),
)


def read(workspace: Path) -> Quarantine:
    """Return the quarantine of a workspace. Raises WorkspaceError for a file that is none of ours.

    Anything wrong in it refuses the whole file: a node that was left out of it would count again.
    """
    path = workspace / FILE
    notes: list[str] = []
    try:
        said = parse_json(read_file(path, _LARGEST_BYTES))
        document: dict[str, Any] = schema.checked(_FILE, said, FILE, notes)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return Quarantine()
        raise WorkspaceError(f"{path} cannot be read: {error.strerror or error}") from None
    except Refused as error:
        raise WorkspaceError(f"{path}: {error}; mend it, or move it away") from None
    except Wrong as error:
        raise WorkspaceError(f"{path} {error}; mend it, or move it away") from None
    if notes:
        raise WorkspaceError(f"{path} cannot be used: {notes[0]}; mend it, or move it away")
    return Quarantine(tuple(Period(**row) for row in document["periods"]))


def change(workspace: Path, changed: Callable[[Quarantine], Quarantine]) -> Quarantine:
    """Read the quarantine, change it and write it, one command at a time.

    Raises WorkspaceError, and what `changed` raises; then nothing is written.
    """
    with FileLock(workspace / ".locks" / "quarantine") as lock:
        lock.own(lambda: say(f"waiting for another perfrun to write {FILE}{lock.holder}"))
        before = read(workspace)
        after = changed(before)
        if after != before:
            _write(workspace / FILE, after)
        return after


def _write(path: Path, quarantine: Quarantine) -> None:
    if len(quarantine.periods) > MOST:
        raise WorkspaceError(f"{path}: {MOST:,} periods at most; --forget some nodes")
    document = {"version": _VERSION, "periods": [asdict(one) for one in quarantine.periods]}
    notes: list[str] = []
    try:
        schema.checked(_FILE, document, FILE, notes)
    except Wrong as error:
        notes = [str(error)]
    if notes:  # it would be refused by all that read it
        raise WorkspaceError(f"{path} is not written: {notes[0]}")
    try:
        for folder in make_folder(path.parent):
            sync_names(folder)
        write_whole(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be written: {error.strerror or error}") from None


def is_name(word: str) -> bool:
    """Return True for a text that can be the name of a node."""
    return 0 < len(word) <= LONGEST_NAME and word.isprintable() and " " not in word


def put_in(quarantine: Quarantine, fresh: Iterable[Period]) -> Quarantine:
    """Return the quarantine with these periods, which replace those of nodes that are in it."""
    by_node = {one.node: one for one in fresh}
    kept = tuple(one for one in quarantine.periods if not (one.is_open and one.node in by_node))
    return Quarantine((*kept, *by_node.values()))


def released(quarantine: Quarantine, nodes: Iterable[str], now: float) -> Quarantine:
    """Return the quarantine with these nodes released: what they measure from now on counts."""
    named = set(nodes)
    return Quarantine(
        tuple(
            replace(one, until=max(now, one.since or 0.0))
            if one.is_open and one.node in named
            else one
            for one in quarantine.periods
        )
    )


def forgotten(quarantine: Quarantine, nodes: Iterable[str]) -> Quarantine:
    """Return the quarantine without these nodes: all of their results count again."""
    named = set(nodes)
    return Quarantine(tuple(one for one in quarantine.periods if one.node not in named))


def said(left_out: Mapping[str, int]) -> str:
    """Return the line about nodes whose results were left out; '' without any."""
    if not left_out:
        return ""
    shown = ", ".join(f"{node} ({count:,})" for node, count in sorted(left_out.items())[:_SHOWN])
    more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return f"results of nodes in quarantine are left out: {shown}{more}; `perfrun nodes` says why"
