"""Transformers in Keras layers."""

from __future__ import annotations

from benchmarks.tensorflow.model import NamedModel


class BertBase(NamedModel):
    """BERT-base, 128 tokens unless input_shape says otherwise."""

    model_name = "bert_base"


class GPT2(NamedModel):
    """GPT-2, the smallest one, 128 tokens unless input_shape says otherwise."""

    model_name = "gpt2"


class ViTB16(NamedModel):
    """ViT-B/16."""

    model_name = "vit_b_16"
