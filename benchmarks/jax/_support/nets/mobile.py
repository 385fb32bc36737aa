"""MobileNets and EfficientNets for JAX, as torchvision has them: inverted residual blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks._support.models.spec import Shape
from benchmarks.jax._support.flax_library import nnx
from benchmarks.jax._support.nets.layers import Chain, Function, Layers, chain, mean_of_pixels

# Width and depth over those of B0, and the share of units that dropout leaves out before the end.
_SCALES = {
    0: (1.0, 1.0, 0.2),
    1: (1.0, 1.1, 0.2),
    2: (1.1, 1.2, 0.3),
    3: (1.2, 1.4, 0.3),
    4: (1.4, 1.8, 0.4),
    5: (1.6, 2.2, 0.4),
    6: (1.8, 2.6, 0.5),
    7: (2.0, 3.1, 0.5),
}
# Expansion, kernel, stride, channels, blocks of B0 (Tan, Le, arXiv:1905.11946, table 1).
_STAGES = (
    *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
    *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
)
_STOCHASTIC_DEPTH = 0.2  # of the last block; it grows from 0


def efficientnet(number: int, shape: Shape, layers: Layers) -> Chain:
    """Build EfficientNet-B0 to B7."""
    width, depth, dropout = _SCALES[number]
    # B5 to B7 have other constants of batch normalisation.
    norm = {"epsilon": 1e-3, "momentum": 0.99} if number >= 5 else {}

    def scaled(channels: int) -> int:
        return _eighths(channels * width)

    counts = [math.ceil(blocks * depth) for *_, blocks in _STAGES]
    inputs = scaled(32)
    parts = _convolved(layers, shape[0], inputs, 3, strides=2, after=nnx.silu, norm=norm)
    done = 0
    for (expansion, kernel, strides, channels, _), count in zip(_STAGES, counts, strict=True):
        outputs = scaled(channels)
        for repeat in range(count):
            block = _Inverted(
                layers,
                inputs,
                inputs * expansion,
                outputs,
                kernel,
                1 if repeat else strides,
                after=nnx.silu,
                squeezed=max(1, inputs // 4),
                gate=nnx.sigmoid,
                squeeze_after=nnx.silu,
                drop=_STOCHASTIC_DEPTH * done / sum(counts),
                norm=norm,
            )
            parts.append(block)
            inputs = outputs
            done += 1
    parts += _convolved(layers, inputs, 4 * inputs, 1, after=nnx.silu, norm=norm)
    return chain([*parts, mean_of_pixels, layers.dropout(dropout), layers.dense(4 * inputs, 1000)])


def mobilenet_v2(shape: Shape, layers: Layers) -> Chain:
    """Build MobileNetV2 (arXiv:1801.04381)."""
    stages = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )
    parts = _convolved(layers, shape[0], 32, 3, strides=2, after=nnx.relu6)
    inputs = 32
    for expansion, outputs, count, strides in stages:
        for repeat in range(count):
            parts.append(
                _Inverted(
                    *(layers, inputs, inputs * expansion, outputs, 3, 1 if repeat else strides),
                    after=nnx.relu6,
                )
            )
            inputs = outputs
    parts += _convolved(layers, inputs, 1280, 1, after=nnx.relu6)
    return chain([*parts, mean_of_pixels, layers.dropout(0.2), layers.dense(1280, 1000)])


# Kernel, expanded channels, channels, squeeze, hard swish, stride (arXiv:1905.02244, tables 1, 2).
_LARGE = (
    *((3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1)),
    *((5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1)),
    *((3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1)),
    *((3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1)),
    *((5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1)),
)
_SMALL = (
    *((3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1)),
    *((5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1)),
    *((5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2)),
    *((5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1)),
)


def mobilenet_v3(size: str, shape: Shape, layers: Layers) -> Chain:
    """Build MobileNetV3, `large` or `small`."""
    rows: Sequence[tuple[int, int, int, bool, bool, int]]
    rows, last = (_LARGE, 1280) if size == "large" else (_SMALL, 1024)
    norm = {"epsilon": 1e-3, "momentum": 0.99}
    parts = _convolved(layers, shape[0], 16, 3, strides=2, after=nnx.hard_swish, norm=norm)
    inputs = 16
    for kernel, expanded, outputs, squeezes, swishes, strides in rows:
        parts.append(
            _Inverted(
                *(layers, inputs, expanded, outputs, kernel, strides),
                after=nnx.hard_swish if swishes else nnx.relu,
                squeezed=_eighths(expanded / 4) if squeezes else 0,
                gate=nnx.hard_sigmoid,
                squeeze_after=nnx.relu,
                norm=norm,
            )
        )
        inputs = outputs
    parts += _convolved(layers, inputs, 6 * inputs, 1, after=nnx.hard_swish, norm=norm)
    head = [layers.dense(6 * inputs, last), nnx.hard_swish, layers.dropout(0.2)]
    return chain([*parts, mean_of_pixels, *head, layers.dense(last, 1000)])


def _eighths(channels: float) -> int:
    """Return the nearest multiple of eight, and not less than nine tenths of the channels."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class _Inverted(nnx.Module):  # type: ignore[misc]
    """Widen, convolve each channel alone, weigh the channels, narrow, and add the input."""

    def __init__(
        self,
        layers: Layers,
        inputs: int,
        expanded: int,
        outputs: int,
        kernel: int,
        strides: int,
        *,
        after: Function,
        squeezed: int = 0,
        gate: Function = nnx.sigmoid,
        squeeze_after: Function = nnx.relu,
        drop: float = 0.0,
        norm: dict[str, Any] | None = None,
    ) -> None:
        parts: list[Any] = []
        if expanded != inputs:
            parts += _convolved(layers, inputs, expanded, 1, after=after, norm=norm)
        parts += _convolved(
            *(layers, expanded, expanded, kernel),
            strides=strides,
            groups=expanded,
            after=after,
            norm=norm,
        )
        if squeezed:
            parts.append(_Squeeze(layers, expanded, squeezed, squeeze_after, gate))
        parts += _convolved(layers, expanded, outputs, 1, norm=norm)
        self.inner = chain(parts)
        self.adds = strides == 1 and inputs == outputs
        self.drop = _StochasticDepth(layers, drop) if drop and self.adds else None

    def __call__(self, images: Any) -> Any:
        result = self.inner(images)
        if not self.adds:
            return result
        return images + (result if self.drop is None else self.drop(result))


