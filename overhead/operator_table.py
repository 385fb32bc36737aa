"""Print the tables of docs/research/operators.md: operators, a loop written by hand, allocators.

    python -m overhead.operator_table --torch-python=.envs/torch/bin/python \\
        --tensorflow-python=.envs/tensorflow/bin/python [--trials=3]

Every row is of real trials on one thread, and printed as soon as it is measured. The loop that is
written by hand runs the elementwise chain of the operator benchmarks eagerly and compiled, in
intervals that are about as long, with glibc set to keep memory, and without perfrun.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from overhead.processes import MeasurementError, finish, perfrun
from perfrun.run.allocator import RETAIN

OPERATORS = (
    ("matmul", "achieved_flops_per_second", "GFLOP/s", 1e9),
    ("conv2d", "achieved_flops_per_second", "GFLOP/s", 1e9),
    ("attention", "achieved_flops_per_second", "GFLOP/s", 1e9),
    ("layer_norm", "achieved_bytes_per_second", "GB/s", 1e9),
    ("elementwise_eager", "achieved_bytes_per_second", "GB/s", 1e9),
    ("elementwise_fused", "achieved_bytes_per_second", "GB/s", 1e9),
    ("elementwise_fused", "eager_latency_median_s", "ms", 1e-3),
    ("elementwise_fused", "fused_latency_median_s", "ms", 1e-3),
    ("elementwise_fused", "fusion_speedup", "", 1),
    ("transfer_to_device", "achieved_bytes_per_second", "GB/s", 1e9),
    ("transfer_from_device", "achieved_bytes_per_second", "GB/s", 1e9),
)
MODELS = (("efficientnet_b0", 1), ("mobilenet_v2", 8))
ALLOCATORS = ("default", "retain", "tcmalloc")
OWN = ("--", "--threads=1")  # flags of the benchmarks
LOOP = """
import time, torch
from statistics import median
torch.set_num_threads(1)
values = torch.randn(2048, 2048)

def chain(x):
    kept = torch.clamp_min(x * 1.5 + 0.5, 0.0) * x
    return torch.abs(kept - 1.0) * 0.5 + x

def timed(call, block):
    times = []
    for _ in range(150):
        began = time.perf_counter()
        for _ in range(block):
            call()
        times.append((time.perf_counter() - began) / block)
    return median(times[50:])

with torch.inference_mode():
    fused = torch.compile(chain)
    fused(values)
    eager_s, fused_s = timed(lambda: chain(values), 1), timed(lambda: fused(values), 10)
print(eager_s * 1e3, fused_s * 1e3, eager_s / fused_s)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and print the rows, with the load before and after."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch-python", required=True)
    parser.add_argument("--tensorflow-python")
    parser.add_argument("--trials", type=int, default=3)
    asked = parser.parse_args(arguments)
    pythons = {"torch": asked.torch_python, "tensorflow": asked.tensorflow_python}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="perfrun operators ") as folder:
        try:
            for name, python in pythons.items():
                if python:
                    found = _operators(Path(folder), name, python, asked.trials)
                    _show(["operator", name], (_row(found, *one) for one in OPERATORS))
            loops = (_loop(asked.torch_python) for _ in range(asked.trials))
            _show(["by hand: eager ms", "compiled ms", "speedup"], loops)
            models = (
                _model(Path(folder), asked.torch_python, model, batch, allocator, asked.trials)
                for model, batch in MODELS
                for allocator in ALLOCATORS
            )
            _show(["model, batch", "allocator", "median", "page faults a step", "kernel"], models)
        except MeasurementError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    sys.stdout.write(f"load {load:.1f} to {os.getloadavg()[0]:.1f}\n")
    return 0


def _operators(
    folder: Path, framework: str, python: str, trials: int
) -> Mapping[tuple[str, str], list[float]]:
    method = f"benchmarks.{framework}.operators.Operators.filter:.*"
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for summary in _summaries(folder, python, method, f"--benchmark_num_trials={trials}", *OWN):
        method = summary["benchmark_result"]["name"].rpartition(".")[2]
        for metric in summary["benchmark_result"]["metrics"]:
            found[method, metric["name"]].append(metric["value"])
    return found


def _row(
    found: Mapping[tuple[str, str], list[float]],
    method: str,
    metric: str,
    unit: str,
    scale: float,
) -> list[str]:
    numbers = sorted(value / scale for value in found.get((method, metric), []))
    values = f"{', '.join(f'{number:.3g}' for number in numbers)} {unit}".strip()
    return [f"`{method}` {metric.removeprefix('achieved_')}", values]


def _loop(python: str) -> list[str]:
    done = finish([python, "-c", LOOP], variables=RETAIN)
    return [f"{float(word):.3g}" for word in done.stdout.split()]


def _model(
    folder: Path, python: str, model: str, batch: int, allocator: str, trials: int
) -> list[str]:
    words = [
        *(f"--benchmark_num_trials={trials}", f"--allocator={allocator}"),
        *(*OWN, f"--model={model}", f"--batch_size={batch}"),
    ]
    method = "benchmarks.torch.model.Model.inference"
    series = [one["perfrun"]["series"][0] for one in _summaries(folder, python, method, *words)]
    times = [one["statistics"]["median_s"] for one in series]
    shares = [one["system_cpu_s"] / one["cpu_s"] for one in series]
    return [
        f"{model}, {batch}",
        allocator,
        ", ".join(f"{1e3 * time:.3g}" for time in sorted(times)) + " ms",
        f"{median(one['minor_faults_per_step'] for one in series):,.0f}",
        f"{median(shares):.0%}",
    ]


def _summaries(folder: Path, python: str, method: str, *words: str) -> tuple[dict[str, Any], ...]:
    return perfrun(folder, [method], f"--python={python}", *words).summaries


def _show(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, each row as soon as it is there."""
    for cells in chain((head, ["---"] * len(head)), rows):
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
        sys.stdout.flush()
    sys.stdout.write("\n")


if __name__ == "__main__":
    raise SystemExit(main())
