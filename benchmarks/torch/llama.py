"""A Llama small enough for every machine, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.torch.named import Named


class LlamaSmall(Named):
    """Eight layers of 512: 58,073,600 parameters."""

    model_name = "llama_small"
