"""What is done to a run at a moment of it, and what is left of the run's own words after it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


def killed(pid: int) -> None:
    """Kill a process."""
    os.kill(pid, signal.SIGKILL)


@dataclass
class Accident:
    """What is done to a process after a while, unless it has ended by then."""

    at_s: float
    do: Callable[[int], None]
    pid: int
    over: threading.Event = field(default_factory=threading.Event)

    def happen(self) -> None:
        if not self.over.wait(self.at_s):
            with contextlib.suppress(OSError):
                self.do(self.pid)


@contextlib.contextmanager
def later(at_s: float, do: Callable[[int], None], pid: int) -> Iterator[None]:
    """Within the block, do something to a process after so many seconds."""
    accident = Accident(at_s, do, pid)
    thread = threading.Thread(target=accident.happen)
    thread.start()
    try:
        yield
    finally:
        accident.over.set()
        thread.join()
