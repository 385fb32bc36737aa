"""The timing loop that all shipped benchmarks share, and the figures taken from it.

It knows no framework: a benchmark hands over one step, and how to wait until the step's work is
really done. Without that wait an accelerator's queue would be timed, not its work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Raw times of one loop, in seconds (`time.perf_counter`, and `time.process_time` for CPU)."""

    first_call_s: float  # the very first step: allocation, tracing and compilation included
    iterations_s: tuple[float, ...]  # every timed step, in the order they ran
    cpu_s: float  # CPU seconds of the whole process per timed step, all threads together

    @property
    def median_s(self) -> float:
        import statistics  # only once something was timed: it takes 8 ms

        return statistics.median(self.iterations_s)

    @property
    def p90_s(self) -> float:
        """90th percentile, interpolated linearly between the two nearest steps."""
        ordered = sorted(self.iterations_s)
        position = 0.9 * (len(ordered) - 1)
        below = math.floor(position)
        above = math.ceil(position)
        return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def no_wait() -> None:
    """Synchronisation of work that is finished when its call returns."""


def measure(
    step: Callable[[], object],
    synchronize: Callable[[], object] = no_wait,
    *,
    warmup: int,
    iterations: int,
) -> Timing:
    """Call `step` once apart, `warmup` times untimed and `iterations` times timed.

    `synchronize` runs inside every timed interval and must return only when the step's work is
    done. It also runs before the first interval, so that no earlier work is counted.
    """
    synchronize()
    first_call_s = _timed(step, synchronize)
    for _ in range(warmup):
        step()
    synchronize()
    cpu_before = time.process_time()
    iterations_s = tuple(_timed(step, synchronize) for _ in range(iterations))
    cpu_s = (time.process_time() - cpu_before) / iterations
    return Timing(first_call_s, iterations_s, cpu_s)


def _timed(step: Callable[[], object], synchronize: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    synchronize()
    return time.perf_counter() - started


def report(
    timing: Timing, examples_per_step: int, metrics: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return arguments for `report_benchmark`: times in seconds per step, throughput per second.

    Throughput belongs to the median step, so latency times throughput is the batch size.
    """
    examples_per_second = examples_per_step / timing.median_s
    own: list[dict[str, Any]] = [
        {"name": "latency_median_s", "value": timing.median_s},
        {"name": "latency_p90_s", "value": timing.p90_s},
        {"name": "examples_per_second", "value": examples_per_second},
        {"name": "first_call_s", "value": timing.first_call_s},
    ]
    return {
        "iters": len(timing.iterations_s),
        "cpu_time": timing.cpu_s,
        "wall_time": timing.median_s,
        "throughput": examples_per_second,
        "metrics": [*own, *metrics],
    }


def known_value(name: str, value: float, truth: float) -> dict[str, Any]:
    """Return a metric that passes only when it equals a truth known beforehand."""
    return {"name": name, "value": value, "min_value": truth, "max_value": truth}
