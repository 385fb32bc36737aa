"""The nets that DLBS had and no library has, in Keras, with random weights and logits as output.

Sizes are those of DLBS' PyTorch versions (HewlettPackard/dlcookbook-dlbs, pytorch_benchmarks).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.tensorflow.framework import tf

Shape = tuple[int, ...]


def deep_mnist(input_shape: Shape = (784,)) -> Any:
    """Fully connected, 10 classes."""
    return _fully_connected("deep_mnist", input_shape, (2500, 2000, 1500, 1000, 500), 10)


def acoustic_model(input_shape: Shape = (540,)) -> Any:
    """Fully connected, as in speech recognition: 8192 states."""
    return _fully_connected("acoustic_model", input_shape, (2048,) * 5, 8192)


def sensor_net(input_shape: Shape = (784,)) -> Any:
    """Fully connected, 16 classes."""
    return _fully_connected("sensor_net", input_shape, (1024,) * 3, 16)


def alexnet(input_shape: Shape = (227, 227, 3)) -> Any:
    """AlexNet on one device (no groups), with local response normalisation."""
    features = (
        *(_convolution(96, 11, strides=4), _response_normalisation(), _pool(3)),
        *(_convolution(256, 5, padding=2), _response_normalisation(), _pool(3)),
        _convolution(384, 3, padding=1),
        _convolution(384, 3, padding=1),
        *(_convolution(256, 3, padding=1), _pool(3)),
    )
    return _convolutional("alexnet", input_shape, features, (4096, 4096))


def alexnet_owt(input_shape: Shape = (227, 227, 3)) -> Any:
    """AlexNet of "One weird trick" (arXiv:1404.5997): narrower, no normalisation."""
    features = (
        *(_convolution(64, 11, strides=4), _pool(3)),
        *(_convolution(192, 5, padding=2), _pool(3)),
        _convolution(384, 3, padding=1),
        _convolution(256, 3, padding=1),
        *(_convolution(256, 3, padding=1), _pool(3)),
    )
    return _convolutional("alexnet_owt", input_shape, features, (4096, 4096))


def overfeat(input_shape: Shape = (231, 231, 3)) -> Any:
    """The fast model of OverFeat (arXiv:1312.6229)."""
    features = (
        *(_convolution(96, 11, strides=4), _pool(2)),
        *(_convolution(256, 5), _pool(2)),
        _convolution(512, 3, padding=1),
        _convolution(1024, 3, padding=1),
        *(_convolution(1024, 3, padding=1), _pool(2)),
    )
    return _convolutional("overfeat", input_shape, features, (3072, 4096))


def _fully_connected(name: str, input_shape: Shape, widths: Sequence[int], classes: int) -> Any:
    layers = tf.keras.layers
    hidden = [layers.Dense(width, activation="relu") for width in widths]
    return tf.keras.Sequential(
        [layers.Input(input_shape), *hidden, _logits(classes)],
        name=name,
    )


def _convolutional(
    name: str, input_shape: Shape, features: Sequence[Any], widths: Sequence[int]
) -> Any:
    layers = tf.keras.layers
    hidden = [
        layer
        for width in widths
        for layer in (layers.Dense(width, activation="relu"), layers.Dropout(0.5))
    ]
    return tf.keras.Sequential(
        [layers.Input(input_shape), *features, layers.Flatten(), *hidden, _logits(1000)],
        name=name,
    )


def _convolution(filters: int, size: int, strides: int = 1, padding: int = 0) -> Any:
    # Half of an odd size on each side, DLBS' explicit padding, is what "same" is at stride 1.
    mode = "same" if padding else "valid"
    return tf.keras.layers.Conv2D(filters, size, strides, padding=mode, activation="relu")


def _pool(size: int) -> Any:
    return tf.keras.layers.MaxPool2D(size, strides=2)


def _response_normalisation() -> Any:
    # TensorFlow's alpha multiplies the sum over the window of five, PyTorch's the mean.
    return tf.keras.layers.Lambda(
        lambda images: tf.nn.local_response_normalization(
            images, depth_radius=2, bias=2.0, alpha=1e-4 / 5, beta=0.75
        )
    )


def _logits(classes: int) -> Any:
    return tf.keras.layers.Dense(classes, dtype="float32")
