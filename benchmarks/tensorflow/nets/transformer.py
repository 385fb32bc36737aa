"""BERT, GPT-2 and ViT in Keras layers: transformers 5 has PyTorch only. Weights are random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tensorflow.framework import tf
from perfrun import SetupError

WIDTH, HEADS, BLOCKS = 768, 12, 12  # the same in all three
INNER = 4 * WIDTH

Sublayer = Callable[[Any], Any]


def bert_base(input_shape: tuple[int, ...] = (128,)) -> Any:
    """BERT-base, uncased: hidden states and the pooled first token; post-normalised."""
    layers = tf.keras.layers
    tokens = layers.Input(input_shape, dtype="int32")
    hidden = layers.Embedding(30_522, WIDTH)(tokens)
    hidden = _LearnedPositions(512, segments=2)(hidden)
    hidden = layers.Dropout(0.1)(layers.LayerNormalization(epsilon=1e-12)(hidden))
    for _ in range(BLOCKS):
        for sublayer in (_attention(dropout=0.1), _perceptron("gelu", dropout=0.1)):
            hidden = layers.LayerNormalization(epsilon=1e-12)(hidden + sublayer(hidden))
    pooled = layers.Dense(WIDTH, activation="tanh")(hidden[:, 0])
    return tf.keras.Model(tokens, [_as_float32(hidden), _as_float32(pooled)], name="bert_base")


def gpt2(input_shape: tuple[int, ...] = (128,)) -> Any:
    """GPT-2, the smallest: logits of the next token, from the embedding's own matrix."""
    layers = tf.keras.layers
    tokens = layers.Input(input_shape, dtype="int32")
    embedding = layers.Embedding(50_257, WIDTH)
    hidden = layers.Dropout(0.1)(_LearnedPositions(1024)(embedding(tokens)))
    for _ in range(BLOCKS):
        hidden = _add_normalised(hidden, _attention(dropout=0.1, causal=True), epsilon=1e-5)
        hidden = _add_normalised(hidden, _perceptron(_gelu_by_tanh, dropout=0.1), epsilon=1e-5)
    hidden = layers.LayerNormalization(epsilon=1e-5)(hidden)
    return tf.keras.Model(tokens, _as_float32(_TiedLogits(embedding)(hidden)), name="gpt2")


def vit_b_16(input_shape: tuple[int, ...] = (224, 224, 3)) -> Any:
    """ViT-B/16: patches of 16 x 16 pixels; it gives logits of 1000 classes."""
    layers = tf.keras.layers
    images = layers.Input(input_shape)
    patches = layers.Conv2D(WIDTH, 16, 16)(images)
    hidden = layers.Reshape((-1, WIDTH))(patches)
    hidden = _ClassToken()(hidden)
    hidden = _LearnedPositions(hidden.shape[1])(hidden)
    for _ in range(BLOCKS):
        hidden = _add_normalised(hidden, _attention(), epsilon=1e-6)
        hidden = _add_normalised(hidden, _perceptron("gelu"), epsilon=1e-6)
    hidden = layers.LayerNormalization(epsilon=1e-6)(hidden)
    logits = layers.Dense(1000, dtype="float32")(hidden[:, 0])
    return tf.keras.Model(images, logits, name="vit_b_16")


def _add_normalised(hidden: Any, sublayer: Sublayer, epsilon: float) -> Any:
    return hidden + sublayer(tf.keras.layers.LayerNormalization(epsilon=epsilon)(hidden))


def _attention(*, dropout: float = 0.0, causal: bool = False) -> Sublayer:
    layers = tf.keras.layers
    attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=dropout)
    dropped = layers.Dropout(dropout)
    return lambda hidden: dropped(attention(hidden, hidden, use_causal_mask=causal))


def _perceptron(activation: Any, dropout: float = 0.0) -> Sublayer:
    layers = tf.keras.layers
    widen, narrow = layers.Dense(INNER, activation=activation), layers.Dense(WIDTH)
    dropped = layers.Dropout(dropout)
    return lambda hidden: dropped(narrow(widen(hidden)))


def _gelu_by_tanh(values: Any) -> Any:
    return tf.nn.gelu(values, approximate=True)


def _as_float32(tensor: Any) -> Any:
    return tf.keras.layers.Activation("linear", dtype="float32")(tensor)


class _LearnedPositions(tf.keras.layers.Layer):  # type: ignore[misc]
    """Add a vector for each place and, as all tokens are of the first segment, that segment's."""

    def __init__(self, length: int, segments: int = 0) -> None:
        super().__init__()
        self._length, self._segments = length, segments

    def build(self, shape: Any) -> None:
        if shape[1] > self._length:
            raise SetupError(f"{shape[1]} tokens are given; this model takes {self._length}")
        self._places = self.add_weight(shape=(self._length, shape[-1]), initializer="normal")
        if self._segments:
            self._kinds = self.add_weight(shape=(self._segments, shape[-1]), initializer="normal")

    def call(self, hidden: Any) -> Any:
        hidden = hidden + self._places[: hidden.shape[1]]
        return hidden + self._kinds[0] if self._segments else hidden


class _ClassToken(tf.keras.layers.Layer):  # type: ignore[misc]
    """Put one more vector before the first."""

    def build(self, shape: Any) -> None:
        self._token = self.add_weight(shape=(1, 1, shape[-1]), initializer="zeros")

    def call(self, hidden: Any) -> Any:
        token = tf.cast(self._token, hidden.dtype)
        first = tf.broadcast_to(token, (tf.shape(hidden)[0], 1, hidden.shape[-1]))
        return tf.concat([first, hidden], axis=1)


class _TiedLogits(tf.keras.layers.Layer):  # type: ignore[misc]
    """Multiply by the transposed matrix of an embedding."""

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self._embedding = embedding

    def call(self, hidden: Any) -> Any:
        matrix = tf.cast(self._embedding.embeddings, hidden.dtype)
        return tf.matmul(hidden, matrix, transpose_b=True)
