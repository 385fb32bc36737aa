"""Fully connected and convolutional networks in Keras layers, with random weights and logits.

The nets that DLBS had and no library has are of the sizes of DLBS' PyTorch versions
(HewlettPackard/dlcookbook-dlbs, pytorch_benchmarks). Residual networks are as torchvision has them:
the stride is in the 3 x 3 convolution. keras.applications' ResNet50 is the first version of the
paper (arXiv:1512.03385): its stride is in the 1 x 1 convolution, its convolutions have biases, and
there is no ResNet-18 or 34.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.tensorflow._support.framework import tf

Shape = tuple[int, ...]


def deep_mnist(input_shape: Shape = (784,)) -> Any:
    """Build a fully connected network of 10 classes."""
    return _fully_connected("deep_mnist", input_shape, (2500, 2000, 1500, 1000, 500), 10)


def acoustic_model(input_shape: Shape = (540,)) -> Any:
    """Build a fully connected network as in speech recognition, of 8192 states."""
    return _fully_connected("acoustic_model", input_shape, (2048,) * 5, 8192)


def sensor_net(input_shape: Shape = (784,)) -> Any:
    """Build a fully connected network of 16 classes."""
    return _fully_connected("sensor_net", input_shape, (1024,) * 3, 16)


def alexnet(input_shape: Shape = (227, 227, 3)) -> Any:
    """Build AlexNet for one device (no groups), with local response normalisation."""
    features = (
        *(_convolution(96, 11, strides=4), _response_normalisation(), _pool(3)),
        *(_convolution(256, 5, padding=2), _response_normalisation(), _pool(3)),
        _convolution(384, 3, padding=1),
        _convolution(384, 3, padding=1),
        *(_convolution(256, 3, padding=1), _pool(3)),
    )
    return _convolutional("alexnet", input_shape, features, (4096, 4096))


def alexnet_owt(input_shape: Shape = (227, 227, 3)) -> Any:
    """Build the AlexNet of "One weird trick" (arXiv:1404.5997): narrower, no normalisation."""
    features = (
        tf.keras.layers.ZeroPadding2D(2),
        *(_convolution(64, 11, strides=4), _pool(3)),
        *(_convolution(192, 5, padding=2), _pool(3)),
        _convolution(384, 3, padding=1),
        _convolution(256, 3, padding=1),
        *(_convolution(256, 3, padding=1), _pool(3)),
    )
    return _convolutional("alexnet_owt", input_shape, features, (4096, 4096))


def overfeat(input_shape: Shape = (231, 231, 3)) -> Any:
    """Build the fast model of OverFeat (arXiv:1312.6229)."""
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
    # At stride 1, "same" pads half of an odd size on each side, as DLBS' explicit padding does.
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
    """Add a convolution, padded on both sides alike (Keras' "same" pads the end), normalised."""
    layers = tf.keras.layers
    if size > 1:
        tensor = layers.ZeroPadding2D(size // 2)(tensor)
    tensor = layers.Conv2D(width, size, strides, use_bias=False)(tensor)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(tensor)
