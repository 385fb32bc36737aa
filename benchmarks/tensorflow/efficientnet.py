"""EfficientNet of keras.applications."""

from __future__ import annotations

from benchmarks._support.models.methods import FewSteps
from benchmarks.tensorflow.model import Model


class EfficientNetB0(FewSteps, Model, model="efficientnet_b0"):
    """keras.applications.EfficientNetB0; few steps, so that it is a quick first benchmark."""


class EfficientNetB1(Model, model="efficientnet_b1"):
    """keras.applications.EfficientNetB1."""


class EfficientNetB2(Model, model="efficientnet_b2"):
    """keras.applications.EfficientNetB2."""


class EfficientNetB3(Model, model="efficientnet_b3"):
    """keras.applications.EfficientNetB3."""


class EfficientNetB4(Model, model="efficientnet_b4"):
    """keras.applications.EfficientNetB4."""


class EfficientNetB5(Model, model="efficientnet_b5"):
    """keras.applications.EfficientNetB5."""


class EfficientNetB6(Model, model="efficientnet_b6"):
    """keras.applications.EfficientNetB6."""


class EfficientNetB7(Model, model="efficientnet_b7"):
    """keras.applications.EfficientNetB7."""
