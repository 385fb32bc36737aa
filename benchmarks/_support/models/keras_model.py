"""A model in Keras' layers, for benchmarks of TensorFlow and of Keras on any backend.

No framework is imported here: `keras` is the module that the benchmark measures, `tf.keras` or
`keras` itself.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks._support.models.spec import Built, ModelSpec, Shape, spelt
from perfrun import SetupError

# The arithmetic is of 16 bits, weights and batch statistics stay in float32.
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclass(frozen=True, kw_only=True)
class Network(Built):
    """A Keras model with random weights."""

    model: Any
    dtype: str

    def parameter_counts(self) -> tuple[int, int]:
        """Return the number of all weights, batch statistics included, and of the trained ones."""
        trained = sum(math.prod(variable.shape) for variable in self.model.trainable_variables)
        return int(self.model.count_params()), trained


def build(keras: Any, spec: ModelSpec, shape: Shape, *, dtype: str, seed: int) -> Network:
    """Build a model with the seed's weights; SetupError for a shape that it cannot have."""
    keras.utils.set_random_seed(seed)
    began = time.perf_counter()
    try:
        with precision(keras, dtype):
            model = spec.build(shape)
    except ValueError as error:
        line = _line(error)
        raise SetupError(f"{spec.name} cannot be built for {spelt(shape)}: {line}") from error
    took_s = time.perf_counter() - began
    return Network(spec=spec, model=model, shape=shape, dtype=dtype, build_s=took_s)


@contextlib.contextmanager
def precision(keras: Any, dtype: str) -> Iterator[None]:
    """Give models that are built within this context a floating point type."""
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(_POLICIES[dtype])
    try:
        yield
    finally:
        keras.mixed_precision.set_dtype_policy(before)


def scales_pixels(keras: Any, model: Any) -> bool:
    """Return True when the model scales pixels itself, as EfficientNet does."""
    kinds = (keras.layers.Rescaling, keras.layers.Normalization)
    waiting = list(model.layers)
    while waiting:
        layer = waiting.pop()
        if isinstance(layer, kinds):
            return True
        waiting.extend(getattr(layer, "layers", ()))
    return False


def _line(error: Exception) -> str:
    # Keras writes in bold, and adds a list of all arguments.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return " ".join(plain.split())[:300]
