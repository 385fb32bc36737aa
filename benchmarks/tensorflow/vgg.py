"""VGG of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.model import NamedModel


class VGG16(NamedModel):
    """keras.applications.VGG16."""

    model_name = "vgg16"


class VGG19(NamedModel):
    """keras.applications.VGG19."""

    model_name = "vgg19"
