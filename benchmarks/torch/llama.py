"""A Llama small enough for every machine, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.torch.model import Model


class LlamaSmall(Model, model="llama_small"):
    """Eight layers of 512: 58,073,600 parameters."""
