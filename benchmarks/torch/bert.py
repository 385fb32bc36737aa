"""Encoders of transformers, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.torch.model import Model


class BertBase(Model, model="bert_base"):
    """bert_base: 109,482,240 parameters."""


class BertLarge(Model, model="bert_large"):
    """bert_large: 335,141,888 parameters."""


class DistilBert(Model, model="distilbert"):
    """distilbert: 66,362,880 parameters."""
