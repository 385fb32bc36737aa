"""Fixed pieces of work that ask different things of a container.

They are timed in CPU seconds, user and system. On a busy machine, wall time depends more on how the
kernel shares processors between control groups than on the container.
"""

import time

from perfrun import Benchmark

STEPS = 6_000_000  # half a second or so
ROUNDS = 15_000
BLOCK = 1 << 20  # above malloc's threshold: each block is mapped, touched and unmapped


class Contained(Benchmark):
    """Fixed pieces of work; the reported wall_time is the CPU time of one."""

    def computes(self) -> None:
        """Use nothing but the processor: no system call."""
        begin = time.process_time()
        total = 0
        for number in range(STEPS):
            total = (total * 31 + number) % 1_000_003
        self.report_benchmark(iters=STEPS, wall_time=time.process_time() - begin)

    def allocates(self) -> None:
        """Cause page faults and system calls: memory is mapped, written to and given back."""
        begin = time.process_time()
        for _ in range(ROUNDS):
            block = bytearray(BLOCK)
            block[::4096] = b"x" * (BLOCK // 4096)
        self.report_benchmark(iters=ROUNDS, wall_time=time.process_time() - begin)
