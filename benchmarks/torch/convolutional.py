"""More convolutional networks of torchvision, and the AlexNet of the paper."""

from __future__ import annotations

from benchmarks.torch.model import Model


class AlexNet(Model, model="alexnet"):
    """alexnet, without groups: 62,378,344 parameters, 227 pixels."""


class GoogLeNet(Model, model="googlenet"):
    """googlenet with batch normalisation: 6,624,904 parameters, 224 pixels."""


class InceptionV3(Model, model="inception_v3"):
    """inception_v3 without its auxiliary classifier: 23,834,568 parameters, 299 pixels."""


class MobileNetV2(Model, model="mobilenet_v2"):
    """mobilenet_v2: 3,504,872 parameters, 224 pixels."""


class MobileNetV3Large(Model, model="mobilenet_v3_large"):
    """mobilenet_v3_large: 5,483,032 parameters, 224 pixels."""


class DenseNet121(Model, model="densenet121"):
    """densenet121: 7,978,856 parameters, 224 pixels."""
