"""Residual networks as torchvision has them, in Keras: the stride is in the 3 x 3 convolution.

keras.applications' ResNet50 is the first version of the paper (arXiv:1512.03385): its stride is in
the 1 x 1 convolution, its convolutions have biases, and there is no ResNet-18 or 34.
"""

from __future__ import annotations

from typing import Any

from benchmarks.tensorflow.framework import tf

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
BLOCKS[152] = (3, 8, 36, 3)
BOTTLENECK_FROM = 50  # deeper nets have blocks of three convolutions, four times as wide outside


def resnet(depth: int, input_shape: tuple[int, ...] = (224, 224, 3)) -> Any:
    """Return a network of 18, 34, 50, 101 or 152 layers with random weights; it gives logits."""
    layers = tf.keras.layers
    images = layers.Input(input_shape)
    tensor = _convolve(images, 64, size=7, strides=2)
    tensor = layers.ReLU()(tensor)
    tensor = layers.ZeroPadding2D(1)(tensor)  # after ReLU zero is as small as anything
    tensor = layers.MaxPool2D(3, strides=2)(tensor)
    block = _bottleneck if depth >= BOTTLENECK_FROM else _basic
    for stage, count in enumerate(BLOCKS[depth]):
        for number in range(count):
            tensor = block(tensor, 64 * 2**stage, strides=2 if stage and not number else 1)
    tensor = layers.GlobalAveragePooling2D()(tensor)
    return tf.keras.Model(
        images, layers.Dense(1000, dtype="float32")(tensor), name=f"resnet{depth}"
    )


def _basic(tensor: Any, width: int, strides: int) -> Any:
    layers = tf.keras.layers
    inner = layers.ReLU()(_convolve(tensor, width, size=3, strides=strides))
    inner = _convolve(inner, width, size=3)
    return layers.ReLU()(layers.Add()([_shortcut(tensor, width, strides), inner]))


def _bottleneck(tensor: Any, width: int, strides: int) -> Any:
    layers = tf.keras.layers
    inner = layers.ReLU()(_convolve(tensor, width, size=1))
    inner = layers.ReLU()(_convolve(inner, width, size=3, strides=strides))
    inner = _convolve(inner, 4 * width, size=1)
    return layers.ReLU()(layers.Add()([_shortcut(tensor, 4 * width, strides), inner]))


def _shortcut(tensor: Any, width: int, strides: int) -> Any:
    if strides == 1 and tensor.shape[-1] == width:
        return tensor
    return _convolve(tensor, width, size=1, strides=strides)


def _convolve(tensor: Any, width: int, *, size: int, strides: int = 1) -> Any:
    """A convolution, padded on both sides alike (Keras' "same" pads the end), normalised."""
    layers = tf.keras.layers
    if size > 1:
        tensor = layers.ZeroPadding2D(size // 2)(tensor)
    tensor = layers.Conv2D(width, size, strides, use_bias=False)(tensor)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(tensor)
