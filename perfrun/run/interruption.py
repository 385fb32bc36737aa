"""Ctrl-C, termination signals and a deadline end a run where it can end, never half a summary.

Signals belong to the whole process, so whoever runs several runs in turn (a night, the pairs of
several changes) takes them over once and hands the same `Interruption` to each of them: a signal
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
        self._pending = False  # one of them came and nothing has been raised for it

    @property
    def asked(self) -> bool:
        """True once what goes on is to end: a signal has come, or the deadline of `until`."""
        return self.signalled or self._late

    @property
    def signalled(self) -> bool:
        """True once a signal has come: somebody wants all of it to end."""
        return self._number is not None

    def check(self) -> None:
        """Raise Interrupted if a signal has come, whether or not it was raised before."""
        if self.signalled:
            self._raise()

    @contextmanager
    def installed(self) -> Iterator[Interruption]:
        """Take over the signals for what is inside. A SIGHUP that was ignored (nohup) stays so."""
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

    @contextmanager
    def until(self, deadline: float | None) -> Iterator[None]:
        """End what is inside at a time (seconds since the epoch), as its user would by a signal.

        A deadline that has passed already ends it at once. Afterwards the deadline is forgotten,
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
    """Take over the signals for what is inside, unless the caller has: then use its `given`."""
    if given is not None:
        yield given
        return
    with Interruption().installed() as made:
        yield made


def _restore(number: int, handler: _Handler) -> None:
    """Put a handler back; one that was not set from Python cannot be, and gives its default."""
    signal.signal(number, signal.SIG_DFL if handler is None else handler)
