"""Ctrl-C, termination signals and a deadline: they end a run, but never in the middle of a summary.

Signals belong to the whole process. A caller that carries out several runs in turn (a night, the
pairs of several changes) handles them once and hands the same `Interruption` to each run: a signal
that comes in the last steps of one run is then not forgotten before the next one begins.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from perfrun.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHORTEST_S = 0.001  # a timer of 0 would never fire
_Handler = Callable[[int, FrameType | None], Any] | int | None


class Interruption:
    """Remembers that a signal or a deadline came; raises `Interrupted` only inside `allowed`."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._late = False
        self._allowed = False
        self._pending = False  # one of them came, and nothing has been raised for it yet

    @property
    def asked(self) -> bool:
        """True once a signal or the deadline of `until` has come: what goes on must end."""
        return self.signalled or self._late

    @property
    def signalled(self) -> bool:
        """True once a signal has come: the whole command must end."""
        return self._number is not None

    def check(self) -> None:
        """Raise Interrupted if a signal has come, even if it was raised before."""
        if self.signalled:
            self._raise()

    @contextmanager
    def installed(self) -> Iterator[Interruption]:
        """Handle the signals in this context. A SIGHUP that was ignored (nohup) stays ignored."""
        before: dict[signal.Signals, _Handler] = {}
        try:
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._handle)
            yield self
        finally:
            for number, handler in before.items():
                _restore(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let signals interrupt this context, also one that came before it was entered.

        What is inside may take hours.
        """
        self._allowed = True
        try:
            if self._pending:
                self._raise()
            yield
        finally:
            self._allowed = False

    @contextmanager
    def until(self, deadline: float | None) -> Iterator[None]:
        """End this context at `deadline` (seconds since the epoch), as a signal would.

        A deadline that has already passed ends it at once. Afterwards the deadline is forgotten,
        and a signal is not.
        """
        if deadline is None:
            yield
            return
        handler = signal.signal(signal.SIGALRM, self._on_deadline)
        left_s = deadline - time.time()
        timer = signal.setitimer(signal.ITIMER_REAL, max(left_s, _SHORTEST_S))
        try:
            if left_s <= 0:
                self._on_deadline(signal.SIGALRM, None)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            _restore(signal.SIGALRM, handler)
            self._late = False
            self._pending = self._pending and self.signalled

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        self._note()

    def _on_deadline(self, _number: int, _frame: FrameType | None) -> None:
        if not self._late:
            self._late = True
            self._note()

    def _note(self) -> None:
        self._pending = True
        if self._allowed:
            self._raise()

    def _raise(self) -> None:
        self._pending = False
        if self._number is None:
            raise Interrupted("stopped by the deadline")
        raise Interrupted(f"stopped by {signal.Signals(self._number).name}")


@contextmanager
def taking_signals(given: Interruption | None = None) -> Iterator[Interruption]:
    """Handle the signals in this context; with `given`, a caller does so already."""
    if given is not None:
        yield given
        return
    with Interruption().installed() as made:
        yield made


def _restore(number: int, handler: _Handler) -> None:
    """Restore a handler; one that was not set from Python becomes the default."""
    signal.signal(number, signal.SIG_DFL if handler is None else handler)
