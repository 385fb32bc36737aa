"""A vision transformer in Keras layers (Dosovitskiy et al., arXiv:2010.11929), 224 pixels."""

from __future__ import annotations

from benchmarks.tensorflow.model import Model


class ViTB16(Model, model="vit_b_16"):
    """ViT-B/16, 86,567,656 parameters."""
