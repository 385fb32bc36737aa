"""Ctrl-C and termination signals: they end a run where it can be ended, never half a summary."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from perfrun.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Remembers that a signal came; raises `Interrupted` only inside `allowed`."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._allowed = False
        self._pending = False  # a signal came and nothing has been raised for it

    @property
    def asked(self) -> bool:
        """True once a signal has come."""
        return self._number is not None

    def install(self) -> None:
        """Take over the signals. A SIGHUP that was ignored (nohup) stays ignored."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let signals interrupt what is inside: those that come before it is left, and one that
        came before it was entered, for what is inside may take hours.
        """
        self._allowed = True
        try:
            if self._pending:
                self._raise()
            yield
        finally:
            self._allowed = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        self._pending = True
        if self._allowed:
            self._raise()

    def _raise(self) -> None:
        assert self._number is not None
        self._pending = False
        raise Interrupted(f"stopped by {signal.Signals(self._number).name}")
