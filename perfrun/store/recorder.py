"""A run adds its results to an index as it goes: after each trial, never before the first.

The summary is on disk by then, so nothing that happens here can lose a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from perfrun.options.plan import RunPlan
from perfrun.options.store_address import Address, parse_address

RETRY_S = 60.0  # a server that is away costs a run no more than one try in so long


class IndexRecorder:
    """Adds summaries to one index. Nothing it does raises."""

    def __init__(self, address: Address, notify: Callable[[str], None]) -> None:
        self._address, self._notify = address, notify
        self._waiting: list[Path] = []
        self._failed_at_s: float | None = None  # of the last try, when that failed

    def add(self, summary: Path) -> None:
        """Add the result of a trial, and those that could not be added before."""
        self._waiting.append(summary)
        now_s = time.monotonic()
        if self._failed_at_s is None or now_s - self._failed_at_s >= RETRY_S:
            self._try()

    def finish(self) -> None:
        """Try once more what could not be added, and say what is missing then."""
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
            # Only now: SQLAlchemy takes as long to import as a short trial to run.
            from perfrun.store.index import open_store

            with open_store(self._address) as store:
                store.add([path for path in self._waiting if path.exists()])
        except Exception as error:  # whatever it is, the run goes on
            if self._failed_at_s is None:
                self._notify(f"the index could not be written: {error}")
            self._failed_at_s = time.monotonic()
            return
        self._waiting, self._failed_at_s = [], None


def make_recorder(plan: RunPlan, notify: Callable[[str], None]) -> IndexRecorder | None:
    """The recorder of a run: for `--store`, else for the index that its workspace has."""
    address = parse_address(plan.store, plan.workspace)
    if plan.store or (address.file is not None and address.file.exists()):
        return IndexRecorder(address, notify)
    return None
