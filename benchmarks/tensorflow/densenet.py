"""DenseNets of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.model import NamedModel


class DenseNet121(NamedModel):
    """keras.applications.DenseNet121."""

    model_name = "densenet121"


class DenseNet169(NamedModel):
    """keras.applications.DenseNet169."""

    model_name = "densenet169"


class DenseNet201(NamedModel):
    """keras.applications.DenseNet201."""

    model_name = "densenet201"
