"""A Llama small enough for every machine, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.jax.model import Model


class LlamaSmall(Model, model="llama_small"):
    """llama_small: 58,073,600 parameters."""
