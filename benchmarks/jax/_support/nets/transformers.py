"""BERT, GPT-2, ViT and a small Llama for JAX, with the sizes and weights of transformers' models.

Attention is `jax.nn.dot_product_attention`. Llama has rotary positions (arXiv:2104.09864), RMS
normalisation, SwiGLU (arXiv:2002.05202) and no biases.
"""

from __future__ import annotations

from typing import Any

from benchmarks._support.models.spec import Shape, spelt
from benchmarks.jax._support.flax_library import nnx
from benchmarks.jax._support.framework import jax
from benchmarks.jax._support.nets.layers import Function, Layers
from perfrun import SetupError

jnp = jax.numpy
ROTARY_BASE = 10_000.0


def exact_gelu(values: Any) -> Any:
    """Return GELU by the error function, as BERT and ViT have it."""
    return nnx.gelu(values, approximate=False)


class Attention(nnx.Module):  # type: ignore[misc]
    """Attention of several heads over one sequence."""

    def __init__(
        self,
        layers: Layers,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        bias: bool = True,
        rotary: bool = False,
    ) -> None:
        self.to_query, self.to_key, self.to_value, self.to_output = (
            layers.dense(width, width, bias=bias) for _ in range(4)
        )
        self.heads, self.causal, self.rotary = heads, causal, rotary

    def __call__(self, hidden: Any) -> Any:
        query, key, value = (
            self._by_head(to(hidden)) for to in (self.to_query, self.to_key, self.to_value)
        )
        if self.rotary:
            query, key = turned(query), turned(key)
        mixed = jax.nn.dot_product_attention(query, key, value, is_causal=self.causal)
        return self.to_output(mixed.reshape(hidden.shape))

    def _by_head(self, vectors: Any) -> Any:
        return vectors.reshape(*vectors.shape[:2], self.heads, -1)


def turned(vectors: Any) -> Any:
    """Turn the pairs (i, i + half) of each vector by an angle that grows with its place."""
    length, size = vectors.shape[1], vectors.shape[3]
    half = size // 2
    speeds = ROTARY_BASE ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = (jnp.arange(length, dtype=jnp.float32)[:, None] * speeds)[:, None, :]
    cosine, sine = (of(angles).astype(vectors.dtype) for of in (jnp.cos, jnp.sin))
    first, second = vectors[..., :half], vectors[..., half:]
    return jnp.concatenate(
        [first * cosine - second * sine, second * cosine + first * sine], axis=-1
    )


class Perceptron(nnx.Module):  # type: ignore[misc]
    """Two layers, the first of which widens."""

    def __init__(self, layers: Layers, width: int, inner: int, activation: Function) -> None:
        self.widen, self.narrow = layers.dense(width, inner), layers.dense(inner, width)
        self.activation = activation

    def __call__(self, hidden: Any) -> Any:
        return self.narrow(self.activation(self.widen(hidden)))


class _Gated(nnx.Module):  # type: ignore[misc]
    """Llama's perceptron: one widened vector is the gate of another."""

    def __init__(self, layers: Layers, width: int, inner: int) -> None:
        self.gate, self.widen = (layers.dense(width, inner, bias=False) for _ in range(2))
        self.narrow = layers.dense(inner, width, bias=False)

    def __call__(self, hidden: Any) -> Any:
        return self.narrow(nnx.silu(self.gate(hidden)) * self.widen(hidden))


class _NormalisedFirst(nnx.Module):  # type: ignore[misc]
    """A part whose input is normalised, and whose result is added to it."""

    def __init__(self, norm: Any, part: Any, dropout: Any) -> None:
        self.norm, self.part, self.dropout = norm, part, dropout

    def __call__(self, hidden: Any) -> Any:
        return hidden + self.dropout(self.part(self.norm(hidden)))


class _NormalisedLast(nnx.Module):  # type: ignore[misc]
    """A part whose result is added to its input, and the sum normalised."""

    def __init__(self, norm: Any, part: Any, dropout: Any) -> None:
        self.norm, self.part, self.dropout = norm, part, dropout

    def __call__(self, hidden: Any) -> Any:
        return self.norm(hidden + self.dropout(self.part(hidden)))


