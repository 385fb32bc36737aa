"""Vision transformers as torchvision has them (arXiv:2010.11929), 224 pixels."""

from __future__ import annotations

from benchmarks.jax.model import Model


class ViTB16(Model, model="vit_b_16"):
    """vit_b_16: 86,567,656 parameters."""


class ViTB32(Model, model="vit_b_32"):
    """vit_b_32: 88,224,232 parameters."""


class ViTL16(Model, model="vit_l_16"):
    """vit_l_16: 304,326,632 parameters."""
