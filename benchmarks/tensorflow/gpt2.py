"""GPT-2 in Keras layers, 128 tokens; training predicts the next token."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class GPT2(Named):
    """The smallest GPT-2, 124,439,808 parameters."""

    model_name = "gpt2"
