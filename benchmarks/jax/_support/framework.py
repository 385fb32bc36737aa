"""JAX and the time of its import; the other modules get it from here."""

from __future__ import annotations

import sys
import time

_was_there = "jax" in sys.modules
_began = time.perf_counter()

import jax  # noqa: E402 (the time before is the point)

IMPORT_S: float | None = None if _was_there else time.perf_counter() - _began

__all__ = ["IMPORT_S", "jax"]
