"""JAX with Flax, and the time of their import; the other modules get both from here."""

from __future__ import annotations

import sys
import time
from importlib import metadata

_was_there = "jax" in sys.modules
_began = time.perf_counter()

import jax  # noqa: E402 (the time before is the point)
import optax  # noqa: E402
from flax import nnx  # noqa: E402

IMPORT_S: float | None = None if _was_there else time.perf_counter() - _began
FLAX_VERSION: str = metadata.version("flax")

__all__ = ["FLAX_VERSION", "IMPORT_S", "jax", "nnx", "optax"]
