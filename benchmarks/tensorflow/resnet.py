"""Residual networks as torchvision has them; `keras:ResNet50` is the paper's first version."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class ResNet18(Named):
    """ResNet-18, the stride in the 3 x 3 convolution."""

    model_name = "resnet18"


class ResNet34(Named):
    """ResNet-34, the stride in the 3 x 3 convolution."""

    model_name = "resnet34"


class ResNet50(Named):
    """ResNet-50, the stride in the 3 x 3 convolution."""

    model_name = "resnet50"


class ResNet101(Named):
    """ResNet-101, the stride in the 3 x 3 convolution."""

    model_name = "resnet101"


class ResNet152(Named):
    """ResNet-152, the stride in the 3 x 3 convolution."""

    model_name = "resnet152"
