"""What the operator benchmarks of both frameworks have in common: sizes, timing, the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from benchmarks.configured import Configured
from benchmarks.operations import Work

CHANNELS = 64
HEADS, HEAD_SIZE = 8, 64
_LONGEST_BLOCK = 1000  # steps

# Defaults of `size` and `batch_size`: some milliseconds on a few cores; on an accelerator so large
# that launching a kernel is nothing beside it.
SIZES = {"matmul": 1024, "conv2d": 56, "attention": 512, "layer_norm": 1024, "elementwise": 2048}
SIZES["transfer"] = 4096
ACCELERATOR_SIZES = {**SIZES, "matmul": 8192, "attention": 2048, "elementwise": 16384}
ACCELERATOR_SIZES["layer_norm"] = 8192
BATCHES = {"conv2d": 8, "attention": 4, "layer_norm": 4096}
ACCELERATOR_BATCHES = {"conv2d": 256, "attention": 16, "layer_norm": 16384}


class Operators(Configured):
    """Base of the operator benchmarks. A framework's class gives the steps."""

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
        """Time a step; exactly `iterations` and `warmup` where they are given."""
        limits = {name: self.settings.value(name) for name in ("iterations", "warmup")}
        given = {name: value for name, value in limits.items() if value is not None}
        if block_size is not None:
            given["block_size"] = block_size
        return self.measure(step, name=work.operator, item="operation", report=False, **given)

    def _timed_both(
        self, eager_step: Callable[[], Any], fused_step: Callable[[], Any], works: tuple[Work, Work]
    ) -> tuple[Any, Any]:
        """Time the eager chain, then the fused one in blocks that take about as long.

        Where processors are shared, a short interval may slip through between two turns of another
        process and a long one cannot: intervals of unlike length cannot be compared there.
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
            extras={**work.extras, **extras},
        )
        self.report_benchmark(**arguments)


def seconds_of(step: Callable[[], Any]) -> float:
    """The shortest of five calls: an estimate."""
    times_s = []
    for _ in range(5):
        began_s = time.perf_counter()
        step()
        times_s.append(time.perf_counter() - began_s)
    return max(1e-9, min(times_s))


def fusion_metrics(eager: Any, fused: Any, first_call_s: float) -> list[dict[str, Any]]:
    """Return both latencies, how many times faster the fused chain is, and what compiling took."""
    return [
        {"name": "compile_s", "value": first_call_s - fused.median_s},
        {"name": "eager_latency_median_s", "value": eager.median_s},
        {"name": "fused_latency_median_s", "value": fused.median_s},
        {"name": "fusion_speedup", "value": eager.median_s / fused.median_s},
    ]
