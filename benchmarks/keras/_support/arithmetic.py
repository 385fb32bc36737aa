"""Count the arithmetic of a Keras model from the shapes of its layers, the same on any backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks._support.models import counting
from benchmarks._support.models.figures import Work
from benchmarks.keras._support.framework import keras


def count(model: Any, *, training: bool) -> Work:
    """Count the multiply-adds of one example; unknown where a layer's weights are of another kind.

    In training each layer's gradients, of its input and of its weights, cost what the forward pass
    does. The first one's input has none.
    """
    total = 0
    try:
        for layer in _layers(model):
            flops = _forward(layer)
            passes = 3 if training and total else 2 if training else 1
            total += passes * flops
    except (TypeError, ValueError, AttributeError) as error:
        return counting.unknown(str(error))
    return counting.known(total, examples=1, training=training)


def _layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model and of the models within it, in the order of their depth."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer


def _forward(layer: Any) -> int:
    layers = keras.layers
    if isinstance(layer, layers.BatchNormalization) or not _has_matrices(layer):
        return 0
    if isinstance(layer, (layers.Conv2D, layers.DepthwiseConv2D)):
        shape = layer.output.shape
        last = layer.data_format == "channels_last"
        places = shape[1:3] if last else shape[2:4]
        return counting.convolution(layer.kernel.shape, batch=1, places=places)
    if isinstance(layer, layers.Dense):
        return counting.product(layer.input.shape[1:], layer.kernel.shape)
    raise ValueError(f"a layer {type(layer).__name__} is not counted")


def _has_matrices(layer: Any) -> bool:
    return any(len(weight.shape) > 1 for weight in layer.weights)
