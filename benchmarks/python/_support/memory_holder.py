"""Hold memory of a known size for a known time, in this process or as a process of its own.

`python -I memory_holder.py BYTES SECONDS` prints the kernel's high-water mark in bytes (nothing
where the kernel does not tell).
"""

from __future__ import annotations

import mmap
import sys
import time


def hold(size_bytes: int, seconds: float) -> None:
    """Allocate, write to every page (untouched pages are not in memory), and keep it."""
    block = bytearray(size_bytes)
    first_bytes = range(0, size_bytes, mmap.PAGESIZE)
    block[:: mmap.PAGESIZE] = b"\x01" * len(first_bytes)
    time.sleep(seconds)
    del block


def peak_rss_bytes() -> int | None:
    """Return this process's VmHWM, or None where there is no /proc."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            status = file.read()  # pathlib would be a tenth of a no-op trial
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


if __name__ == "__main__":
    hold(int(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.write("%s\n" % (peak_rss_bytes() or ""))
