"""Keras and the time of its import, its backend's included; the backend is KERAS_BACKEND."""

from __future__ import annotations

import os
import sys
import time

_was_there = "keras" in sys.modules
_CHOSEN = os.environ.get("KERAS_BACKEND")
_began = time.perf_counter()

import keras  # noqa: E402 (the time before is the point)

IMPORT_S: float | None = None if _was_there else time.perf_counter() - _began
BACKEND: str = keras.backend.backend()
CHOSEN_BY = "KERAS_BACKEND" if _CHOSEN else "Keras' settings"

__all__ = ["BACKEND", "CHOSEN_BY", "IMPORT_S", "keras"]
