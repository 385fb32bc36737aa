"""A Llama small enough for every machine, in Keras layers, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class LlamaSmall(Named):
    """8 blocks of 512, 58,073,600 parameters; training predicts the next token."""

    model_name = "llama_small"
