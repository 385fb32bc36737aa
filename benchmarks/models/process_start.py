"""How long this process has been there, by the kernel's account: what came before Python counts."""

from __future__ import annotations

import os
import time
from pathlib import Path

_asked: list[bool] = []


def cold_age_s() -> float | None:
    """Return `age_s` the first time; None after that: what begins later is no cold start."""
    first = not _asked
    _asked.append(True)
    return age_s() if first else None


def age_s() -> float | None:
    """Return seconds since the process was started, to a clock tick (10 ms); None: not told."""
    try:
        line = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        # The name in parentheses may hold anything; the start is the 20th field after it.
        started_ticks = int(line.rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
