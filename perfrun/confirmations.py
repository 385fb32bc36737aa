"""Confirm the changes of a history one after the other: no more than asked for, on after a kill."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfrun.budget import Budget
from perfrun.confirming import (
    INTERRUPTED,
    Confirmation,
    Known,
    Suspect,
    confirm,
    confirmation_row,
)
from perfrun.errors import UsageError
from perfrun.interruption import Interruption, taking_signals
from perfrun.locks import FileLock
from perfrun.reports.changes import Row
from perfrun.screen import Screen
from perfrun.storage import write_whole

LEFT_OUT = "left out"
TOO_LATE = "the deadline came first"
_FRESH_S = 20 * 3600.0  # what was begun earlier does not go on: the machine is another by now


def confirm_rows(
    rows: Sequence[Row],
    workspace: Path,
    budget: Budget,
    screen: Screen,
    *,
    deadline: float | None = None,
    interruption: Interruption | None = None,
) -> tuple[Row, ...]:
    """Run the A/B of each change; the rows with what came out, in their order.

    Changes for the worse come first, then the newest; those beyond `budget.most` are left out and
    say so. Interrupted, the same call goes on: what was decided is not run again. `deadline` is in
    seconds since the epoch. `interruption` is that of a caller that has taken over the signals and
    goes on afterwards. Raises UsageError when another perfrun is at it in this workspace.
    """
    order = sorted(range(len(rows)), key=lambda at: rows[at].night, reverse=True)
    order.sort(key=lambda at: rows[at].direction != "worse")
    if not rows:
        return ()
    with FileLock(workspace / ".locks" / "confirming") as lock:
        if not lock.try_own():
            raise UsageError(f"another perfrun is confirming changes in {workspace}: let it end")
        with taking_signals(interruption) as ours:
            work = _Work(workspace, budget, screen, deadline, ours)
            told = {at: work.row(rows[at]) for at in order}
        # A caller that a signal ends later than here asks again, and is given what was decided.
        work.end(keep=interruption is not None and interruption.signalled)
    return tuple(told[at] for at in range(len(rows)))


class _Work:
    """The changes that were looked into so far, in memory and on disk."""

    def __init__(
        self,
        workspace: Path,
        budget: Budget,
        screen: Screen,
        deadline: float | None,
        interruption: Interruption,
    ) -> None:
        self._workspace, self._budget, self._screen = workspace, budget, screen
        self._deadline, self._interruption = deadline, interruption
        self._path = workspace / "confirming.json"
        self._begun = time.time()
        self._decided = self._before()
        self._resume = self._decided is not None  # only the first that is open can have begun
        self._known: dict[Known, Any] = {}
        self._count = 0
        self._interrupted = False
        if self._decided is None:
            self._decided = {}
            self._save()

    def row(self, row: Row) -> Row:
        """Look into one change, unless there is a reason not to."""
        key = _key(row, self._budget)
        done = (self._decided or {}).get(key)
        self._count += 1
        if done is not None:
            return replace(row, status=done["status"], confirmation=done["confirmation"])
        found = self._reason() or self._confirm(row)
        told = replace(row, status=found.status, confirmation=confirmation_row(found))
        if found.reason == INTERRUPTED:
            self._interrupted = True
        elif found.reason != TOO_LATE and self._decided is not None:
            self._decided[key] = {"status": told.status, "confirmation": told.confirmation}
            self._save()
        return told

    def end(self, *, keep: bool) -> None:
        """Forget what was decided, unless the same call is to go on."""
        if not (self._interrupted or keep):
            self._path.unlink(missing_ok=True)

    def _reason(self) -> Confirmation | None:
        """Why a change is not looked into."""
        most = self._budget.most
        why = None
        if self._interrupted or self._interruption.signalled:
            why = INTERRUPTED
        elif most is not None and self._count > most:
            why = f"{LEFT_OUT}: beyond --max_changes={most}"
        elif self._deadline is not None and self._deadline <= time.time():
            why = TOO_LATE
        return Confirmation(status="candidate", reason=why) if why else None

    def _confirm(self, row: Row) -> Confirmation:
        suspect = Suspect(
            method=row.method,
            metric=row.metric,
            direction=row.direction,
            before=Path(row.before_summary),
            after=Path(row.after_summary),
        )
        budget, resume = self._budget, self._resume
        if self._deadline is not None:
            left_s = max(1.0, self._deadline - time.time())
            budget = replace(budget, time_s=min(left_s, budget.time_s or left_s))
        self._resume = False
        self._screen.note(f"confirming {row.metric} of {row.method}, {row.night}")
        return confirm(
            suspect,
            self._workspace,
            budget,
            self._screen,
            resume=resume,
            known=self._known,
            interruption=self._interruption,
        )

    def _before(self) -> dict[str, dict[str, Any]] | None:
        """What an interrupted call has decided; None where none was."""
        try:
            told = json.loads(self._path.read_text(encoding="utf-8"))
            if self._begun - float(told["begun"]) > _FRESH_S:
                return None
            self._begun = float(told["begun"])
            found: dict[str, dict[str, Any]] = told["decided"]
            return found if isinstance(found, dict) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _save(self) -> None:
        document: Mapping[str, Any] = {"begun": self._begun, "decided": self._decided}
        try:
            write_whole(self._path, json.dumps(document) + "\n")
        except OSError as error:
            self._screen.note(f"{self._path} could not be written: {error.strerror}")


def _key(row: Row, budget: Budget) -> str:
    about = (row.method, row.metric, row.direction, row.before_summary, row.after_summary)
    return json.dumps([*about, budget.max_pairs])
