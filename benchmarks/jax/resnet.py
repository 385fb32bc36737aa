"""Residual networks as torchvision has them (He et al., arXiv:1512.03385), 224 pixels."""

from __future__ import annotations

from benchmarks.jax.model import Model


class ResNet18(Model, model="resnet18"):
    """resnet18: 11,689,512 parameters."""


class ResNet34(Model, model="resnet34"):
    """resnet34: 21,797,672 parameters."""


class ResNet50(Model, model="resnet50"):
    """resnet50: 25,557,032 parameters."""


class ResNet101(Model, model="resnet101"):
    """resnet101: 44,549,160 parameters."""


class ResNet152(Model, model="resnet152"):
    """resnet152: 60,192,808 parameters."""
