"""Methods whose code never changes: arithmetic, memory and calls, as a suite has them."""

import time
from collections.abc import Callable

from perfrun import Benchmark


class Steady(Benchmark):
    """Methods that report the median of 20 times of a few milliseconds, and CPU time."""

    def add(self) -> None:
        self._report(lambda: sum(range(60_000)))

    def sort(self) -> None:
        numbers = [number * 7919 % 10_007 for number in range(10_000)]
        self._report(lambda: sorted(numbers))

    def copy(self) -> None:
        block = bytearray(8 << 20)
        self._report(lambda: bytes(block))

    def text(self) -> None:
        self._report(lambda: " ".join(str(number) for number in range(10_000)).split())

    def call(self) -> None:
        self._report(lambda: [abs(number) for number in range(30_000)])

    def _report(self, step: Callable[[], object]) -> None:
        times, begun = [], time.process_time()
        for _ in range(20):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        cpu_s = time.process_time() - begun
        metrics = [{"name": "cpu_s", "value": cpu_s}]
        self.report_benchmark(wall_time=sorted(times)[10], metrics=metrics)
