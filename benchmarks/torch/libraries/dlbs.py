"""The models of DLBS' list, `dlbs:NAME`: defined here, or taken from the library that has them.

Parameter counts are those of DLBS' documentation where the net is the same. Its inception3 and
inception4 carry a bias beside each batch normalisation, which cancels it; the libraries' have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.models.spec import ModelSpec, Shape
from benchmarks.torch import vision
from benchmarks.torch.nets import convolutional, dense
from perfrun import SetupError

PREFIX = "dlbs"


def _fixed(
    name: str, build: Callable[[], Any], shape: Shape, classes: int, count: int
) -> ModelSpec:
    def built(given: Shape) -> Any:
        # Their first dense layer has the size that this shape leads to.
        if given != shape:
            raise SetupError(f"{name} takes {'x'.join(map(str, shape))} and nothing else")
        return build()

    return ModelSpec(
        name=name,
        library="perfrun",
        input_kind="image" if len(shape) == 3 else "features",
        input_shape=shape,
        classes=classes,
        build=built,
        parameters=count,
        trainable_parameters=count,
    )


def _resnet269(_shape: Shape) -> Any:
    residual = vision.load().models.resnet
    return residual.ResNet(residual.Bottleneck, [3, 30, 48, 8])


# Nets that no library has in this form; these names are theirs without the prefix, too.
OWN = {
    spec.name: spec
    for spec in (
        _fixed("deep_mnist", dense.deep_mnist, (784,), 10, 11_972_510),
        _fixed("acoustic_model", dense.acoustic_model, (540,), 8192, 34_678_784),
        _fixed("sensor_net", dense.sensor_net, (784,), 16, 2_919_440),
        _fixed("alexnet", convolutional.alexnet, (3, 227, 227), 1000, 62_378_344),
        _fixed("alexnet_owt", convolutional.alexnet_owt, (3, 227, 227), 1000, 61_100_840),
        _fixed("overfeat", convolutional.overfeat, (3, 231, 231), 1000, 145_920_872),
        ModelSpec(
            name="resnet269",
            library="torchvision",
            input_kind="image",
            input_shape=(3, 224, 224),
            classes=1000,
            build=_resnet269,
            parameters=102_073_384,
            trainable_parameters=102_073_384,
        ),
    )
}

GOOGLENET = _fixed("googlenet", convolutional.googlenet, (3, 224, 224), 1000, 6_998_552)

# DLBS' name, and the name that the catalogue knows it by.
ELSEWHERE = {
    **{f"resnet{depth}": f"torchvision:resnet{depth}" for depth in (18, 34, 50, 101, 152)},
    **{f"vgg{depth}": f"torchvision:vgg{depth}" for depth in (11, 13, 16, 19)},
    "inception3": "inception_v3",
    "inception4": "timm:inception_v4",
    "resnet200": "timm:resnet200",
}


def names() -> tuple[str, ...]:
    """Return DLBS' names."""
    return (*OWN, GOOGLENET.name, *ELSEWHERE)
