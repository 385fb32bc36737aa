"""Work that keeps the processor busy, as a benchmark or, run as a program, on its own.

`python busy.py PROCESSES STEPS` does STEPS steps in each of the processes and prints the seconds
from the first step to the last.
"""

import os
import sys
import time

from perfrun import Benchmark

BUSY_S = 10.0


def work(steps: int) -> int:
    """Compute something that needs only a processor and its caches."""
    total = 0
    for number in range(steps):
        total = (total * 31 + number) % 1_000_003
    return total


class Busy(Benchmark):
    """One core that is busy for long enough to measure the cost of sampling."""

    def spin(self) -> None:
        """Compute for ten seconds."""
        begin = time.perf_counter()
        while time.perf_counter() - begin < BUSY_S:
            work(10_000)
        self.report_benchmark(iters=1, wall_time=time.perf_counter() - begin)


def _main(processes: int, steps: int) -> None:
    begin = time.perf_counter()
    children = []
    for _ in range(processes - 1):
        child = os.fork()
        if child == 0:
            work(steps)
            os._exit(0)
        children.append(child)
    work(steps)
    for child in children:
        os.waitpid(child, 0)
    sys.stdout.write("%r\n" % (time.perf_counter() - begin))


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
