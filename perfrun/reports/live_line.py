"""The last line of a terminal, which shows what goes on and is written anew each second.

It is drawn and taken away by its own thread and by whoever writes to the terminal, under one lock.
Once a second, because every drawing takes time from the benchmark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_PERIOD_S = 1.0
_ERASED = "\r\x1b[K"


class LiveLine(threading.Thread):
    """A line that is there until `end`. The holder of `lock` may call `draw`, `clear` and `end`."""

    def __init__(
        self, lock: threading.Lock, text: Callable[[], str], write: Callable[[str], bool]
    ) -> None:
        super().__init__(name="perfrun-live-line", daemon=True)
        self._lock, self._text, self._write = lock, text, write
        self._over = threading.Event()
        self._is_drawn = False

    def run(self) -> None:
        """Draw the line once a period."""
        while not self._over.wait(_PERIOD_S):
            with self._lock:
                self.draw()

    def draw(self) -> None:
        """Write the line over itself, unless it has ended."""
        if not self._over.is_set():
            self._is_drawn = self._write(f"\r{self._text()}\x1b[K") or self._is_drawn

    def clear(self) -> None:
        """Take the line away, for text that comes in its place."""
        if self._is_drawn:
            self._write(_ERASED)
            self._is_drawn = False

    def end(self) -> None:
        """Take the line away for good."""
        self.clear()
        self._over.set()
