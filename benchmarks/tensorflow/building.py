"""A Keras model by name, built on a device in a floating point type, and what building it took."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.models.known import known_value
from benchmarks.models.spec import ModelSpec
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow.framework import tf
from benchmarks.tensorflow.placement import Placement
from perfrun import SetupError

# The arithmetic is of 16 bits, weights and batch statistics stay in float32.
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model with random weights."""

    spec: ModelSpec
    model: Any
    shape: tuple[int, ...]  # of one example, channels first
    dtype: str
    build_s: float

    @property
    def parameters(self) -> int:
        """Return how many numbers the model holds, batch statistics included."""
        return int(self.model.count_params())

    @property
    def trainable_parameters(self) -> int:
        """Return how many of them training changes."""
        return sum(math.prod(variable.shape) for variable in self.model.trainable_variables)

    def parameter_metrics(self) -> list[dict[str, Any]]:
        """Return both as metrics, which pass only when they are the published ones."""
        own_shape = self.shape == self.spec.input_shape
        found = (
            ("parameters", self.parameters, self.spec.parameters),
            ("trainable_parameters", self.trainable_parameters, self.spec.trainable_parameters),
        )
        return [
            {"name": name, "value": value}
            if published is None or not own_shape
            else known_value(name, value, published)
            for name, value, published in found
        ]


def build(
    name: str, *, shape: tuple[int, ...] | None, dtype: str, seed: int, placement: Placement
) -> Built:
    """Build a model of the catalogue; SetupError for a name or a shape that it does not have."""
    spec = catalogue.find(name)
    shape = _checked(spec, shape)
    tf.keras.utils.set_random_seed(seed)
    began = time.perf_counter()
    try:
        with placement.scope(), precision(dtype):
            model = spec.build(shape)
    except ValueError as error:
        raise SetupError(f"{name} cannot be built for {_spelt(shape)}: {_line(error)}") from error
    took_s = time.perf_counter() - began
    return Built(spec=spec, model=model, shape=shape, dtype=dtype, build_s=took_s)


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Let models that are built within have this floating point type."""
    before = tf.keras.mixed_precision.dtype_policy()
    tf.keras.mixed_precision.set_dtype_policy(_POLICIES[dtype])
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_dtype_policy(before)


def _checked(spec: ModelSpec, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if shape is None:
        return spec.input_shape
    if len(shape) != len(spec.input_shape):
        raise SetupError(
            f"input_shape is {_spelt(shape)}; {spec.name} takes {spec.input_kind}, "
            f"such as {_spelt(spec.input_shape)}"
        )
    return shape


def _spelt(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _line(error: Exception) -> str:
    # Keras writes in bold, and adds a list of all arguments.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return " ".join(plain.split())[:300]
