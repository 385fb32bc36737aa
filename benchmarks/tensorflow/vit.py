"""A vision transformer in Keras layers (Dosovitskiy et al., arXiv:2010.11929), 224 pixels."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class ViTB16(Named):
    """ViT-B/16, 86,567,656 parameters."""

    model_name = "vit_b_16"
