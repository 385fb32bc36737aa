"""The processors that this process may use."""

from __future__ import annotations

import os


def usable() -> int:
    """Return how many of them there are; of a machine that does not tell, all that it has."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1
