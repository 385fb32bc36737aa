"""Facts about this machine and process from the kernel: processors, free memory, age.

Memory is what a benchmark may use before the machine swaps or runs out of memory. Sources:
Documentation/filesystems/proc.rst (MemAvailable) and the cgroup-v1 and v2 documents of the kernel.
What the kernel does not show is left out; a function returns None when it shows nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path


def usable_processors() -> int:
    """Return the number of processors that this process may use; all where that is unknown."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


_NO_LIMIT = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63
_NAMES = {
    # controller in /proc/self/cgroup: folder, limit, usage, what of it can be taken back
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the free memory of the machine, or of this process's control group if that is less."""
    known = [_machine(root / "proc/meminfo"), *_groups(root)]
    return min((number for number in known if number is not None), default=None)


def _machine(meminfo: Path) -> int | None:
    for line in _text(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _groups(root: Path) -> list[int | None]:
    """Return the free memory of the process's group and of each group above it."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, inside = line.split(":", 2)
        for controller, (folder, *names) in _NAMES.items():
            if controller in controllers.split(",") and (controller or not controllers):
                top = root / "sys/fs/cgroup" / folder
                here = top / inside.lstrip("/")
                groups = [here, *(above for above in here.parents if above.is_relative_to(top))]
                found += [_left(group, *names) for group in groups]
    return found


def _left(group: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> int | None:
    limit, usage = _text(group / limit_name).strip(), _text(group / usage_name).strip()
    if not limit.isdigit() or not usage.isdigit() or int(limit) >= _NO_LIMIT:
        return None
    counts = dict(line.split(None, 1) for line in _text(group / "memory.stat").splitlines())
    return max(0, int(limit) - int(usage) + int(counts.get(reclaimable_name, 0)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


_asked: list[bool] = []


def cold_process_age_s() -> float | None:
    """Return the process's age at the first call; None later, which is no cold start."""
    first = not _asked
    _asked.append(True)
    return process_age_s() if first else None


def process_age_s() -> float | None:
    """Return the seconds since the process's start, to a clock tick (10 ms); None if unknown."""
    try:
        line = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        # The name in parentheses may hold anything; the start is the 20th field after it.
        started_ticks = int(line.rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
