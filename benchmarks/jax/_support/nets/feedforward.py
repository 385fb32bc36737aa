"""Fully connected and convolutional networks for JAX, those of the other frameworks' catalogues.

The nets that DLBS had and no library has are of the sizes of DLBS' PyTorch versions; VGG and the
residual networks are as torchvision has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks._support.models.spec import Shape
from benchmarks.jax._support.flax_library import nnx
from benchmarks.jax._support.framework import jax
from benchmarks.jax._support.nets.layers import Chain, Layers, chain, flat, mean_of_pixels, pool

jnp = jax.numpy
DEEP_MNIST, ACOUSTIC_MODEL, SENSOR_NET = (2500, 2000, 1500, 1000, 500), (2048,) * 5, (1024,) * 3


def perceptron(hidden: Sequence[int], classes: int, shape: Shape, layers: Layers) -> Chain:
    """Build fully connected layers with ReLU between them."""
    parts: list[Any] = []
    for inputs, outputs in pairwise((shape[0], *hidden, classes)):
        parts += [layers.dense(inputs, outputs), nnx.relu]
    return chain(parts[:-1])


def alexnet(shape: Shape, layers: Layers) -> Chain:
    """Build AlexNet for one device (no groups), with local response normalisation."""
    features = (
        *_convolution(layers, 3, 96, 11, strides=4),
        *(response_normalised, pool(3, 2)),
        *_convolution(layers, 96, 256, 5, padding=2),
        *(response_normalised, pool(3, 2)),
        *_convolution(layers, 256, 384, 3, padding=1),
        *_convolution(layers, 384, 384, 3, padding=1),
        *_convolution(layers, 384, 256, 3, padding=1),
        pool(3, 2),
    )
    return _classified(layers, shape, features, (4096, 4096))


def alexnet_owt(shape: Shape, layers: Layers) -> Chain:
    """Build the AlexNet of "One weird trick" (arXiv:1404.5997): narrower, no normalisation."""
    features = (
        *_convolution(layers, 3, 64, 11, strides=4, padding=2),
        pool(3, 2),
        *_convolution(layers, 64, 192, 5, padding=2),
        pool(3, 2),
        *_convolution(layers, 192, 384, 3, padding=1),
        *_convolution(layers, 384, 256, 3, padding=1),
        *_convolution(layers, 256, 256, 3, padding=1),
        pool(3, 2),
    )
    return _classified(layers, shape, features, (4096, 4096))


def overfeat(shape: Shape, layers: Layers) -> Chain:
    """Build the fast model of OverFeat (arXiv:1312.6229)."""
    features = (
        *_convolution(layers, 3, 96, 11, strides=4),
        pool(2, 2),
        *_convolution(layers, 96, 256, 5),
        pool(2, 2),
        *_convolution(layers, 256, 512, 3, padding=1),
        *_convolution(layers, 512, 1024, 3, padding=1),
        *_convolution(layers, 1024, 1024, 3, padding=1),
        pool(2, 2),
    )
    return _classified(layers, shape, features, (3072, 4096))


_VGG = {11: (1, 1, 2, 2, 2), 13: (2,) * 5, 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(depth: int, shape: Shape, layers: Layers) -> Chain:
    """Build the VGG network (arXiv:1409.1556) of 11, 13, 16 or 19 layers."""
    parts: list[Any] = []
    inputs = shape[0]
    for count, outputs in zip(_VGG[depth], (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            parts += _convolution(layers, inputs, outputs, 3, padding=1)
            inputs = outputs
        parts.append(pool(2, 2))
    return _classified(layers, shape, parts, (4096, 4096), dropout_first=False)


def response_normalised(images: Any) -> Any:
    """Divide by a power of the mean square of five neighbouring channels."""
    squares = jax.lax.square(images)[..., None]
    means = nnx.avg_pool(squares, (1, 1, 5), (1, 1, 1), "SAME")[..., 0]
    return images * (2.0 + 1e-4 * means) ** -0.75


def _convolution(layers: Layers, inputs: int, outputs: int, size: int, **more: Any) -> list[Any]:
    return [layers.convolution(inputs, outputs, size, **more), nnx.relu]


def _classified(
    layers: Layers,
    shape: Shape,
    features: Sequence[Any],
    widths: tuple[int, int],
    *,
    dropout_first: bool = True,
) -> Chain:
    """Add the two hidden layers and the logits; the images' shape says how many values come in."""
    body = chain(features)
    outline = jax.ShapeDtypeStruct((1, *shape[1:], shape[0]), jnp.float32)
    values = jax.eval_shape(lambda images: flat(body(images)), outline).shape[1]
    first, second = widths
    if dropout_first:
        hidden = [layers.dropout(0.5), layers.dense(values, first), nnx.relu]
        hidden += [layers.dropout(0.5), layers.dense(first, second), nnx.relu]
    else:  # VGG's
        hidden = [layers.dense(values, first), nnx.relu, layers.dropout(0.5)]
        hidden += [layers.dense(first, second), nnx.relu, layers.dropout(0.5)]
    return chain([body, flat, *hidden, layers.dense(second, 1000)])


_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
_BLOCKS[152] = (3, 8, 36, 3)
_BOTTLENECK_FROM = 50  # deeper nets have blocks of three convolutions, four times as wide outside


def resnet(depth: int, shape: Shape, layers: Layers) -> Chain:
    """Build a residual network of 18, 34, 50, 101 or 152 layers; its stride is in the 3 x 3."""
    wider = 4 if depth >= _BOTTLENECK_FROM else 1
    parts = [*_normalised(layers, shape[0], 64, 7, 2), nnx.relu, pool(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(_BLOCKS[depth]):
        width = 64 * 2**stage
        for number in range(count):
            strides = 2 if stage and not number else 1
            parts.append(_Residual(layers, inputs, width, strides, wider))
            inputs = width * wider
    return chain([*parts, mean_of_pixels, layers.dense(inputs, 1000)])


class _Residual(nnx.Module):  # type: ignore[misc]
    """A block whose input is added to its result."""

    def __init__(self, layers: Layers, inputs: int, width: int, strides: int, wider: int) -> None:
        if wider == 1:
            parts = [*_normalised(layers, inputs, width, 3, strides), nnx.relu]
            parts += _normalised(layers, width, width, 3)
        else:
            parts = [*_normalised(layers, inputs, width, 1), nnx.relu]
            parts += [*_normalised(layers, width, width, 3, strides), nnx.relu]
            parts += _normalised(layers, width, width * wider, 1)
        self.inner = chain(parts)
        outputs = width * wider
        is_same = strides == 1 and inputs == outputs
        self.shortcut = chain([] if is_same else _normalised(layers, inputs, outputs, 1, strides))

    def __call__(self, images: Any) -> Any:
        return nnx.relu(self.shortcut(images) + self.inner(images))


def _normalised(
    layers: Layers, inputs: int, outputs: int, size: int, strides: int = 1
) -> list[Any]:
    convolution = layers.convolution(inputs, outputs, size, strides, padding=size // 2, bias=False)
    return [convolution, layers.batch_norm(outputs)]