class _StochasticDepth(nnx.Module):  # type: ignore[misc]
    """Dropout of whole examples (arXiv:1603.09382)."""

    def __init__(self, layers: Layers, rate: float) -> None:
        self.dropout = layers.dropout(rate)
        self.dropout.broadcast_dims = (1, 2, 3)

    def __call__(self, images: Any) -> Any:
        return self.dropout(images)


class _Squeeze(nnx.Module):  # type: ignore[misc]
    """Weights of the channels, from the mean of each (arXiv:1709.01507)."""

    def __init__(
        self, layers: Layers, channels: int, squeezed: int, after: Function, gate: Function
    ) -> None:
        self.narrow = layers.convolution(channels, squeezed, 1)
        self.widen = layers.convolution(squeezed, channels, 1)
        self.after, self.gate = after, gate

    def __call__(self, images: Any) -> Any:
        means = images.mean(axis=(1, 2), keepdims=True)
        return images * self.gate(self.widen(self.after(self.narrow(means))))


def _convolved(
    layers: Layers,
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    strides: int = 1,
    groups: int = 1,
    after: Function | None = None,
    norm: dict[str, Any] | None = None,
) -> list[Any]:
    convolution = layers.convolution(
        *(inputs, outputs, kernel, strides), padding=kernel // 2, groups=groups, bias=False
    )
    normalised = [convolution, layers.batch_norm(outputs, **(norm or {}))]
    return normalised if after is None else [*normalised, after]
