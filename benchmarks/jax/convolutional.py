"""More convolutional networks, and the AlexNet of the paper."""

from __future__ import annotations

from benchmarks.jax.model import Model


class AlexNet(Model, model="alexnet"):
    """alexnet: 62,378,344 parameters."""


class MobileNetV2(Model, model="mobilenet_v2"):
    """mobilenet_v2: 3,504,872 parameters."""


class MobileNetV3Large(Model, model="mobilenet_v3_large"):
    """mobilenet_v3_large: 5,483,032 parameters."""
