"""Residual networks as torchvision has them; `keras:ResNet50` is the paper's first version."""

from __future__ import annotations

from benchmarks.tensorflow.model import Model


class ResNet18(Model, model="resnet18"):
    """ResNet-18, the stride in the 3 x 3 convolution."""


class ResNet34(Model, model="resnet34"):
    """ResNet-34, the stride in the 3 x 3 convolution."""


class ResNet50(Model, model="resnet50"):
    """ResNet-50, the stride in the 3 x 3 convolution."""


class ResNet101(Model, model="resnet101"):
    """ResNet-101, the stride in the 3 x 3 convolution."""


class ResNet152(Model, model="resnet152"):
    """ResNet-152, the stride in the 3 x 3 convolution."""
