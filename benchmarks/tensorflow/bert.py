"""An encoder in Keras layers, 128 tokens unless input_shape says otherwise."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class BertBase(Named):
    """BERT-base, 109,482,240 parameters."""

    model_name = "bert_base"
