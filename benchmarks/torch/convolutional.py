"""More convolutional networks of torchvision, and the AlexNet of the paper."""

from __future__ import annotations

from benchmarks.torch.named import Named


class AlexNet(Named):
    """alexnet, without groups: 62,378,344 parameters, 227 pixels."""

    model_name = "alexnet"


class GoogLeNet(Named):
    """googlenet with batch normalisation: 6,624,904 parameters, 224 pixels."""

    model_name = "googlenet"


class InceptionV3(Named):
    """inception_v3 without its auxiliary classifier: 23,834,568 parameters, 299 pixels."""

    model_name = "inception_v3"


class MobileNetV2(Named):
    """mobilenet_v2: 3,504,872 parameters, 224 pixels."""

    model_name = "mobilenet_v2"


class MobileNetV3Large(Named):
    """mobilenet_v3_large: 5,483,032 parameters, 224 pixels."""

    model_name = "mobilenet_v3_large"


class DenseNet121(Named):
    """densenet121: 7,978,856 parameters, 224 pixels."""

    model_name = "densenet121"
