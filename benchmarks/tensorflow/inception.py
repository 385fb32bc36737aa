"""Inception of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.model import NamedModel


class InceptionV3(NamedModel):
    """keras.applications.InceptionV3."""

    model_name = "inception_v3"
