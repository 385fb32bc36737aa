"""An encoder in Keras layers, 128 tokens unless input_shape says otherwise."""

from __future__ import annotations

from benchmarks.tensorflow.model import Model


class BertBase(Model, model="bert_base"):
    """BERT-base, 109,482,240 parameters."""
