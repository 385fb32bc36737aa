"""`perfrun incidents`: the changes of a history that have one cause, and what became of them."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.changes.watched import NoResultsError
from perfrun.errors import UsageError
from perfrun.incidents import ledger as file
from perfrun.incidents.grouping import brought_up_to_date
from perfrun.incidents.incident import Decision, Incident, Ledger, incident_row
from perfrun.incidents.search import Found, search
from perfrun.incidents.words import markdown_list, one_text, text_of
from perfrun.options.parsers import CommandParser, nearest, parse_word, parse_workspace, shown
from perfrun.shown import write_json, write_prose
from perfrun.store.command import bring_up_to_date, opened

ACTIONS = ("list", "show", "accept", "reopen")
_FORMATS = ("text", "json", "markdown")
_LONGEST_REASON = 500  # characters
_EPILOG = """\
  perfrun incidents                  look for changes, and list open incidents
  perfrun incidents show ID          show one, with all of its changes
  perfrun incidents accept ID        the new level is right: it is not alarmed
                                     again
  perfrun incidents reopen ID        it is not over

An incident closes by itself when its levels return.

Exit status: 0 no incident is open (of show, accept and reopen: done), 1 one is, 2 wrong usage or no
results. All of it is in docs/guides/incidents.md.
"""


def parser() -> CommandParser:
    """Return the parser of `perfrun incidents`."""
    usage = "perfrun incidents [list | show ID | accept ID ... | reopen ID ...] [flags]"
    made = CommandParser("perfrun incidents", __doc__, _EPILOG, usage)
    made.add_argument("action", metavar="list|show|accept|reopen", nargs="?", help="what to do")
    made.add_argument("words", metavar="ID", nargs="*", help="numbers of incidents")
    made.switch("--all", "list closed incidents, too")
    made.flag("--reason", "TEXT", "with accept and reopen: why, for those who ask later")
    made.flag(
        "--canary",
        "METHOD",
        "a method whose code never changes, besides those of the suites (repeatable)",
        default=[],
        action="append",
    )
    made.add_clone()
    made.add_workspace()
    made.add_store()
    formats = partial(parse_word, words=_FORMATS)
    made.flag("--format", "|".join(_FORMATS), "what to print on stdout", formats, _FORMATS[0])
    return made


def incidents_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun incidents`: 1 when the list has an open one."""
    given = parser().parse_intermixed_args(list(argv))
    action = given.action or "list"
    if action not in ACTIONS:
        near = nearest(action, ("list", "show"))  # a word is never taken for a decision
        hint = f"did you mean {near}?" if near else f"say one of {', '.join(ACTIONS)}"
        raise UsageError(f"perfrun incidents: {shown(action)!r} is no action; {hint}")
    if given.reason and action not in ("accept", "reopen"):
        raise UsageError(f"perfrun incidents {action}: --reason goes with accept and reopen")
    if action == "list":
        if given.words:
            raise UsageError("perfrun incidents list: takes no number; `show ID` shows one")
        return _list(given)
    if not given.words:
        raise UsageError(f"perfrun incidents {action}: name an incident by its number")
    workspace = parse_workspace(given.workspace)
    numbers = [_number(word, action) for word in given.words]
    if action == "show":
        _print(_named(file.read(workspace), numbers, workspace), given)
        return 0
    decision = Decision(
        what="accepted" if action == "accept" else "reopened",
        at=time.time(),
        day=date.today().isoformat(),
        reason=" ".join((given.reason or "").split())[:_LONGEST_REASON],
    )
    after = file.change(workspace, partial(_decided, numbers, decision, workspace))
    _print(_named(after, numbers, workspace), given)
    return 0


