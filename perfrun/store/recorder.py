"""Add the results of a run to an index: after each trial, never before the first.

The summary is on disk by then, so no failure here can lose a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from perfrun.options.plan import RunPlan
from perfrun.options.store_address import Address, parse_address

RETRY_S = 60.0  # an unreachable server costs a run at most one try in so long


class IndexRecorder:
    """Adds summaries to one index, and never raises."""

    def __init__(self, address: Address, notify: Callable[[str], None]) -> None:
        self._address, self._notify = address, notify
        self._waiting: list[Path] = []
        self._failed_at_s: float | None = None  # time of the last try, when that failed

    def add(self, summary: Path) -> None:
        """Add the result of a trial, and the earlier ones that could not be added."""
        self._waiting.append(summary)
        now_s = time.monotonic()
        if self._failed_at_s is None or now_s - self._failed_at_s >= RETRY_S:
            self._try()

    def finish(self) -> None:
        """Try the missing results once more, and report those that are still missing."""
        if self._waiting:
            self._try()
        if self._waiting:
            store = "" if self._address.workspace else f" --store={self._address.shown}"
            self._notify(
                f"{len(self._waiting)} results are not in {self._address.shown}; their summaries "
                f"are whole: `perfrun index{store}` adds them later"
            )

    def _try(self) -> None:
        try:
            # Imported late: SQLAlchemy takes as long to import as a short trial to run.
            from perfrun.store.index import open_store

            with open_store(self._address) as store:
                store.add([path for path in self._waiting if path.exists()])
        except Exception as error:  # the run goes on whatever happens
            if self._failed_at_s is None:
                self._notify(f"the index could not be written: {error}")
            self._failed_at_s = time.monotonic()
            return
        self._waiting, self._failed_at_s = [], None


def make_recorder(plan: RunPlan, notify: Callable[[str], None]) -> IndexRecorder | None:
    """Return the recorder for `--store`, else for the index that the workspace has; else None."""
    address = parse_address(plan.store, plan.workspace)
    if plan.store or (address.file is not None and address.file.exists()):
        return IndexRecorder(address, notify)
    return None
