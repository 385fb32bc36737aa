"""CPU time as a multiple of another's: what a piece of code costs, however fast the machine is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

Work = Callable[[], object]
_TABLES = [Path(f"/proc/{name}") for name in ("stat", "meminfo", "vmstat")]


def arithmetic() -> int:
    """A piece of plain Python: some 10 ms where a loop takes 100 ns."""
    return sum(number * number for number in range(100_000))


def reading() -> int:
    """What the kernel takes to write its counters; more, the more processors there are."""
    return sum(len(path.read_bytes()) for path in _TABLES)


def cpu_ratio(work: Work, unit: Work, rounds: int = 7) -> float:
    """CPU time of this thread for `work`, in units; the quickest of several rounds of each.

    They take turns: a processor that is shared, or becomes slower, is so for both.
    """
    best_s = [math.inf, math.inf]
    for _ in range(rounds):
        for index, function in enumerate((work, unit)):
            begin = time.thread_time()
            function()
            best_s[index] = min(best_s[index], time.thread_time() - begin)
    return best_s[0] / best_s[1]
