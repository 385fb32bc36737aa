"""GPT-2 in Keras layers, 128 tokens; training predicts the next token."""

from __future__ import annotations

from benchmarks.tensorflow.model import Model


class GPT2(Model, model="gpt2"):
    """The smallest GPT-2, 124,439,808 parameters."""
