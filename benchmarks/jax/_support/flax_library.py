"""Flax and optax, and the time of JAX' import and theirs; Keras with JAX does without both."""

from __future__ import annotations

import time
from importlib import metadata

from benchmarks.jax._support.framework import IMPORT_S as _JAX_S

_began = time.perf_counter()

import optax  # noqa: E402 (the time before is the point)
from flax import nnx  # noqa: E402

IMPORT_S: float | None = None if _JAX_S is None else _JAX_S + time.perf_counter() - _began
FLAX_VERSION: str = metadata.version("flax")

__all__ = ["FLAX_VERSION", "IMPORT_S", "nnx", "optax"]
