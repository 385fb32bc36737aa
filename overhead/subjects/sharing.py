"""Trees of processes that share memory, with reference values of what they hold.

The reference value is the parent's peak as the kernel tells it, which holds all that is shared,
plus what each child has for itself. The processes read these while they hold the memory.
"""

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

from perfrun import Benchmark

SHARED_BYTES = 400_000_000
OWN_BYTES = 50_000_000
CHILDREN = 4
HOLD_S = 1.5


def status_bytes(name: str, path: str = "/proc/self/status") -> int:
    """Sum the lines of a file of /proc that begin with a name, in bytes."""
    with Path(path).open(encoding="ascii") as file:
        lines = [line.split() for line in file if line.startswith(name)]
    return sum(int(words[1]) * 1024 for words in lines)


class Sharing(Benchmark):
    """One parent, four children, 400 MB between them."""

    def forked(self) -> None:
        """Fork children that share an array of their parent's; each has 50 MB of its own."""
        block = bytearray(b"x") * SHARED_BYTES
        self._report(_held(lambda: bytearray(b"y") * OWN_BYTES))
        del block

    def shared_memory(self) -> None:
        """Fork children that read the same shared memory."""
        block = mmap.mmap(-1, SHARED_BYTES)  # shared and anonymous: what /dev/shm is made of
        block[:: mmap.PAGESIZE] = b"x" * len(range(0, SHARED_BYTES, mmap.PAGESIZE))
        self._report(_held(lambda: sum(block[:: mmap.PAGESIZE])))

    def _report(self, children_bytes: int) -> None:
        reference = {"name": "reference_bytes", "value": status_bytes("VmHWM:") + children_bytes}
        self.report_benchmark(iters=1, wall_time=HOLD_S, metrics=[reference])


def _held(hold: Callable[[], object]) -> int:
    """Fork children that hold something; return the bytes that each has for itself, summed."""
    pipes = []
    for _ in range(CHILDREN):
        reader, writer = os.pipe()
        if os.fork() == 0:
            held = hold()
            time.sleep(HOLD_S)
            alone = status_bytes("Private_", "/proc/self/smaps_rollup")
            os.write(writer, str(alone).encode())
            del held
            os._exit(0)
        os.close(writer)
        pipes.append(reader)
    sizes = [int(os.read(reader, 32)) for reader in pipes]
    for _ in range(CHILDREN):
        os.wait()
    return sum(sizes)
