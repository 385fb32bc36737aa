"""One timed interval: two readings of the clock, the steps, and the wait for the device."""

from __future__ import annotations

import time
from itertools import repeat
from typing import Any, Callable, Tuple

from perfrun.worker.distribution import median
from perfrun.worker.synchronise import Synchroniser

Step = Callable[[], Any]
_clock = time.perf_counter_ns
_cpu_clock = time.process_time_ns
_EMPTY_INTERVALS = 51


def run_block(step: Step, count: int, sync: Synchroniser) -> Tuple[int, int, int]:
    """Run the steps and wait for them; return nanoseconds of wall clock, CPU and device."""
    returned = None
    cpu_ns = _cpu_clock()
    began_ns = _clock()
    if sync.waits:
        sync.begin()
        # All but the last result are dropped at once, as a plain loop drops them.
        for _ in repeat(None, count - 1):
            step()
        if count:
            returned = step()
        sync.finish(returned)
        returned = None  # freeing it is part of the step
    else:
        for _ in repeat(None, count):
            step()
    wall_ns = _clock() - began_ns
    cpu_ns = _cpu_clock() - cpu_ns
    return wall_ns, cpu_ns, sync.device_ns()


def overhead_ns(sync: Synchroniser) -> float:
    """What an interval without a step takes: the timer, and the wait for an idle device."""
    empty = [run_block(_nothing, 0, sync)[0] for _ in range(_EMPTY_INTERVALS)]
    return median([float(wall_ns) for wall_ns in empty])


def _nothing() -> None:
    """An empty step."""
