"""PyTorch and the time of its import; it must be imported before anything else imports it."""

from __future__ import annotations

import sys
import time

_was_there = "torch" in sys.modules
_began = time.perf_counter()

import torch  # noqa: E402 (the time before is the point)

IMPORT_S: float | None = None if _was_there else time.perf_counter() - _began

__all__ = ["IMPORT_S", "torch"]
