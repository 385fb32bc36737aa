"""A small Llama in Keras layers, 8 blocks of 512, as transformers builds it with these sizes.

Rotary positions (arXiv:2104.09864), RMS normalisation, SwiGLU (arXiv:2002.05202), no biases.
"""

from __future__ import annotations

from typing import Any

from benchmarks.tensorflow.framework import tf

WIDTH, HEADS, BLOCKS, INNER, VOCABULARY = 512, 8, 8, 1376, 32_000
ROTARY_BASE = 10_000.0


def llama_small(input_shape: tuple[int, ...] = (128,)) -> Any:
    """Return the model with random weights; it gives the logits of the next token."""
    layers = tf.keras.layers
    tokens = layers.Input(input_shape, dtype="int32")
    hidden = layers.Embedding(VOCABULARY, WIDTH)(tokens)
    for _ in range(BLOCKS):
        hidden = hidden + _RotaryAttention()(_normalised(hidden))
        hidden = hidden + _gated(_normalised(hidden))
    logits = layers.Dense(VOCABULARY, use_bias=False)(_normalised(hidden))
    as_float32 = layers.Activation("linear", dtype="float32")(logits)
    return tf.keras.Model(tokens, as_float32, name="llama_small")


def _normalised(hidden: Any) -> Any:
    return tf.keras.layers.RMSNormalization(epsilon=1e-6)(hidden)


def _gated(hidden: Any) -> Any:
    layers = tf.keras.layers
    gate = layers.Dense(INNER, activation="silu", use_bias=False)(hidden)
    wide = layers.Dense(INNER, use_bias=False)(hidden)
    return layers.Dense(WIDTH, use_bias=False)(gate * wide)


class _RotaryAttention(tf.keras.layers.Layer):  # type: ignore[misc]
    """Causal attention whose queries and keys are turned by an angle that grows with the place."""

    def build(self, shape: Any) -> None:
        dense = tf.keras.layers.Dense
        self._projections = [dense(WIDTH, use_bias=False) for _ in range(4)]
        for projection in self._projections:
            projection.build(shape)

    def call(self, hidden: Any) -> Any:
        to_query, to_key, to_value, to_output = self._projections
        length = hidden.shape[1]
        query, key = (_turned(_by_head(to(hidden))) for to in (to_query, to_key))
        value = _by_head(to_value(hidden))
        scores = tf.matmul(query, key, transpose_b=True) * (WIDTH // HEADS) ** -0.5
        later = 1.0 - tf.linalg.band_part(tf.ones((length, length)), -1, 0)
        shares = tf.nn.softmax(tf.cast(scores, tf.float32) - 1e9 * later)
        mixed = tf.matmul(tf.cast(shares, value.dtype), value)
        return to_output(tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, length, WIDTH)))


def _by_head(vectors: Any) -> Any:
    parts = tf.reshape(vectors, (-1, vectors.shape[1], HEADS, WIDTH // HEADS))
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
