"""VGG of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class VGG16(Named):
    """keras.applications.VGG16."""

    model_name = "vgg16"


class VGG19(Named):
    """keras.applications.VGG19."""

    model_name = "vgg19"
