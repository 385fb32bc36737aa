"""The layers that the networks for JAX are made of: Flax' own, channels last, in one type.

Weights stay in float32; the arithmetic is done in `dtype`, as Flax does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.jax._support.flax_library import nnx
from benchmarks.jax._support.framework import jax

jnp = jax.numpy
Function = Callable[[Any], Any]


class Layers:
    """Makes layers that compute in a type, with the weights of a seed.

    numpy draws the weights: Flax' own initialisers are compiled for each shape, which takes longer
    than all else of building a model.
    """

    def __init__(self, dtype: str, seed: int = 0) -> None:
        self.dtype = jnp.dtype(dtype)
        self._rngs = nnx.Rngs(seed)
        self._numbers = np.random.default_rng(seed)

    def _kernel(self, _key: Any, shape: tuple[int, ...], *_dtype: Any) -> Any:
        """Draw weights as PyTorch's layers do by default: uniform, within 1 / sqrt(inputs).

        With the larger ones of arXiv:1502.01852, networks without normalisation diverge within a
        few steps at the learning rate that all frameworks use here.
        """
        limit = 1 / math.sqrt(math.prod(shape[:-1]))
        values = self._numbers.random(shape, np.float32)
        values *= np.float32(2 * limit)
        values -= np.float32(limit)
        return values

    def _table(self, _key: Any, shape: tuple[int, ...], *_dtype: Any) -> Any:
        return self._drawn(shape, 0.02)

    def _drawn(self, shape: tuple[int, ...], deviation: float) -> Any:
        values = self._numbers.standard_normal(shape, np.float32)
        return np.multiply(values, np.float32(deviation), out=values)

    def convolution(
        self,
        inputs: int,
        outputs: int,
        size: int,
        strides: int = 1,
        *,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> Any:
        """Return a convolution with a frame of `padding` zeros on every side."""
        return nnx.Conv(
            inputs,
            outputs,
            (size, size),
            strides,
            padding=padding,
            feature_group_count=groups,
            use_bias=bias,
            kernel_init=self._kernel,
            bias_init=_zeros,
            dtype=self.dtype,
            rngs=self._rngs,
        )

    def batch_norm(self, features: int, *, epsilon: float = 1e-5, momentum: float = 0.9) -> Any:
        """Return batch normalisation; its statistics are computed in float32."""
        return nnx.BatchNorm(
            features, momentum=momentum, epsilon=epsilon, **self._scaling(), bias_init=_zeros
        )

    def dense(self, inputs: int, outputs: int, *, bias: bool = True) -> Any:
        """Return a fully connected layer."""
        return nnx.Linear(
            inputs,
            outputs,
            use_bias=bias,
            kernel_init=self._kernel,
            bias_init=_zeros,
            dtype=self.dtype,
            rngs=self._rngs,
        )

    def layer_norm(self, features: int, epsilon: float) -> Any:
        """Return layer normalisation."""
        return nnx.LayerNorm(features, epsilon=epsilon, **self._scaling(), bias_init=_zeros)

    def rms_norm(self, features: int, epsilon: float) -> Any:
        """Return normalisation by the root of the mean square, without a mean."""
        return nnx.RMSNorm(features, epsilon=epsilon, **self._scaling())

    def embedding(self, count: int, features: int) -> Any:
        """Return a table of vectors."""
        return nnx.Embed(
            count, features, embedding_init=self._table, dtype=self.dtype, rngs=self._rngs
        )

    def weight(self, *shape: int) -> Any:
        """Return a weight that is no layer's."""
        return nnx.Param(self._drawn(shape, 0.02))

    def dropout(self, rate: float) -> Any:
        """Return dropout; in inference it does nothing."""
        return nnx.Dropout(rate, rngs=self._rngs)

    def _scaling(self) -> dict[str, Any]:
        return {"scale_init": _ones, "dtype": self.dtype, "rngs": self._rngs}


def _zeros(_key: Any, shape: tuple[int, ...], *_dtype: Any) -> Any:
    return np.zeros(shape, np.float32)


def _ones(_key: Any, shape: tuple[int, ...], *_dtype: Any) -> Any:
    return np.ones(shape, np.float32)


class Chain(nnx.Module):  # type: ignore[misc]
    """Layers and functions, one after the other."""

    def __init__(self, *parts: Any) -> None:
        self.parts = nnx.List(parts)

    def __call__(self, values: Any) -> Any:
        for part in self.parts:
            values = part(values)
        return values


def pool(size: int, strides: int, padding: int = 0) -> Function:
    """Return a function that takes the largest value of each window."""
    frame = ((padding, padding), (padding, padding))
    return lambda images: nnx.max_pool(images, (size, size), (strides, strides), frame)


def flat(images: Any) -> Any:
    """Return each example as one row."""
    return images.reshape(images.shape[0], -1)


def mean_of_pixels(images: Any) -> Any:
    """Return the mean of each channel."""
    return images.mean(axis=(1, 2))


def chain(parts: Sequence[Any]) -> Chain:
    """Return a module that runs the parts one after the other."""
    return Chain(*parts)
