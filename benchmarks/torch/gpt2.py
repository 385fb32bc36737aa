"""GPT-2 of transformers, 128 tokens, random weights; training predicts the next token."""

from __future__ import annotations

from benchmarks.torch.named import Named


class GPT2(Named):
    """gpt2: 124,439,808 parameters."""

    model_name = "gpt2"


class GPT2Medium(Named):
    """gpt2_medium: 354,823,168 parameters."""

    model_name = "gpt2_medium"
