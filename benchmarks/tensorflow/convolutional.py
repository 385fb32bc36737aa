"""More convolutional networks of keras.applications, and the AlexNet of the paper."""

from __future__ import annotations

from benchmarks.tensorflow.model import Model


class AlexNet(Model, model="alexnet"):
    """AlexNet on one device, with local response normalisation, 227 pixels."""


class InceptionV3(Model, model="inception_v3"):
    """keras.applications.InceptionV3, 299 pixels."""


class MobileNetV2(Model, model="mobilenet_v2"):
    """keras.applications.MobileNetV2."""


class MobileNetV3Large(Model, model="mobilenet_v3_large"):
    """keras.applications.MobileNetV3Large."""


class DenseNet121(Model, model="densenet121"):
    """keras.applications.DenseNet121."""
