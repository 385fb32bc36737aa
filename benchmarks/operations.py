"""What one call of an operator has to compute and to move, counted from its shapes.

FLOPs: a multiply-add is two. Bytes: the least traffic there can be, each input read once and each
output written once; caches and temporaries of an implementation are not in it. No framework here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

# The chain that the elementwise benchmarks run: eight operators, two of them with two tensors.
CHAIN = "abs(max(x*1.5 + 0.5, 0)*x - 1)*0.5 + x"
_CHAIN_OPERATORS = 8
_CHAIN_TENSORS_EAGER = 6 * 2 + 2 * 3  # read and written when every operator is run by itself
_LAYER_NORM_FLOPS = 8  # mean 1, variance 3, normalising 2, scale and shift 2


@dataclass(frozen=True, kw_only=True)
class Work:
    """One call: how much there is to do, and how that was counted."""

    operator: str
    flops: int | None = None  # None: it computes nothing
    bytes_moved: int
    dtype: str
    formula: str
    shapes: str

    def metrics(self, seconds: float) -> list[dict[str, Any]]:
        """Return counts and rates for the time of one call."""
        counts = {"flops": self.flops, "bytes": self.bytes_moved}
        known = {what: count for what, count in counts.items() if count is not None}
        per_call = [{"name": f"{what}_per_call", "value": count} for what, count in known.items()]
        return per_call + [
            {"name": f"achieved_{what}_per_second", "value": count / seconds}
            for what, count in known.items()
        ]

    @property
    def extras(self) -> dict[str, str]:
        """Return how the counts came about."""
        return {
            "operator": self.operator,
            "dtype": self.dtype,
            "counted_by": self.formula,
            "shapes": self.shapes,
        }


def matmul(size: int, dtype: str) -> Work:
    """A product of two square matrices."""
    return Work(
        operator="matmul",
        flops=2 * size**3,
        bytes_moved=3 * size**2 * ITEM_BYTES[dtype],
        dtype=dtype,
        formula=f"FLOPs 2 n^3, bytes 3 n^2 x {ITEM_BYTES[dtype]}; n = {size}",
        shapes=f"{size}x{size} @ {size}x{size}",
    )


def conv2d(batch: int, size: int, channels: int, dtype: str, kernel: int = 3) -> Work:
    """A convolution that keeps the image's size, as many channels out as in, without bias."""
    images = batch * channels * size**2
    weights = channels**2 * kernel**2
    return Work(
        operator="conv2d",
        flops=2 * images * channels * kernel**2,
        bytes_moved=(2 * images + weights) * ITEM_BYTES[dtype],
        dtype=dtype,
        formula="FLOPs 2 N C_out H W C_in k^2, bytes of images in, images out and weights",
        shapes=f"{batch}x{channels}x{size}x{size}, kernel {kernel}x{kernel}, padding same",
    )


def attention(batch: int, heads: int, tokens: int, head_size: int, dtype: str) -> Work:
    """Scaled dot product attention: softmax(Q K^T / sqrt(d)) V."""
    return Work(
        operator="attention",
        flops=4 * batch * heads * tokens**2 * head_size,
        bytes_moved=4 * batch * heads * tokens * head_size * ITEM_BYTES[dtype],
        dtype=dtype,
        formula="FLOPs 4 B H T^2 d (two products; softmax not counted), bytes of Q, K, V, output",
        shapes=f"batch {batch}, heads {heads}, tokens {tokens}, head size {head_size}",
    )


def layer_norm(rows: int, features: int, dtype: str) -> Work:
    """Each row brought to mean 0 and variance 1, then scaled and shifted."""
    elements = rows * features
    return Work(
        operator="layer_norm",
        flops=_LAYER_NORM_FLOPS * elements,
        bytes_moved=(2 * elements + 2 * features) * ITEM_BYTES[dtype],
        dtype=dtype,
        formula=f"FLOPs {_LAYER_NORM_FLOPS} per element, bytes of input, output and two vectors",
        shapes=f"{rows}x{features}",
    )


def elementwise(size: int, dtype: str, *, fused: bool) -> Work:
    """The chain of elementwise operators, on a square tensor."""
    elements = size**2
    tensors = 2 if fused else _CHAIN_TENSORS_EAGER
    how = "one read and one write" if fused else f"{tensors} reads and writes, one by one"
    return Work(
        operator="elementwise_fused" if fused else "elementwise_eager",
        flops=_CHAIN_OPERATORS * elements,
        bytes_moved=tensors * elements * ITEM_BYTES[dtype],
        dtype=dtype,
        formula=f"{CHAIN}: {_CHAIN_OPERATORS} FLOPs per element; bytes: {how}",
        shapes=f"{size}x{size}",
    )


def transfer(size: int, dtype: str, way: str) -> Work:
    """A square tensor moved from one place to another; its bytes count once."""
    return Work(
        operator="transfer",
        bytes_moved=size**2 * ITEM_BYTES[dtype],
        dtype=dtype,
        formula=f"bytes n^2 x {ITEM_BYTES[dtype]}, counted once; {way}",
        shapes=f"{size}x{size}",
    )
