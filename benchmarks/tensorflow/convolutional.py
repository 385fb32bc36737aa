"""More convolutional networks of keras.applications, and the AlexNet of the paper."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class AlexNet(Named):
    """AlexNet on one device, with local response normalisation, 227 pixels."""

    model_name = "alexnet"


class InceptionV3(Named):
    """keras.applications.InceptionV3, 299 pixels."""

    model_name = "inception_v3"


class MobileNetV2(Named):
    """keras.applications.MobileNetV2."""

    model_name = "mobilenet_v2"


class MobileNetV3Large(Named):
    """keras.applications.MobileNetV3Large."""

    model_name = "mobilenet_v3_large"


class DenseNet121(Named):
    """keras.applications.DenseNet121."""

    model_name = "densenet121"
