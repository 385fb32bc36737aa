"""Troubles of a database that pass by themselves, and the pauses between tries.

A server for a team has room for a hundred clients unless it is told otherwise, and is restarted now
and then, while each of some hundred runs adds a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from perfrun.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy.exc import SQLAlchemyError

_FIRST_S, _LONGEST_S = 0.1, 5.0  # of the pauses between tries, before chance
_LOOK_S = 0.2  # between two looks for the end of the wish to wait
# What a server answers to one more client. libpq has no code for it, and the text is in the
# server's language, which is English unless it was chosen.
_FULL_OR_RESTARTS = (
    "too many clients",
    "connection slots are reserved",
    "too many connections",
    "system is starting up",
    "system is shutting down",
    "not yet accepting connections",
    "in recovery mode",
)
_BROKEN_OFF = (
    *("server closed the connection", "terminating connection", "connection reset"),
    *("no connection to the server", "the connection is closed", "the connection is lost"),
)
# deadlock, serialization failure, lock_timeout, too many connections, shutdowns and crashes
_STATES = {"40P01", "40001", "55P03", "53300", "57P01", "57P02", "57P03"}

_OF_CONNECTIONS = "08"  # the class of states about those that broke, which a pooler reports, too


class BusyStoreError(StoreError):
    """The database could not do it now; the same may succeed soon."""


class LastingStoreError(StoreError):
    """The database answered, and would answer the same again: a full disk, a missing right."""


def is_full_or_restarts(error: SQLAlchemyError) -> bool:
    """Return True when a server answered that it takes no client now."""
    return _says(error, _FULL_OR_RESTARTS)


def is_passing(error: SQLAlchemyError) -> bool:
    """Return True for an error after which the same transaction may succeed."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state in _STATES or _says(error, (*_FULL_OR_RESTARTS, *_BROKEN_OFF))


def is_lasting(error: SQLAlchemyError, *, is_sqlite: bool) -> bool:
    """Return True for what does not pass by itself.

    A server's answer has a state, and a connection that is lost has none. SQLite has no server: but
    for another writer, what goes wrong is in the file or in its folder.
    """
    if is_sqlite:
        return not _says(error, ("locked",))
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state is not None and not state.startswith(_OF_CONNECTIONS)


def _says(error: SQLAlchemyError, texts: tuple[str, ...]) -> bool:
    said = str(getattr(error, "orig", None) or error).lower()
    return any(text in said for text in texts)


class Backoff:
    """Pauses that double and differ by chance, so that many clients do not come back together."""

    def __init__(self, limit_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Take the seconds after which there is no further pause, and what ends one early."""
        self._end_s = time.monotonic() + limit_s
        self._is_over = is_over
        self._next_s = _FIRST_S

    def wait(self) -> bool:
        """Pause; return False when the time is over, or nobody wants to wait any more."""
        import random  # takes longer to import than a run without a store may cost

        now_s = time.monotonic()
        pause_s = self._next_s * random.uniform(0.5, 1.5)  # noqa: S311
        until_s = min(self._end_s, now_s + pause_s)
        self._next_s = min(2 * self._next_s, _LONGEST_S)
        if now_s >= self._end_s:
            return False
        while (left_s := until_s - time.monotonic()) > 0 and not self._is_over():
            time.sleep(min(left_s, _LOOK_S))
        return not self._is_over()
