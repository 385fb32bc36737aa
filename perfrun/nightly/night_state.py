"""The records of nights on disk: `<workspace>/nights/<night>/night.json`.

A record is written whole after each run of the night, so that a killed night continues from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from perfrun.errors import WorkspaceError
from perfrun.nightly.suite import Night, Suite, parse_deadline, units
from perfrun.summary.result_folder import write_whole

FILE = "night.json"
REPORT = "report.json"
RECENT_DAYS = 14  # changes of so many last nights are reported again
KNOWN_DAYS = 60  # reports of so many last nights say what is known; an alarm may move by weeks
Earlier = Sequence[tuple[Night, Mapping[str, Any]]]  # nights with their JSON reports
OLDEST_S = 20 * 3600.0  # an older night does not continue


class Nights:
    """The nights of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.folder = workspace / "nights"

    @property
    def lock(self) -> Path:
        """The lock that a running night holds."""
        return self.folder / ".lock"

    def folder_of(self, night: Night) -> Path:
        """Return the folder of a night's record and reports."""
        return self.folder / night.night

    def save(self, night: Night) -> None:
        """Write a night's record. Raises WorkspaceError when that fails."""
        path = self.folder_of(night) / FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(asdict(night), indent=1) + "\n")
        except OSError as error:
            raise WorkspaceError(f"{path}: cannot be written: {error.strerror}") from None

    def begin(self, suite: Suite, now: float) -> Night:
        """Write the record of a new night and return it."""
        day = f"{suite.name}-{datetime.fromtimestamp(now):%Y-%m-%d}"
        name, number = day, 1
        while (self.folder / name).exists():
            number += 1
            name = f"{day}-{number}"
        deadline = parse_deadline(suite.deadline, now) if suite.deadline else None
        night = Night(
            night=name,
            suite=suite.name,
            digest=suite.digest,
            begun=now,
            deadline=deadline,
            told=False,
        )
        self.save(night)
        return night

    def newest(self) -> str | None:
        """Return the id of the newest night of any suite that has not ended."""
        going = [night for night in self._all() if night.ended is None]
        last = max(going, key=lambda night: night.begun, default=None)
        return last.night if last else None

    def over(self) -> set[str]:
        """Return the ids of the nights that have ended."""
        return {night.night for night in self._all() if night.ended is not None}

    def unfinished(self, suite: Suite) -> Night | None:
        """Return the last night of the suite, if it has not ended."""
        found = [night for night in self._all() if night.suite == suite.name]
        last = max(found, key=lambda night: night.begun, default=None)
        return last if last is not None and last.ended is None else None

    def reports_before(self, night: Night) -> Earlier:
        """Return the suite's nights of the last days with their reports, the newest first."""
        found = []
        for one in sorted(self._before(night), key=lambda one: one.begun, reverse=True):
            try:
                text = (self.folder_of(one) / REPORT).read_text(encoding="utf-8")
                found.append((one, json.loads(text)))
            except (OSError, ValueError):
                continue  # it has not ended, or was removed
        return found

    def untold_before(self, night: Night) -> frozenset[str]:
        """Return the ids of the suite's nights of the last days that told nobody of changes."""
        return frozenset(one.night for one in self._before(night) if not one.told)

    def _before(self, night: Night) -> list[Night]:
        oldest = night.begun - KNOWN_DAYS * 86400
        return [
            one
            for one in self._all()
            if one.suite == night.suite and oldest < one.begun < night.begun
        ]

    def _all(self) -> list[Night]:
        loaded = (_load(path) for path in self.folder.glob(f"*/{FILE}"))
        return [night for night in loaded if night is not None]


def why_not_continued(night: Night, suite: Suite, now: float) -> str | None:
    """Return why an unfinished night cannot continue; None when it can."""
    if night.digest != suite.digest:
        return "the suite file has changed since"
    wanted = {unit.name for unit in units(suite)}
    # With all runs done only the reports are missing, and the deadline does not end those.
    only_reports = bool(wanted) and wanted <= night.units.keys()
    if night.deadline is not None and night.deadline <= now and not only_reports:
        return "its deadline has passed"
    if now - night.begun > OLDEST_S:
        return "it began too long ago"
    return None


def _load(path: Path) -> Night | None:
    """Read a record; return None when the file is not one."""
    import msgspec  # only where there are nights: 20 ms

    try:
        night = msgspec.json.decode(path.read_bytes(), type=Night)
    except (OSError, ValueError, msgspec.DecodeError, RecursionError):
        return None
    return night if night.night == path.parent.name else None
