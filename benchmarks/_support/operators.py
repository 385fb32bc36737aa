"""Operator benchmarks in every framework: sizes, timing, the report, and the work of a call.

The work is counted from shapes. A multiply-add is two FLOPs. Bytes are the least traffic that is
possible: each input is read once and each output written once; the caches and temporaries of an
implementation do not count. No framework is imported here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks._support.kept_memory import keep_freed_memory
from benchmarks._support.knobs import Configured

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

# The chain that the elementwise benchmarks run: eight operators, two of them with two tensors.
CHAIN = "abs(max(x*1.5 + 0.5, 0)*x - 1)*0.5 + x"
_CHAIN_OPERATORS = 8
_CHAIN_TENSORS_EAGER = 6 * 2 + 2 * 3  # read and written when every operator is run by itself
_LAYER_NORM_FLOPS = 8  # mean 1, variance 3, normalising 2, scale and shift 2


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one call, and how it was counted."""

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
        """Return the report's notes on how the work was counted."""
        return {
            "operator": self.operator,
            "dtype": self.dtype,
            "counted_by": self.formula,
            "shapes": self.shapes,
        }


def matmul(size: int, dtype: str) -> Work:
    """Count a product of two square matrices."""
    return Work(
        operator="matmul",
        flops=2 * size**3,
        bytes_moved=3 * size**2 * ITEM_BYTES[dtype],
        dtype=dtype,
        formula=f"FLOPs 2 n^3, bytes 3 n^2 x {ITEM_BYTES[dtype]}; n = {size}",
        shapes=f"{size}x{size} @ {size}x{size}",
    )


def conv2d(batch: int, size: int, channels: int, dtype: str, kernel: int = 3) -> Work:
    """Count a convolution that keeps the image's size and its number of channels, without bias."""
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
    """Count scaled dot product attention: softmax(Q K^T / sqrt(d)) V."""
    return Work(
        operator="attention",
        flops=4 * batch * heads * tokens**2 * head_size,
        bytes_moved=4 * batch * heads * tokens * head_size * ITEM_BYTES[dtype],
        dtype=dtype,
        formula="FLOPs 4 B H T^2 d (two products; softmax not counted), bytes of Q, K, V, output",
        shapes=f"batch {batch}, heads {heads}, tokens {tokens}, head size {head_size}",
    )


def layer_norm(rows: int, features: int, dtype: str) -> Work:
    """Count layer normalisation: each row to mean 0 and variance 1, then scaled and shifted."""
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
    """Count the chain of elementwise operators, on a square tensor."""
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
    """Count a square tensor moved from one place to another; its bytes count once."""
    return Work(
        operator="transfer",
        bytes_moved=size**2 * ITEM_BYTES[dtype],
        dtype=dtype,
        formula=f"bytes n^2 x {ITEM_BYTES[dtype]}, counted once; {way}",
        shapes=f"{size}x{size}",
    )


CHANNELS = 64
HEADS, HEAD_SIZE = 8, 64
_LONGEST_BLOCK = 1000  # steps

# Defaults of `size` and `batch_size`: a call takes some milliseconds on a few cores. On an
# accelerator it is so large that launching a kernel is negligible.
SIZES = {"matmul": 1024, "conv2d": 56, "attention": 512, "layer_norm": 1024, "elementwise": 2048}
SIZES["transfer"] = 4096
ACCELERATOR_SIZES = {**SIZES, "matmul": 8192, "attention": 2048, "elementwise": 16384}
ACCELERATOR_SIZES["layer_norm"] = 8192
BATCHES = {"conv2d": 8, "attention": 4, "layer_norm": 4096}
ACCELERATOR_BATCHES = {"conv2d": 256, "attention": 16, "layer_norm": 16384}


class Operators(Configured):
    """Base of the operator benchmarks. A framework's class gives the steps.

    Freed memory stays with the process, in every method: what they compare has the same allocation.
    """

    takes: ClassVar[tuple[str, ...]] = (
        "size",
        "batch_size",
        "iterations",
        "warmup",
        "device",
        "dtype",
        "intra_threads",
        "inter_threads",
        "seed",
    )

    def __init__(self, *args: Any, **knobs: Any) -> None:
        super().__init__(*args, **knobs)
        self._allocator = keep_freed_memory()  # before the framework starts threads

    def _size(self, operator: str, *, accelerated: bool) -> int:
        defaults = ACCELERATOR_SIZES if accelerated else SIZES
        return self.settings.value("size", defaults[operator])

    def _batch(self, operator: str, *, accelerated: bool) -> int:
        defaults = ACCELERATOR_BATCHES if accelerated else BATCHES
        return self.settings.value("batch_size", defaults[operator])

    @property
    def _dtype(self) -> str:
        return self.settings.value("dtype", "float32")

    def _timed(self, step: Callable[[], Any], work: Work, block_size: int | None = None) -> Any:
        """Time a step, with exactly `iterations` and `warmup` where they are given."""
        limits = {name: self.settings.value(name) for name in ("iterations", "warmup")}
        given = {name: value for name, value in limits.items() if value is not None}
        if block_size is not None:
            given["block_size"] = block_size
        return self.measure(step, name=work.operator, item="operation", report=False, **given)

    def _timed_both(
        self, eager_step: Callable[[], Any], fused_step: Callable[[], Any], works: tuple[Work, Work]
    ) -> tuple[Any, Any]:
        """Time the eager chain, then the fused one in blocks that take about as long.

        Where processors are shared, a short interval may fit between two time slices of another
        process, and a long one does not: intervals of unlike length cannot be compared there.
        """
        eager = self._timed(eager_step, works[0])
        as_long = round(eager.median_s * eager.block_size / seconds_of(fused_step))
        return eager, self._timed(fused_step, works[1], max(1, min(as_long, _LONGEST_BLOCK)))

    def _report(
        self,
        timed: Any,
        work: Work,
        extras: Mapping[str, Any],
        metrics: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        arguments = timed.report_arguments(
            metrics=[*work.metrics(timed.median_s), *metrics],
            extras={**work.extras, "allocator": self._allocator, **extras},
        )
        self.report_benchmark(**arguments)


def seconds_of(step: Callable[[], Any]) -> float:
    """Return the seconds of the shortest of five calls, as an estimate."""
    times_s = []
    for _ in range(5):
        began_s = time.perf_counter()
        step()
        times_s.append(time.perf_counter() - began_s)
    return max(1e-9, min(times_s))


def fusion_metrics(eager: Any, fused: Any, first_call_s: float) -> list[dict[str, Any]]:
    """Return both latencies, the speedup of the fused chain, and the time of compilation."""
    return [
        {"name": "compile_s", "value": first_call_s - fused.median_s},
        {"name": "eager_latency_median_s", "value": eager.median_s},
        {"name": "fused_latency_median_s", "value": fused.median_s},
        {"name": "fusion_speedup", "value": eager.median_s / fused.median_s},
    ]
