"""Work whose cost is known beforehand, as reference values to check a runner by.

A sleep of known length, a method that does nothing, and memory of known size in this process and in
a child. The reference values come from the clock and the kernel, not from the runner.
"""

from __future__ import annotations

import sys
import time

from benchmarks._support.knob import Knob
from benchmarks.python._support import memory_holder
from perfrun import Benchmark

TYPE_CHECKING = False  # as in `benchmarks.knob`: `noop` measures the runner and not `typing`
if TYPE_CHECKING:
    from typing import Any

MEGABYTE = 1_000_000  # bytes
HELD_S = 0.2
HELD_BY_CHILD_S = 0.5
SLEEP_S = 0.05
# A sleep never ends early (the lower limit leaves room for the clock's own steps), and on a machine
# that is not overloaded the median one ends well within 10 ms.
SLEEP_ERROR_LIMITS_S = (-0.001, 0.010)

_MEGABYTES = Knob(
    name="megabytes", minimum=1, meaning="size of `allocate`, in units of 1,000,000 bytes"
)
_CHILD_MEGABYTES = Knob(
    name="child_megabytes", minimum=1, meaning="the same for `child_allocation`"
)


class Calibration(Benchmark):
    """Known quantities of time and memory."""

    def __init__(
        self,
        output_dir: str | None = None,
        root_data_dir: str | None = None,
        tpu: str | None = None,
        megabytes: int = 500,
        child_megabytes: int = 400,
    ) -> None:
        super().__init__(output_dir=output_dir, root_data_dir=root_data_dir, tpu=tpu)
        self._size_bytes = _MEGABYTES.checked(megabytes) * MEGABYTE
        self._child_size_bytes = _CHILD_MEGABYTES.checked(child_megabytes) * MEGABYTE

    def sleep(self) -> None:
        """Sleep ten times for 50 ms: the timing loop must read the same length back."""
        timed = self.measure(
            lambda: time.sleep(SLEEP_S), warmup=0, iterations=10, block_size=1, report=False
        )
        lowest, highest = SLEEP_ERROR_LIMITS_S
        error = {
            "name": "sleep_error_s",
            "value": timed.median_s - SLEEP_S,
            "min_value": lowest,
            "max_value": highest,
        }
        self.report_benchmark(**timed.report_arguments({"sleep_s": SLEEP_S}, (error,)))

    def noop(self) -> None:
        """Do nothing: what remains is the runner's own cost."""
        started = time.perf_counter()
        self.report_benchmark(iters=1, wall_time=time.perf_counter() - started)

    def allocate(self) -> None:
        """Hold 500 MB for 0.2 s in this process."""
        started = time.perf_counter()
        memory_holder.hold(self._size_bytes, HELD_S)
        held_s = time.perf_counter() - started
        peak_bytes = memory_holder.peak_rss_bytes()
        self.report_benchmark(
            iters=1,
            wall_time=held_s,
            metrics=_memory_metrics("", self._size_bytes, peak_bytes),
        )

    def child_allocation(self) -> None:
        """Hold 400 MB for 0.5 s in a child process."""
        import subprocess  # here, so that `noop` measures the runner and not this import

        argv = [sys.executable, "-I", memory_holder.__file__]
        argv += [str(self._child_size_bytes), str(HELD_BY_CHILD_S)]
        started = time.perf_counter()
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
        held_s = time.perf_counter() - started
        peak_bytes = int(done.stdout) if done.stdout.strip() else None
        self.report_benchmark(
            iters=1,
            wall_time=held_s,
            metrics=_memory_metrics("child_", self._child_size_bytes, peak_bytes),
        )


def _memory_metrics(prefix: str, size_bytes: int, peak_bytes: int | None) -> list[dict[str, Any]]:
    """Return metrics of the allocated bytes, and of the kernel's peak, which cannot be lower."""
    metrics: list[dict[str, Any]] = [{"name": prefix + "allocated_bytes", "value": size_bytes}]
    if peak_bytes is not None:
        peak = {"name": prefix + "peak_rss_bytes", "value": peak_bytes, "min_value": size_bytes}
        metrics.append(peak)
    return metrics
