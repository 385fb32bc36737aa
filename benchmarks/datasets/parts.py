"""The parts of training from a data set, each timed alone: loader, device, and end to end.

They are timed one after the other, in several rounds where they are to be compared: a machine that
becomes slower meanwhile then slows all of them. `iterations` is for all rounds together.
A loader's processes or threads live only while its part is
timed: on a CPU they would take the device's time, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.configured import Configured
from benchmarks.datasets import rates

WARMUP = 3  # batches, at least
MAX_TIME_S = 3.0  # of a part in a round, where `iterations` does not say how long
PRECISION = 0.02


class Batches(Protocol):
    """What a framework's loader is to this module."""

    batch_size: int
    prefetched: int  # batches that may lie ready before the first is asked for
    burst: int  # batches that come at about the same time

    def __next__(self) -> tuple[Any, Any]: ...

    def close(self) -> None:
        """Stop what loads in the background."""


def measure_loader(benchmark: Configured, loader: Batches, rounds: int = 1) -> Any:
    """Time the loader alone; its batches are dropped."""
    try:
        return _measure(
            benchmark, rates.LOADER, loader, lambda: next(loader), loader.prefetched, rounds
        )
    finally:
        loader.close()


def measure_device(
    benchmark: Configured, loader: Batches, step: Callable[[], object], rounds: int = 1
) -> Any:
    """Time steps on a batch that is on the device already. The loader is not used."""
    return _measure(benchmark, rates.DEVICE, loader, step, 0, rounds)


def measure_end_to_end(
    benchmark: Configured,
    loader: Batches,
    step: Callable[[Any], object],
    rounds: int = 1,
    item: str = "image",
) -> tuple[Any, float]:
    """Time steps on batches as they are loaded; also return the seconds of waiting for them."""
    waits_ns: list[int] = []

    def load_and_step() -> object:
        began = time.perf_counter_ns()
        batch = next(loader)
        waits_ns.append(time.perf_counter_ns() - began)
        return step(batch)

    try:
        measured = _measure(
            benchmark, rates.END_TO_END, loader, load_and_step, loader.prefetched, rounds, item
        )
    finally:
        loader.close()
    timed = measured.facts["steps"]  # the last ones; before them, the first call and the warm-up
    return measured, sum(waits_ns[-timed:]) / 1e9


def _measure(
    benchmark: Configured,
    name: str,
    loader: Batches,
    step: Callable[[], object],
    queued: int,
    rounds: int,
    item: str = "image",
) -> Any:
    settings = benchmark.settings
    iterations = settings.value("iterations")
    # What lies ready is taken before the clock starts: else it would time a queue.
    warmup = max(settings.value("warmup", WARMUP), queued)
    return benchmark.measure(
        step,
        name=name,
        item=item,
        items_per_step=loader.batch_size,
        block_size=loader.burst,
        warmup=rates.blocks(warmup, loader.burst),
        iterations=iterations and rates.blocks(iterations, rounds * loader.burst),
        precision=PRECISION,
        max_time_s=MAX_TIME_S,
        report=False,
    )
