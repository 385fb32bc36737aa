"""The models of DLBS' list, `dlbs:NAME`: defined here, or taken from the library that has them.

DLBS is HPE's Deep Learning Benchmarking Suite. Parameter counts are those of its documentation
where the net is the same. Its inception3 and inception4 have a bias beside each batch
normalisation, which cancels it; those of the libraries have none.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.torch._support.framework import torch
from benchmarks.torch._support.libraries import torchvision
from perfrun import SetupError


def deep_mnist() -> torch.nn.Module:
    """Build six layers for handwritten digits (Ciresan et al., arXiv:1003.0358): 11,972,510."""
    return _dense((784, 2500, 2000, 1500, 1000, 500, 10), torch.nn.ReLU)


def acoustic_model() -> torch.nn.Module:
    """Build the hybrid speech recogniser: frames of 540 numbers, 8192 phone states: 34,678,784."""
    return _dense((540, *(2048,) * 5, 8192), torch.nn.ReLU)


def sensor_net() -> torch.nn.Module:
    """Build three hidden layers of 1024, 16 classes: 2,919,440 parameters."""
    return _dense((784, *(1024,) * 3, 16), torch.nn.ReLU)


def _dense(sizes: tuple[int, ...], activation: type[torch.nn.Module]) -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), activation()]
    return torch.nn.Sequential(*layers[:-1])


def alexnet() -> torch.nn.Module:
    """Build AlexNet (Krizhevsky et al., 2012) for one device, so without groups: 62,378,344."""
    return torch.nn.Sequential(
        *_convolution(3, 96, 11, stride=4),
        torch.nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0),
        torch.nn.MaxPool2d(3, 2),
        *_convolution(96, 256, 5, padding=2),
        torch.nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0),
        torch.nn.MaxPool2d(3, 2),
        *_convolution(256, 384, 3, padding=1),
        *_convolution(384, 384, 3, padding=1),
        *_convolution(384, 256, 3, padding=1),
        torch.nn.MaxPool2d(3, 2),
        torch.nn.Flatten(),
        *_classifier(256 * 6 * 6, 4096, 4096),
    )


def alexnet_owt() -> torch.nn.Module:
    """Build AlexNet of "one weird trick" (Krizhevsky, arXiv:1404.5997): 61,100,840 parameters."""
    return torch.nn.Sequential(
        *_convolution(3, 64, 11, stride=4, padding=2),
        torch.nn.MaxPool2d(3, 2),
        *_convolution(64, 192, 5, padding=2),
        torch.nn.MaxPool2d(3, 2),
        *_convolution(192, 384, 3, padding=1),
        *_convolution(384, 256, 3, padding=1),
        *_convolution(256, 256, 3, padding=1),
        torch.nn.MaxPool2d(3, 2),
        torch.nn.Flatten(),
        *_classifier(256 * 6 * 6, 4096, 4096),
    )


def overfeat() -> torch.nn.Module:
    """Build the fast model of OverFeat (Sermanet et al., arXiv:1312.6229): 145,920,872."""
    return torch.nn.Sequential(
        *_convolution(3, 96, 11, stride=4),
        torch.nn.MaxPool2d(2, 2),
        *_convolution(96, 256, 5),
        torch.nn.MaxPool2d(2, 2),
        *_convolution(256, 512, 3, padding=1),
        *_convolution(512, 1024, 3, padding=1),
        *_convolution(1024, 1024, 3, padding=1),
        torch.nn.MaxPool2d(2, 2),
        torch.nn.Flatten(),
        *_classifier(1024 * 6 * 6, 3072, 4096),
    )


def googlenet() -> torch.nn.Module:
    """Build GoogLeNet (Szegedy et al., arXiv:1409.4842) as published: no batch normalisation.

    Without the two auxiliary classifiers, which only training to convergence needs: 6,998,552.
    """
    return torch.nn.Sequential(
        *_convolution(3, 64, 7, stride=2, padding=3),
        torch.nn.MaxPool2d(3, 2, ceil_mode=True),
        torch.nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        *_convolution(64, 64, 1),
        *_convolution(64, 192, 3, padding=1),
        torch.nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        torch.nn.MaxPool2d(3, 2, ceil_mode=True),
        _Inception(192, 64, 96, 128, 16, 32, 32),
        _Inception(256, 128, 128, 192, 32, 96, 64),
        torch.nn.MaxPool2d(3, 2, ceil_mode=True),
        _Inception(480, 192, 96, 208, 16, 48, 64),
        _Inception(512, 160, 112, 224, 24, 64, 64),
        _Inception(512, 128, 128, 256, 24, 64, 64),
        _Inception(512, 112, 144, 288, 32, 64, 64),
        _Inception(528, 256, 160, 320, 32, 128, 128),
        torch.nn.MaxPool2d(3, 2, ceil_mode=True),
        _Inception(832, 256, 160, 320, 32, 128, 128),
        _Inception(832, 384, 192, 384, 48, 128, 128),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.4),
        torch.nn.Linear(1024, 1000),
    )


class _Inception(torch.nn.Module):  # type: ignore[misc]
    """Four parallel branches; the numbers are the channels of table 1 of the paper."""

    def __init__(
        self, inputs: int, one: int, three_in: int, three: int, five_in: int, five: int, pool: int
    ) -> None:
        super().__init__()
        self.branches = torch.nn.ModuleList(
            (
                torch.nn.Sequential(*_convolution(inputs, one, 1)),
                torch.nn.Sequential(
                    *_convolution(inputs, three_in, 1), *_convolution(three_in, three, 3, padding=1)
                ),
                torch.nn.Sequential(
                    *_convolution(inputs, five_in, 1), *_convolution(five_in, five, 5, padding=2)
                ),
                torch.nn.Sequential(
                    torch.nn.MaxPool2d(3, 1, padding=1), *_convolution(inputs, pool, 1)
                ),
            )
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(images) for branch in self.branches], dim=1)


def _convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0
) -> tuple[torch.nn.Module, torch.nn.Module]:
    return torch.nn.Conv2d(inputs, outputs, size, stride, padding), torch.nn.ReLU(inplace=True)


def _classifier(features: int, first: int, second: int) -> tuple[torch.nn.Module, ...]:
    return (
        *(torch.nn.Dropout(), torch.nn.Linear(features, first), torch.nn.ReLU(inplace=True)),
        *(torch.nn.Dropout(), torch.nn.Linear(first, second), torch.nn.ReLU(inplace=True)),
        torch.nn.Linear(second, 1000),
    )


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
    residual = torchvision.load().models.resnet
    return residual.ResNet(residual.Bottleneck, [3, 30, 48, 8])


# Nets that no library has in this form; these names are theirs without the prefix, too.
OWN = {
    spec.name: spec
    for spec in (
        _fixed("deep_mnist", deep_mnist, (784,), 10, 11_972_510),
        _fixed("acoustic_model", acoustic_model, (540,), 8192, 34_678_784),
        _fixed("sensor_net", sensor_net, (784,), 16, 2_919_440),
        _fixed("alexnet", alexnet, (3, 227, 227), 1000, 62_378_344),
        _fixed("alexnet_owt", alexnet_owt, (3, 227, 227), 1000, 61_100_840),
        _fixed("overfeat", overfeat, (3, 231, 231), 1000, 145_920_872),
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

GOOGLENET = _fixed("googlenet", googlenet, (3, 224, 224), 1000, 6_998_552)

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
