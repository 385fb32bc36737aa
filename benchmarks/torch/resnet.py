"""The residual networks of torchvision (He et al., arXiv:1512.03385), 224 pixels."""

from __future__ import annotations

from benchmarks.torch.named import Named


class ResNet18(Named):
    """resnet18: 11,689,512 parameters."""

    model_name = "resnet18"


class ResNet34(Named):
    """resnet34: 21,797,672 parameters."""

    model_name = "resnet34"


class ResNet50(Named):
    """resnet50: 25,557,032 parameters."""

    model_name = "resnet50"


class ResNet101(Named):
    """resnet101: 44,549,160 parameters."""

    model_name = "resnet101"


class ResNet152(Named):
    """resnet152: 60,192,808 parameters."""

    model_name = "resnet152"
