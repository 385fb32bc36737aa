"""A Llama small enough for every machine, in Keras layers, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.tensorflow.model import Model


class LlamaSmall(Model, model="llama_small"):
    """8 blocks of 512, 58,073,600 parameters; training predicts the next token."""
