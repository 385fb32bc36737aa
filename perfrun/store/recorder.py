"""Add the results of a run to an index: after each trial, never before the first.

The summary is on disk by then, so no failure here can lose a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from perfrun.errors import StoreError
from perfrun.options.plan import RunPlan
from perfrun.options.store_address import Address, parse_address
from perfrun.store.patience import Backoff, BusyStoreError, LastingStoreError

RETRY_S = 60.0  # an unreachable server costs a run at most one try in so long
FINISH_S = 60.0  # at the end, for a server that is busy, or that has answered before
_PATIENCE_S = 2.0  # of one try, for a server that is full
_FIRST_PAUSE_S = 1.0  # after a try that a busy server did not serve; then twice as long


class IndexRecorder:
    """Adds summaries to one index, and never raises."""

    def __init__(self, address: Address, notify: Callable[[str], None]) -> None:
        self._address, self._notify = address, notify
        self._waiting: list[Path] = []
        self._next_s = 0.0  # time before which nothing is tried, after a failure
        self._pause_s = _FIRST_PAUSE_S
        self._answered = False  # True when the server has, if only that it is busy
        self._reason: str | None = None  # of the last failure that has not been told
        self._is_told = False

    def add(self, summary: Path) -> None:
        """Add the result of a trial, and the earlier ones that could not be added."""
        self._waiting.append(summary)
        if time.monotonic() >= self._next_s:
            self._try()

    def finish(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Try the missing results again, and report those that are still missing.

        A server that is full, that starts, or that answered earlier is asked for a minute, until
        `is_over` says that the user does not wait. One that never answered, or that answers with
        what does not pass, is asked once.
        """
        if not self._waiting:
            return
        backoff = Backoff(FINISH_S, is_over)
        while (may_pass := self._try()) is not None:
            if not (may_pass or self._answered) or not backoff.wait():
                break
        if self._waiting:
            self._tell()
            store = "" if self._address.workspace else f" --store={self._address.shown}"
            self._notify(
                f"{len(self._waiting)} results are not in {self._address.shown}; their summaries "
                f"are whole: `perfrun index{store}` adds them later"
            )

    def _try(self) -> bool | None:
        """Add what waits; return None, or after a failure True when it may pass soon."""
        try:
            # Imported late: SQLAlchemy takes as long to import as a short trial to run.
            from perfrun.store.index import open_store

            with open_store(self._address, patience_s=_PATIENCE_S) as store:
                store.add([path for path in self._waiting if path.exists()])
        except Exception as error:  # the run goes on whatever happens
            return self._failed(error)
        self._waiting, self._answered, self._is_told = [], True, False
        self._pause_s, self._reason = _FIRST_PAUSE_S, None
        return None

    def _failed(self, error: Exception) -> bool:
        may_pass, self._reason = isinstance(error, BusyStoreError), str(error)
        self._answered |= may_pass
        if not isinstance(error, StoreError) or isinstance(error, LastingStoreError):
            self._answered = False  # it would be the same in a minute
        self._next_s = time.monotonic() + (self._pause_s if may_pass else RETRY_S)
        self._pause_s = min(2 * self._pause_s, RETRY_S)
        if not may_pass:  # what passes soon is not worth a line
            self._tell()
        return may_pass

    def _tell(self) -> None:
        if self._reason is not None and not self._is_told:
            self._notify(f"the index could not be written: {self._reason}")
            self._is_told = True


def make_recorder(plan: RunPlan, notify: Callable[[str], None]) -> IndexRecorder | None:
    """Return the recorder for `--store`, else for the index that the workspace has; else None."""
    address = parse_address(plan.store, plan.workspace)
    if plan.store or (address.file is not None and address.file.exists()):
        return IndexRecorder(address, notify)
    return None
