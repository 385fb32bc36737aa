"""Networks in Keras' layers alone, for every backend: fully connected and residual ones.

They are those of the other frameworks' catalogues: the stride of a residual network is in its 3 x 3
convolution, where keras.applications has it in the 1 x 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks._support.models.spec import Shape
from benchmarks.keras._support.framework import keras

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
BLOCKS[152] = (3, 8, 36, 3)
_BOTTLENECK_FROM = 50  # deeper nets have blocks of three convolutions, four times as wide outside


def perceptron(hidden: Sequence[int], classes: int, shape: Shape) -> Any:
    """Build fully connected layers with ReLU between them."""
    layers = keras.layers
    dense = [layers.Dense(width, activation="relu") for width in hidden]
    return keras.Sequential([layers.Input(shape), *dense, layers.Dense(classes, dtype="float32")])


def resnet(depth: int, shape: Shape) -> Any:
    """Build a network of 18, 34, 50, 101 or 152 layers; the shape has the channels last."""
    layers = keras.layers
    images = layers.Input(shape)
    tensor = layers.ReLU()(_normalised(images, 64, size=7, strides=2))
    tensor = layers.MaxPool2D(3, strides=2)(layers.ZeroPadding2D(1)(tensor))
    for stage, count in enumerate(BLOCKS[depth]):
        for number in range(count):
            strides = 2 if stage and not number else 1
            tensor = _block(tensor, 64 * 2**stage, strides, deep=depth >= _BOTTLENECK_FROM)
    tensor = layers.GlobalAveragePooling2D()(tensor)
    return keras.Model(images, layers.Dense(1000, dtype="float32")(tensor))


def _block(tensor: Any, width: int, strides: int, *, deep: bool) -> Any:
    relu = keras.layers.ReLU
    outputs = 4 * width if deep else width
    if deep:
        inner = relu()(_normalised(tensor, width, size=1))
        inner = relu()(_normalised(inner, width, size=3, strides=strides))
        inner = _normalised(inner, outputs, size=1)
    else:
        inner = relu()(_normalised(tensor, width, size=3, strides=strides))
        inner = _normalised(inner, width, size=3)
    if strides != 1 or tensor.shape[-1] != outputs:
        tensor = _normalised(tensor, outputs, size=1, strides=strides)
    return relu()(keras.layers.Add()([tensor, inner]))


def _normalised(tensor: Any, width: int, *, size: int, strides: int = 1) -> Any:
    """Add a convolution, padded on both sides alike (Keras' "same" pads the end), normalised."""
    layers = keras.layers
    if size > 1:
        tensor = layers.ZeroPadding2D(size // 2)(tensor)
    tensor = layers.Conv2D(width, size, strides, use_bias=False)(tensor)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(tensor)
