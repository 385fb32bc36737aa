"""The file of a workspace's incidents: `<workspace>/incidents.json`.

It is no part of the index: what people have said of an incident is nowhere else. It is read again,
changed and written whole while its lock is held, so that of two commands neither loses the other's
words.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.durable import make_folder, sync_names
from perfrun.errors import WorkspaceError
from perfrun.incidents.incident import (
    Bisection,
    Commits,
    Culprit,
    Decision,
    Drifting,
    Explanation,
    Incident,
    Ledger,
    Returned,
    Worsening,
)
from perfrun.locks import FileLock
from perfrun.schema import Wrong
from perfrun.shown import say
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import Refused, parse_json, read_file

FILE = "incidents.json"
MOST_INCIDENTS = 10_000  # when there are more, the oldest closed ones are forgotten
MOST_CHANGES = 10_000  # of an incident
MOST_ROWS = 20  # of an explanation
_VERSION = 1
_LARGEST_BYTES = 64 * 2**20
_COMMIT = 100  # characters
_NAME = 10_000  # of what identifies a series
_LEAST, _MOST = 1e-300, 1e300  # of a figure
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_NAMES = ("method", "metric", "environment", "hardware", "settings", "series")
_FIGURES = ("ratio", "low", "high", "level")

_text = schema.text()
_day = schema.matching(_DAY, "a date")
_positive = schema.number(_LEAST, _MOST)
_commits = schema.mapped(schema.listed(schema.text(_COMMIT), 2), 1000)
_RETURNED = schema.table(
    {"night": _day, "alarm_night": _day, "commits": _commits},
    needs=("night", "alarm_night", "commits"),
)
_CHANGE_FIELDS = {
    **dict.fromkeys(_NAMES, schema.text(_NAME)),
    **dict.fromkeys(_FIGURES, _positive),
    "night": _day,
    "alarm_night": _day,
    "status": schema.one_of("candidate", "confirmed", "not_reproduced"),
    "is_machine": schema.flag,
    "before_execution_id": _text,
    "after_execution_id": _text,
    "commits": _commits,
    "differences": schema.maybe(schema.listed(schema.text(), 10_000)),
}
_DRIFT = schema.table(
    {"begin": _day, "end": _day, "ratio": _positive}, needs=("begin", "end", "ratio")
)
_CHANGE = schema.table(
    {**_CHANGE_FIELDS, "returned": schema.maybe(_RETURNED), "drift": schema.maybe(_DRIFT)},
    needs=tuple(_CHANGE_FIELDS),
    absent={"returned": None, "drift": None},
)
_CULPRIT = schema.table(
    dict.fromkeys(("name", "author", "subject", "repository"), _text),
    needs=("name", "author", "subject"),
    absent={"repository": ""},
)
_BISECTION = schema.table(
    {
        "state": schema.one_of("going_on", "found", "ended"),
        "why": _text,
        "previous": _text,
        "tries": schema.whole(),
        "trials": schema.whole(),
        "spent_s": schema.seconds,
    },
    needs=("state",),
    absent={"why": "", "previous": "", "tries": 1, "trials": 0, "spent_s": 0.0},
)
_EXPLANATION = schema.table(
    {
        "rows": schema.listed(_text, MOST_ROWS),
        "why": _text,
        "record": _text,
        "tries": schema.whole(),
    },
    absent={"rows": [], "why": "", "record": "", "tries": 1},
)
_DECISION = schema.table(
    {
        "what": schema.one_of("accepted", "reopened"),
        "at": schema.seconds,
        "day": _day,
        "reason": _text,
        "since": schema.matching(f"({_DAY})?", "a date"),
    },
    needs=("what", "at", "day", "reason"),
    absent={"since": ""},
)
_INCIDENT = schema.table(
    {
        "id": schema.whole(1),
        "changes": schema.listed(_CHANGE, MOST_CHANGES),
        "owner": _text,
        "culprit": schema.maybe(_CULPRIT),
        "is_bisecting": schema.flag,
        "decision": schema.maybe(_DECISION),
        "is_fixed": schema.flag,
        "told": schema.whole(),
        "has_told_end": schema.flag,
        "has_told_culprit": schema.flag,
        "bisection": schema.maybe(_BISECTION),
        "explanation": schema.maybe(_EXPLANATION),
    },
    needs=("id", "changes"),
)
_FILE = schema.table(
    {
        "version": schema.whole(1, _VERSION),
        "next": schema.whole(1),
        "canaries": schema.listed(_text, 10_000),
        "owners": schema.mapped(_text, 100_000),
        "incidents": schema.listed(_INCIDENT, MOST_INCIDENTS),
    },
    needs=("version", "next", "incidents"),
    absent={"canaries": [], "owners": {}},
)


def read(workspace: Path) -> Ledger:
    """Return the incidents of a workspace. Raises WorkspaceError for a file that is none of ours.

    Anything wrong in it refuses the whole file: what was left out would be lost at the next write.
    """
    path = workspace / FILE
    try:
        return _checked(read_file(path, _LARGEST_BYTES))
    except _Unfit as error:
        raise WorkspaceError(f"{path} cannot be used: {error}; mend it, or move it away") from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return Ledger()
        why = error.strerror or str(error)
        raise WorkspaceError(f"{path} cannot be read: {why}") from None
    except Refused as error:
        raise WorkspaceError(f"{path}: {error}; mend it, or move it away") from None
    except Wrong as error:
        raise WorkspaceError(f"{path} {error}; mend it, or move it away") from None


class _Unfit(Exception):  # noqa: N818 - it is an answer, not a mistake of ours
    """A document with a field that would be left out or cut; the text says which."""


def _checked(data: bytes) -> Ledger:
    """Return the incidents of a file's bytes. Raises Refused, Wrong and _Unfit."""
    notes: list[str] = []
    document: dict[str, Any] = schema.checked(_FILE, parse_json(data), FILE, notes)
    if notes:
        raise _Unfit(notes[0])
    return _ledger(document)


