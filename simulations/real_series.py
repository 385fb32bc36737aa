"""A trial of the steadiness classifier on real series of this machine.

    python -m simulations.real_series

Run it with an interpreter that has torch for the rows about torch.
"""

from __future__ import annotations

import gc
import importlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from perfrun.worker.measure.statistics import median
from perfrun.worker.measure.steadiness import classify

Step = Callable[[], object]


def sorting() -> Step:
    """Sort 2,000 numbers."""
    source = random.Random(1)  # noqa: S311 - test data
    numbers = [source.random() for _ in range(2000)]
    return lambda: sorted(numbers)


def growing() -> Step:
    """Copy a list to which every call adds."""
    kept: list[int] = list(range(20_000))

    def step() -> None:
        kept.extend(range(200))
        list(kept)

    return step


def collecting() -> Step:
    """Run two kinds of step in turn: four light ones, four heavy ones."""
    calls = iter(range(1_000_000))

    def step() -> None:
        count = 60_000 if next(calls) // 4 % 2 else 30_000
        sum(range(count))

    return step


def filling() -> Step:
    """Compute 50 values and look them up from then on."""
    cache: dict[int, int] = {}
    calls = iter(range(1_000_000))

    def step() -> None:
        key = next(calls) % 50
        if key not in cache:
            cache[key] = sum(range(40_000))
        sum(range(30_000))

    return step


def eager() -> Step:
    """Run a layer of torch and its gradient, the very first calls included."""
    torch = importlib.import_module("torch")
    layer = torch.nn.Linear(256, 256)
    batch = torch.randn(64, 256)
    return lambda: layer(batch).sum().backward()


def compiled() -> Step:
    """Run what torch.compile makes: the first call compiles."""
    torch = importlib.import_module("torch")
    layer = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU())
    batch = torch.randn(64, 256)
    step: Any = torch.compile(layer)
    return lambda: step(batch)


def series(step: Step, count: int) -> list[float]:
    """Return the seconds of each call."""
    times = []
    gc.collect()
    for _ in range(count):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return times


def lines() -> Iterator[str]:
    """Yield the table, line by line."""
    yield "| series | calls | found | steady from | first call | median |"
    yield "|---|---|---|---|---|---|"
    for make, count in (
        (sorting, 500),
        (growing, 500),
        (collecting, 400),
        (filling, 400),
        (eager, 500),
        (compiled, 500),
    ):
        what = str(make.__doc__).rstrip(".")
        try:
            times = series(make(), count)
        except Exception as error:  # no torch, no compiler
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            yield f"| {what} | {count} | cannot be had here: {why} | | | |"
            continue
        found = classify(times)
        begin = "-" if found.steady_from is None else str(found.steady_from)
        yield (
            f"| {what} | {count} | {found.kind} | {begin} | {1e3 * times[0]:.3g} ms "
            f"| {1e3 * median(times):.3g} ms |"
        )


if __name__ == "__main__":
    for line in lines():
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
