"""Models by name for Keras on any backend: keras.applications, and networks of Keras' layers.

A plain name is the same architecture as in the other frameworks' catalogues, with the same trained
parameters.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from benchmarks._support.models.naming import PLAIN, Names, print_names, unknown_model
from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.keras._support import nets
from benchmarks.keras._support.framework import keras

MODULE = "benchmarks.keras.catalogue"
KERAS = "keras"

_EFFICIENT = (224, 240, 260, 300, 380, 456, 528, 600)
# Plain names of those that are the same elsewhere: constructor, side of the image in pixels.
_PLAIN = {
    **{f"efficientnet_b{n}": (f"EfficientNetB{n}", side) for n, side in enumerate(_EFFICIENT)},
    **{f"densenet{depth}": (f"DenseNet{depth}", 224) for depth in (121, 169, 201)},
    **{f"vgg{depth}": (f"VGG{depth}", 224) for depth in (16, 19)},
    "inception_v3": ("InceptionV3", 299),
    "mobilenet_v2": ("MobileNetV2", 224),
    "mobilenet_v3_small": ("MobileNetV3Small", 224),
    "mobilenet_v3_large": ("MobileNetV3Large", 224),
}
_SIDES = dict(_PLAIN.values())


def _spec(
    name: str, build: Callable[[Shape], Any], shape: Shape, classes: int, trainable: int | None
) -> ModelSpec:
    image = len(shape) == 3
    return ModelSpec(
        name=name,
        library="keras",
        input_kind="image" if image else "features",
        input_shape=shape,
        classes=classes,
        build=(lambda given: build((*given[1:], given[0]))) if image else build,
        trainable_parameters=trainable,
    )


def _application(constructor: str, name: str) -> ModelSpec:
    side = _SIDES.get(constructor, 224)
    build = functools.partial(_build_application, constructor)
    return _spec(name, build, (3, side, side), 1000, None)


def _build_application(constructor: str, shape: Shape) -> Any:
    build = getattr(keras.applications, constructor)
    model = build(weights=None, input_shape=shape, classes=1000, classifier_activation=None)
    # Under a 16-bit policy the logits are of 16 bits, too, and a loss of these would be a guess.
    logits = keras.layers.Activation("linear", dtype="float32")(model.output)
    return keras.Model(model.input, logits, name=model.name)


_RESIDUAL = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}
_WIDTHS = {
    "deep_mnist": ((2500, 2000, 1500, 1000, 500), 10, 784, 11_972_510),
    "acoustic_model": ((2048,) * 5, 8192, 540, 34_678_784),
    "sensor_net": ((1024,) * 3, 16, 784, 2_919_440),
}
_OWN = {
    **{
        f"resnet{depth}": _spec(
            *(f"resnet{depth}", functools.partial(nets.resnet, depth), (3, 224, 224), 1000, count)
        )
        for depth, count in _RESIDUAL.items()
    },
    **{
        name: _spec(
            *(name, functools.partial(nets.perceptron, widths, classes), (features,), classes),
            count,
        )
        for name, (widths, classes, features, count) in _WIDTHS.items()
    },
}


def find(name: str) -> ModelSpec:
    """Return the model of a name; SetupError names the nearest ones when there is none."""
    library, colon, rest = name.partition(":")
    if not colon and name in _OWN:
        return _OWN[name]
    if not colon and name in _PLAIN:
        return _application(_PLAIN[name][0], name)
    if library == KERAS and rest in _applications():
        return _application(rest, name)
    raise unknown_model(name, names(), "Keras", MODULE)


def _applications() -> tuple[str, ...]:
    return tuple(
        name
        for name, found in vars(keras.applications).items()
        if name[0].isupper() and callable(found)
    )


def names() -> tuple[str, ...]:
    """Return all names that `find` knows."""
    return tuple(name for names_of in names_by_library().values() for name in names_of())


def names_by_library() -> dict[str, Names]:
    """Return the plain names, and those of keras.applications with their prefix."""
    return {
        PLAIN: lambda: (*_PLAIN, *_OWN),
        KERAS: lambda: tuple(f"{KERAS}:{name}" for name in _applications()),
    }


if __name__ == "__main__":
    sys.exit(print_names(names_by_library(), MODULE, sys.argv[1:]))