def change(workspace: Path, changed: Callable[[Ledger], Ledger]) -> Ledger:
    """Read the incidents, change them and write them, one command at a time.

    Raises WorkspaceError, and what `changed` raises; then nothing is written.
    """
    with FileLock(workspace / ".locks" / "incidents") as lock:
        lock.own(lambda: say(f"waiting for another perfrun to write {FILE}{lock.holder}"))
        before = read(workspace)
        after = _fitting(_bounded(changed(before)))
        if after != before:
            _write(workspace, after)
        return after


def _write(workspace: Path, ledger: Ledger) -> None:
    """Write the file, unless `read` would refuse it: that would end every later command."""
    path = workspace / FILE
    text = json.dumps({"version": _VERSION, **asdict(ledger)}, indent=1) + "\n"
    try:
        if len(text) > _LARGEST_BYTES:  # it is ASCII
            raise _Unfit(f"it would have {len(text)} bytes")
        _checked(text.encode())
    except (Refused, Wrong, _Unfit) as error:
        raise WorkspaceError(
            f"{path} is left as it was: it would not be read again: {error}"
        ) from None
    try:
        for folder in make_folder(path.parent):
            sync_names(folder)
        write_whole(path, text)
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be written: {error.strerror or error}") from None


def _bounded(ledger: Ledger) -> Ledger:
    """Forget the oldest closed incidents beyond the limit, and changes beyond that of one."""
    left = len(ledger.incidents) - MOST_INCIDENTS
    gone = {one.id for one in [i for i in ledger.incidents if not i.is_open][: max(0, left)]}
    kept = tuple(
        one
        if len(one.changes) <= MOST_CHANGES
        else replace(one, changes=one.changes[:MOST_CHANGES])
        for one in ledger.incidents
        if one.id not in gone
    )
    return ledger if kept == ledger.incidents else replace(ledger, incidents=kept)


