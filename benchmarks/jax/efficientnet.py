"""The EfficientNets of torchvision, in Flax."""

from __future__ import annotations

from benchmarks._support.models.methods import FewSteps
from benchmarks.jax.model import Model


class EfficientNetB0(FewSteps, Model, model="efficientnet_b0"):
    """efficientnet_b0: 5,288,548 parameters, 224 pixels; a fixed number of steps."""


class EfficientNetB1(Model, model="efficientnet_b1"):
    """efficientnet_b1: 7,794,184 parameters, 240 pixels."""


class EfficientNetB2(Model, model="efficientnet_b2"):
    """efficientnet_b2: 9,109,994 parameters, 260 pixels."""


class EfficientNetB3(Model, model="efficientnet_b3"):
    """efficientnet_b3: 12,233,232 parameters, 300 pixels."""


class EfficientNetB4(Model, model="efficientnet_b4"):
    """efficientnet_b4: 19,341,616 parameters, 380 pixels."""


class EfficientNetB5(Model, model="efficientnet_b5"):
    """efficientnet_b5: 30,389,784 parameters, 456 pixels."""


class EfficientNetB6(Model, model="efficientnet_b6"):
    """efficientnet_b6: 43,040,704 parameters, 528 pixels."""


class EfficientNetB7(Model, model="efficientnet_b7"):
    """efficientnet_b7: 66,347,960 parameters, 600 pixels."""
