"""GPT-2 in Flax, 128 tokens, random weights; training predicts the next token."""

from __future__ import annotations

from benchmarks.jax.model import Model


class GPT2(Model, model="gpt2"):
    """gpt2: 124,439,808 parameters."""


class GPT2Medium(Model, model="gpt2_medium"):
    """gpt2_medium: 354,823,168 parameters."""
