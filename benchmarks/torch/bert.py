"""Encoders of transformers, 128 tokens, random weights."""

from __future__ import annotations

from benchmarks.torch.named import Named


class BertBase(Named):
    """bert_base: 109,482,240 parameters."""

    model_name = "bert_base"


class BertLarge(Named):
    """bert_large: 335,141,888 parameters."""

    model_name = "bert_large"


class DistilBert(Named):
    """distilbert: 66,362,880 parameters."""

    model_name = "distilbert"