def _list(given: argparse.Namespace) -> int:
    """Bring the incidents up to date with the index, and list them."""
    workspace = parse_workspace(given.workspace)
    known = file.read(workspace)  # what is wrong with it is said before the search
    notes: list[str] = []
    try:
        found = _searched(given, workspace, known)
    except NoResultsError:
        if not known.incidents:
            raise
        notes.append("The index has no results now: this is the list as it was.")
    else:
        if found.sightings or known.incidents:
            canaries = tuple(sorted({*known.canaries, *given.canary}))

            def changed(now: Ledger) -> Ledger:
                with_canaries = replace(now, canaries=canaries)
                return brought_up_to_date(with_canaries, found.sightings, found.improvements)

            known = file.change(workspace, changed)
        if not found.series:
            notes.append(f"No series could be judged: {found.short} have too few nights.")
    chosen = [one for one in known.incidents if one.is_open or given.all]
    closed = 0 if given.all else len(known.incidents) - len(chosen)
    if given.format == "json":
        write_json({"incidents": list(map(incident_row, chosen)), "closed": closed})
    elif given.format == "markdown":
        sys.stdout.write(markdown_list(chosen, closed))
    else:
        sys.stdout.write(text_of(chosen, notes, closed))
    return 1 if any(one.is_open for one in chosen) else 0


def _searched(given: argparse.Namespace, workspace: Path, known: Ledger) -> Found:
    with opened(given) as store:
        bring_up_to_date(store, given)
        return search(
            store,
            workspace,
            canaries=given.canary,
            known_canaries=known.canaries,
            clones=dict(given.clone),
        )


def _number(word: str, action: str) -> int:
    found = re.fullmatch(r"#?(\d{1,9})", word, re.ASCII)
    if found is None:
        raise UsageError(f"perfrun incidents {action}: {shown(word)!r} is no number of an incident")
    return int(found[1])


def _named(known: Ledger, numbers: Sequence[int], workspace: Path) -> list[Incident]:
    """Return these incidents. Raises UsageError."""
    found = {number: known.numbered(number) for number in numbers}
    for number, one in found.items():
        if one is None:
            raise UsageError(
                f"there is no incident {number} in {workspace}; "
                "`perfrun incidents --all` lists those there are"
            )
    return [one for one in found.values() if one is not None]


def _decided(numbers: Sequence[int], decision: Decision, workspace: Path, known: Ledger) -> Ledger:
    """Return the incidents with a decision about some of them. Raises UsageError."""
    wanted = {one.id for one in _named(known, numbers, workspace)}
    incidents = (
        with_decision(one, decision) if one.id in wanted else one for one in known.incidents
    )
    return replace(known, incidents=tuple(incidents))


def with_decision(one: Incident, decision: Decision) -> Incident:
    """Return an incident with what somebody has said of it. Raises UsageError."""
    if decision.what == "accepted":
        return replace(one, decision=decision)
    if one.is_open:
        raise UsageError(f"incident {one.id} is open: there is nothing to reopen")
    # What pairs have refuted comes back as what a history shows.
    changes = tuple(
        replace(c, returned=None, status="candidate")
        if c.status == "not_reproduced"
        else replace(c, returned=None)
        for c in one.changes
    )
    decision = replace(decision, since=_since(one, decision.at))
    again = replace(one, decision=decision, changes=changes, is_fixed=False, has_told_end=False)
    # A cause that was not found is looked for again.
    return again if one.culprit else replace(again, bisection=None, explanation=None)


def _since(one: Incident, now: float) -> str:
    """Return the last night that may have been seen: its return does not close the incident again.

    That of today's date is still to come, unless the return was made sure in it.
    """
    over = date.fromtimestamp(now) - timedelta(days=1)
    seen = [own.returned.alarm_night for own in one.changes if own.returned is not None]
    return max([over.isoformat(), *seen])


def _print(found: Sequence[Incident], given: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = list(map(incident_row, found))
    if given.format == "json":
        write_json({"incidents": rows, "closed": 0})
    elif given.format == "markdown":
        sys.stdout.write(markdown_list(found, 0))
    elif given.action == "show":
        sys.stdout.write("\n".join(map(one_text, found)))
    else:
        what = "accepted" if given.action == "accept" else "open again"
        write_prose(f"incident {one.id}: {what}" for one in found)
