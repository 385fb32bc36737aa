"""BERT in Flax, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.jax.model import Model


class BertBase(Model, model="bert_base"):
    """bert_base: 109,482,240 parameters."""
