"""Vision transformers of torchvision (Dosovitskiy et al., arXiv:2010.11929), 224 pixels."""

from __future__ import annotations

from benchmarks.torch.named import Named


class ViTB16(Named):
    """vit_b_16: 86,567,656 parameters."""

    model_name = "vit_b_16"


class ViTB32(Named):
    """vit_b_32: 88,224,232 parameters."""

    model_name = "vit_b_32"


class ViTL16(Named):
    """vit_l_16: 304,326,632 parameters."""

    model_name = "vit_l_16"
