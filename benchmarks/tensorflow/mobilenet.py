"""MobileNets of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.model import NamedModel


class MobileNetV2(NamedModel):
    """keras.applications.MobileNetV2."""

    model_name = "mobilenet_v2"


class MobileNetV3Small(NamedModel):
    """keras.applications.MobileNetV3Small."""

    model_name = "mobilenet_v3_small"


class MobileNetV3Large(NamedModel):
    """keras.applications.MobileNetV3Large."""

    model_name = "mobilenet_v3_large"
