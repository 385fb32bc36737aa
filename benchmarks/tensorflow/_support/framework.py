"""TensorFlow and the time of its import; the other modules get it from here."""

from __future__ import annotations

import sys
import time

_was_there = "tensorflow" in sys.modules
_began = time.perf_counter()

import tensorflow as tf  # noqa: E402 (the time before is the point)

# Keras is loaded at the first use of `tf.keras`; no benchmark here does without it.
KERAS_VERSION: str = tf.keras.__version__
IMPORT_S: float | None = None if _was_there else time.perf_counter() - _began

__all__ = ["IMPORT_S", "KERAS_VERSION", "tf"]
