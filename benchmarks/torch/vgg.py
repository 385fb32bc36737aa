"""The VGG networks of torchvision (Simonyan, Zisserman, arXiv:1409.1556), 224 pixels."""

from __future__ import annotations

from benchmarks.torch.named import Named


class VGG11(Named):
    """vgg11: 132,863,336 parameters."""

    model_name = "vgg11"


class VGG13(Named):
    """vgg13: 133,047,848 parameters."""

    model_name = "vgg13"


class VGG16(Named):
    """vgg16: 138,357,544 parameters."""

    model_name = "vgg16"


class VGG19(Named):
    """vgg19: 143,667,240 parameters."""

    model_name = "vgg19"
