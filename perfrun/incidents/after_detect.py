"""Changes that `perfrun detect --confirm` has confirmed, kept with the incidents of a workspace."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perfrun.changes.change_report import ChangeRow
from perfrun.errors import Interrupted
from perfrun.incidents import ledger as file
from perfrun.incidents.grouping import brought_up_to_date
from perfrun.incidents.incident import Incident, Ledger, Worsening
from perfrun.incidents.search import search
from perfrun.options.parsers import parse_workspace
from perfrun.store.command import opened
from perfrun.text import counted


def keep_confirmed(given: argparse.Namespace, rows: Sequence[ChangeRow]) -> tuple[str, ...]:
    """Bring the incidents up to date with what pairs have decided; return what is new of them.

    Only in a workspace that keeps incidents, as one with nights of a suite does. What goes wrong
    becomes a line: the answer of the command stands. Raises Interrupted.
    """
    workspace = parse_workspace(given.workspace)
    decided = [row for row in rows if row.status != "candidate"]
    if not decided or not _keeps_incidents(workspace):
        return ()
    try:
        known = file.read(workspace)
        with opened(given) as store:
            found = search(
                store,
                workspace,
                canaries=given.canary,
                known_canaries=known.canaries,
                clones=dict(given.clone),
                tonight=decided,
            )
        before: list[Ledger] = []

        def changed(now: Ledger) -> Ledger:
            before.append(now)
            return brought_up_to_date(now, found.sightings, found.improvements)

        after = file.change(workspace, changed)
    except Interrupted:
        raise
    except Exception as error:  # what was confirmed is told whatever it is
        return (f"incidents could not be brought up to date: {error}",)
    told = (_told(one, before[0].numbered(one.id)) for one in after.incidents)
    return tuple(line for line in told if line)


def _keeps_incidents(workspace: Path) -> bool:
    return (workspace / file.FILE).is_file() or (workspace / "nights").is_dir()


def _told(one: Incident, before: Incident | None) -> str:
    """Return what pairs have made of an incident; '' where they made nothing of it."""
    known = () if before is None else before.changes
    decided = [change for change in one.changes if _is_news(change, known)]
    if not decided:
        return ""
    statuses = [change.status for change in decided]
    counts = [
        f"{counted(statuses.count(status), 'change')} {text}"
        for status, text in (("confirmed", "confirmed"), ("not_reproduced", "not reproduced"))
        if status in statuses
    ]
    new = " (new)" if before is None else ""
    return f"incident {one.id}{new}: {', '.join(counts)}; `perfrun incidents show {one.id}`"


def _is_news(change: Worsening, known: Sequence[Worsening]) -> bool:
    if change.status == "candidate":
        return False
    return not any(own.is_same(change) and own.status == change.status for own in known)