class Bert(nnx.Module):  # type: ignore[misc]
    """BERT-base, uncased: it gives hidden states and the pooled first token."""

    def __init__(self, shape: Shape, layers: Layers) -> None:
        width = 768
        _fits(shape, 512)
        self.words = layers.embedding(30_522, width)
        self.places = layers.embedding(512, width)
        self.kinds = layers.embedding(2, width)
        self.norm, self.dropout = layers.layer_norm(width, 1e-12), layers.dropout(0.1)
        blocks: list[Any] = []
        for _ in range(12):
            parts = (
                Attention(layers, width, 12),
                Perceptron(layers, width, 4 * width, exact_gelu),
            )
            blocks += [
                _NormalisedLast(layers.layer_norm(width, 1e-12), part, layers.dropout(0.1))
                for part in parts
            ]
        self.blocks = nnx.List(blocks)
        self.pooler = layers.dense(width, width)

    def __call__(self, tokens: Any) -> Any:
        places = jnp.arange(tokens.shape[1])
        hidden = self.words(tokens) + self.places(places) + self.kinds(jnp.zeros_like(tokens))
        hidden = self.dropout(self.norm(hidden))
        for block in self.blocks:
            hidden = block(hidden)
        return hidden, jnp.tanh(self.pooler(hidden[:, 0]))


class GPT2(nnx.Module):  # type: ignore[misc]
    """GPT-2: it gives the logits of the next token, by its embedding's matrix."""

    def __init__(self, width: int, blocks: int, heads: int, shape: Shape, layers: Layers) -> None:
        _fits(shape, 1024)
        self.words, self.places = layers.embedding(50_257, width), layers.embedding(1024, width)
        self.dropout = layers.dropout(0.1)
        made: list[Any] = []
        for _ in range(blocks):
            parts = (
                Attention(layers, width, heads, causal=True),
                Perceptron(layers, width, 4 * width, nnx.gelu),
            )
            made += [
                _NormalisedFirst(layers.layer_norm(width, 1e-5), part, layers.dropout(0.1))
                for part in parts
            ]
        self.blocks = nnx.List(made)
        self.norm = layers.layer_norm(width, 1e-5)

    def __call__(self, tokens: Any) -> Any:
        hidden = self.words(tokens) + self.places(jnp.arange(tokens.shape[1]))
        hidden = self.dropout(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return self.words.attend(self.norm(hidden))


class ViT(nnx.Module):  # type: ignore[misc]
    """A vision transformer (arXiv:2010.11929) as torchvision has it; it gives 1000 logits."""

    def __init__(
        self, patch: int, width: int, blocks: int, heads: int, shape: Shape, layers: Layers
    ) -> None:
        channels, height, side = shape
        if height % patch or side % patch:
            raise SetupError(
                f"input_shape is {spelt(shape)}; its sides must be multiples of {patch}"
            )
        count = (height // patch) * (side // patch) + 1
        self.patches = layers.convolution(channels, width, patch, patch)
        self.token, self.places = layers.weight(1, 1, width), layers.weight(1, count, width)
        made: list[Any] = []
        for _ in range(blocks):
            parts = (
                Attention(layers, width, heads),
                Perceptron(layers, width, 4 * width, exact_gelu),
            )
            made += [
                _NormalisedFirst(layers.layer_norm(width, 1e-6), part, layers.dropout(0.0))
                for part in parts
            ]
        self.blocks = nnx.List(made)
        self.norm, self.head = layers.layer_norm(width, 1e-6), layers.dense(width, 1000)
        self.dtype = layers.dtype

    def __call__(self, images: Any) -> Any:
        patches = self.patches(images)
        patches = patches.reshape(patches.shape[0], -1, patches.shape[3])
        token = jnp.broadcast_to(self.token[...], (len(patches), 1, patches.shape[2]))
        hidden = jnp.concatenate([token.astype(self.dtype), patches], axis=1)
        hidden = hidden + self.places[...].astype(self.dtype)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden)[:, 0])


class Llama(nnx.Module):  # type: ignore[misc]
    """A Llama of 8 blocks of 512; it gives the logits of the next token."""

    def __init__(self, shape: Shape, layers: Layers) -> None:  # noqa: ARG002 - any length fits
        width, vocabulary = 512, 32_000
        self.words = layers.embedding(vocabulary, width)
        made: list[Any] = []
        for _ in range(8):
            parts = (
                Attention(layers, width, 8, causal=True, bias=False, rotary=True),
                _Gated(layers, width, 1376),
            )
            made += [
                _NormalisedFirst(layers.rms_norm(width, 1e-6), part, layers.dropout(0.0))
                for part in parts
            ]
        self.blocks = nnx.List(made)
        self.norm = layers.rms_norm(width, 1e-6)
        self.head = layers.dense(width, vocabulary, bias=False)

    def __call__(self, tokens: Any) -> Any:
        hidden = self.words(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def _fits(shape: Shape, most: int) -> None:
    if shape[0] > most:
        raise SetupError(f"input_shape is {shape[0]}; it has positions for {most} tokens")