def _fitting(ledger: Ledger) -> Ledger:
    """Cut the texts and figures from outside to what the file takes."""
    incidents = []
    for one in ledger.incidents:
        culprit = one.culprit
        if culprit is not None:
            culprit = Culprit(**{name: _cut(text) for name, text in asdict(culprit).items()})
        bisection, explanation = one.bisection, one.explanation
        if bisection is not None:
            why, previous = _cut(bisection.why), _cut(bisection.previous)
            bisection = replace(bisection, why=why, previous=previous)
        if explanation is not None:
            rows = tuple(map(_cut, explanation.rows[:MOST_ROWS]))
            why, record = _cut(explanation.why), _cut(explanation.record)
            explanation = replace(explanation, rows=rows, why=why, record=record)
        incidents.append(
            replace(
                one,
                changes=tuple(map(_fitting_change, one.changes)),
                owner=_cut(one.owner),
                culprit=culprit,
                bisection=bisection,
                explanation=explanation,
            )
        )
    return replace(
        ledger,
        incidents=tuple(incidents),
        canaries=tuple(map(_cut, ledger.canaries)),
        owners={_cut(name): _cut(owner) for name, owner in ledger.owners.items()},
    )


def _fitting_change(own: Worsening) -> Worsening:
    returned, drift = own.returned, own.drift
    if returned is not None:
        returned = replace(returned, commits=_fitting_commits(returned.commits))
    return replace(
        own,
        **{name: getattr(own, name)[:_NAME] for name in _NAMES},
        **{name: min(max(getattr(own, name), _LEAST), _MOST) for name in _FIGURES},
        before_execution_id=_cut(own.before_execution_id),
        after_execution_id=_cut(own.after_execution_id),
        commits=_fitting_commits(own.commits),
        differences=None if own.differences is None else tuple(map(_cut, own.differences)),
        drift=drift and replace(drift, ratio=min(max(drift.ratio, _LEAST), _MOST)),
        returned=returned,
    )


def _fitting_commits(commits: Commits) -> Commits:
    return {_cut(name): tuple(text[:_COMMIT] for text in pair) for name, pair in commits.items()}


def _cut(text: str) -> str:
    return text[: schema.LONGEST_TEXT]


def _ledger(document: Mapping[str, Any]) -> Ledger:
    """Return the values of a checked document. Raises Wrong."""
    incidents = tuple(map(_incident, document["incidents"]))
    numbers = [one.id for one in incidents]
    if len({*numbers}) < len(numbers) or max(numbers, default=0) >= document["next"]:
        raise Wrong("has numbers of incidents twice, or beyond `next`")
    return Ledger(
        incidents=incidents,
        next=document["next"],
        canaries=tuple(document["canaries"]),
        owners=document["owners"],
    )


def _incident(row: Mapping[str, Any]) -> Incident:
    if not row["changes"]:
        raise Wrong(f"has incident {row['id']} without a change")
    culprit, decision = row.get("culprit"), row.get("decision")
    bisection, explanation = row.get("bisection"), row.get("explanation")
    return Incident(
        **{
            **row,
            "changes": tuple(map(_worsening, row["changes"])),
            "culprit": culprit and Culprit(**culprit),
            "decision": decision and Decision(**decision),
            "bisection": bisection and Bisection(**bisection),
            "explanation": explanation
            and Explanation(**{**explanation, "rows": tuple(explanation["rows"])}),
        }
    )


def _worsening(row: Mapping[str, Any]) -> Worsening:
    returned = row["returned"]
    for commits in (row["commits"], returned["commits"] if returned else {}):
        if any(len(pair) != 2 for pair in commits.values()):
            raise Wrong("has a checkout without its two commits")
    drift = row["drift"]
    for day in (
        row["night"],
        row["alarm_night"],
        *((drift["begin"], drift["end"]) if drift else ()),
    ):
        _checked_day(day)
    return Worsening(
        **{
            **row,
            "commits": _pairs(row["commits"]),
            "differences": None if row["differences"] is None else tuple(row["differences"]),
            "returned": returned
            and Returned(**{**returned, "commits": _pairs(returned["commits"])}),
            "drift": drift and Drifting(**drift),
        }
    )


def _pairs(commits: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(pair) for name, pair in commits.items()}


def _checked_day(day: str) -> None:
    from datetime import date

    try:
        date.fromisoformat(day)
    except ValueError:
        raise Wrong(f"has no such day as {re.sub('[^0-9-]', '', day)}") from None
