"""BERT, GPT-2, ViT and a small Llama in Keras layers, with random weights.

The package transformers 5 has PyTorch only. Llama has 8 blocks of 512, as transformers builds it
with these sizes: rotary positions (arXiv:2104.09864), RMS normalisation, SwiGLU (arXiv:2002.05202),
no biases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tensorflow._support.framework import tf
from perfrun import SetupError

WIDTH, HEADS, BLOCKS = 768, 12, 12  # the same in all three
INNER = 4 * WIDTH

Sublayer = Callable[[Any], Any]


def bert_base(input_shape: tuple[int, ...] = (128,)) -> Any:
    """Build BERT-base, uncased: it gives hidden states and the pooled first token."""
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
    """Build the smallest GPT-2: it gives logits of the next token, by its embedding's matrix."""
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
    """Build ViT-B/16, of patches of 16 x 16 pixels; it gives logits of 1000 classes."""
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
    """A layer that adds a vector for each place and, if there are segments, that of the first."""

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
    """A layer that puts one more vector before the first."""

    def build(self, shape: Any) -> None:
        self._token = self.add_weight(shape=(1, 1, shape[-1]), initializer="zeros")

    def call(self, hidden: Any) -> Any:
        token = tf.cast(self._token, hidden.dtype)
        first = tf.broadcast_to(token, (tf.shape(hidden)[0], 1, hidden.shape[-1]))
        return tf.concat([first, hidden], axis=1)


class _TiedLogits(tf.keras.layers.Layer):  # type: ignore[misc]
    """A layer that multiplies by the transposed matrix of an embedding."""

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self._embedding = embedding

    def call(self, hidden: Any) -> Any:
        matrix = tf.cast(self._embedding.embeddings, hidden.dtype)
        return tf.matmul(hidden, matrix, transpose_b=True)


LLAMA_WIDTH, LLAMA_HEADS, LLAMA_BLOCKS, LLAMA_INNER, LLAMA_VOCABULARY = 512, 8, 8, 1376, 32_000
ROTARY_BASE = 10_000.0


def llama_small(input_shape: tuple[int, ...] = (128,)) -> Any:
    """Return the model with random weights; it gives the logits of the next token."""
    layers = tf.keras.layers
    tokens = layers.Input(input_shape, dtype="int32")
    hidden = layers.Embedding(LLAMA_VOCABULARY, LLAMA_WIDTH)(tokens)
    for _ in range(LLAMA_BLOCKS):
        hidden = hidden + _RotaryAttention()(_normalised(hidden))
        hidden = hidden + _gated(_normalised(hidden))
    logits = layers.Dense(LLAMA_VOCABULARY, use_bias=False)(_normalised(hidden))
    as_float32 = layers.Activation("linear", dtype="float32")(logits)
    return tf.keras.Model(tokens, as_float32, name="llama_small")


def _normalised(hidden: Any) -> Any:
    return tf.keras.layers.RMSNormalization(epsilon=1e-6)(hidden)


def _gated(hidden: Any) -> Any:
    layers = tf.keras.layers
    gate = layers.Dense(LLAMA_INNER, activation="silu", use_bias=False)(hidden)
    wide = layers.Dense(LLAMA_INNER, use_bias=False)(hidden)
    return layers.Dense(LLAMA_WIDTH, use_bias=False)(gate * wide)


class _RotaryAttention(tf.keras.layers.Layer):  # type: ignore[misc]
    """Causal attention whose queries and keys are turned by an angle that grows with the place."""

    def build(self, shape: Any) -> None:
        dense = tf.keras.layers.Dense
        self._projections = [dense(LLAMA_WIDTH, use_bias=False) for _ in range(4)]
        for projection in self._projections:
            projection.build(shape)

    def call(self, hidden: Any) -> Any:
        to_query, to_key, to_value, to_output = self._projections
        length = hidden.shape[1]
        query, key = (_turned(_by_head(to(hidden))) for to in (to_query, to_key))
        value = _by_head(to_value(hidden))
        scores = tf.matmul(query, key, transpose_b=True) * (LLAMA_WIDTH // LLAMA_HEADS) ** -0.5
        later = 1.0 - tf.linalg.band_part(tf.ones((length, length)), -1, 0)
        shares = tf.nn.softmax(tf.cast(scores, tf.float32) - 1e9 * later)
        mixed = tf.matmul(tf.cast(shares, value.dtype), value)
        return to_output(tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, length, LLAMA_WIDTH)))


def _by_head(vectors: Any) -> Any:
    parts = tf.reshape(vectors, (-1, vectors.shape[1], LLAMA_HEADS, LLAMA_WIDTH // LLAMA_HEADS))
    return tf.transpose(parts, (0, 2, 1, 3))


def _turned(vectors: Any) -> Any:
    """Turn the pairs (i, i + half) of each vector by their angles."""
    length, size = vectors.shape[2:]
    half = size // 2
    speeds = ROTARY_BASE ** (-tf.range(half, dtype=tf.float32) / half)
    angles = tf.range(length, dtype=tf.float32)[:, None] * speeds[None, :]
    cosine, sine = (tf.cast(of(angles), vectors.dtype) for of in (tf.cos, tf.sin))
    first, second = vectors[..., :half], vectors[..., half:]
    return tf.concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
