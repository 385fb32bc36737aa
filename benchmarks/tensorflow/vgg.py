"""VGG of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.model import Model


class VGG16(Model, model="vgg16"):
    """keras.applications.VGG16."""


class VGG19(Model, model="vgg19"):
    """keras.applications.VGG19."""
