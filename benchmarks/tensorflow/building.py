"""A Keras model by name, built on a device in a floating point type, and what building it took."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.models.built import Built
from benchmarks.models.spec import spelt
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow.framework import tf
from benchmarks.tensorflow.placement import Placement
from perfrun import SetupError

# The arithmetic is of 16 bits, weights and batch statistics stay in float32.
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclass(frozen=True, kw_only=True)
class Network(Built):
    """A Keras model with random weights."""

    model: Any
    dtype: str

    def parameter_counts(self) -> tuple[int, int]:
        """Return the numbers that the model holds, batch statistics included; and the trained."""
        trained = sum(math.prod(variable.shape) for variable in self.model.trainable_variables)
        return int(self.model.count_params()), trained


def build(
    name: str, *, shape: tuple[int, ...] | None, dtype: str, seed: int, placement: Placement
) -> Network:
    """Build a model of the catalogue; SetupError for a name or a shape that it does not have."""
    spec = catalogue.find(name)
    shape = spec.shape_for(shape)
    tf.keras.utils.set_random_seed(seed)
    began = time.perf_counter()
    try:
        with placement.scope(), precision(dtype):
            model = spec.build(shape)
    except ValueError as error:
        raise SetupError(f"{name} cannot be built for {spelt(shape)}: {_line(error)}") from error
    took_s = time.perf_counter() - began
    return Network(spec=spec, model=model, shape=shape, dtype=dtype, build_s=took_s)


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Let models that are built within have this floating point type."""
    before = tf.keras.mixed_precision.dtype_policy()
    tf.keras.mixed_precision.set_dtype_policy(_POLICIES[dtype])
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_dtype_policy(before)


def _line(error: Exception) -> str:
    # Keras writes in bold, and adds a list of all arguments.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return " ".join(plain.split())[:300]
