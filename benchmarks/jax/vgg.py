"""The VGG networks (Simonyan, Zisserman, arXiv:1409.1556), 224 pixels."""

from __future__ import annotations

from benchmarks.jax.model import Model


class VGG11(Model, model="vgg11"):
    """vgg11: 132,863,336 parameters."""


class VGG13(Model, model="vgg13"):
    """vgg13: 133,047,848 parameters."""


class VGG16(Model, model="vgg16"):
    """vgg16: 138,357,544 parameters."""


class VGG19(Model, model="vgg19"):
    """vgg19: 143,667,240 parameters."""
