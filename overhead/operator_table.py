"""Print the tables of docs/operators.md: operators, a loop written by hand, allocators.

    python -m overhead.operator_table --torch-python=.envs/torch/bin/python \\
        --tensorflow-python=.envs/tensorflow/bin/python [--trials=3]

Every row is of real trials on one thread. The loop that is written by hand runs the elementwise
chain of the operator benchmarks eagerly and compiled, in intervals that are about as long, with
glibc set to keep memory, and without perfrun.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from overhead.processes import PERFRUN
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
        found = {
            name: _operators(Path(folder), name, python, asked.trials)
            for name, python in pythons.items()
            if python
        }
        _show(["operator", *found], [_row(found, *one) for one in OPERATORS])
        loops = [_loop(asked.torch_python) for _ in range(asked.trials)]
        rows = [[f"{value:.3g}" for value in loop] for loop in loops]
        _show(["by hand: eager ms", "compiled ms", "speedup"], rows)
        rows = [
            _model(Path(folder), asked.torch_python, model, batch, allocator, asked.trials)
            for model, batch in MODELS
            for allocator in ALLOCATORS
        ]
        _show(["model, batch", "allocator", "median", "page faults a step", "kernel"], rows)
    sys.stdout.write(f"load {load:.1f} to {os.getloadavg()[0]:.1f}\n")
    return 0


def _operators(
    folder: Path, framework: str, python: str, trials: int
) -> Mapping[tuple[str, str], list[float]]:
    words = [f"--benchmark_methods=benchmarks.{framework}.operators.Operators.filter:.*"]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for summary in _run(folder, python, [*words, f"--benchmark_num_trials={trials}"], []):
        method = summary["benchmark_result"]["name"].rpartition(".")[2]
        for metric in summary["benchmark_result"]["metrics"]:
            found[method, metric["name"]].append(metric["value"])
    return found


def _row(
    found: Mapping[str, Mapping[tuple[str, str], list[float]]],
    method: str,
    metric: str,
    unit: str,
    scale: float,
) -> list[str]:
    cells = [f"`{method}` {metric.removeprefix('achieved_')}"]
    for values in found.values():
        numbers = sorted(value / scale for value in values.get((method, metric), []))
        cells.append(f"{', '.join(f'{number:.3g}' for number in numbers)} {unit}".strip())
    return cells


def _loop(python: str) -> list[float]:
    done = subprocess.run(
        [python, "-c", LOOP],
        env={**os.environ, **RETAIN},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


def _model(
    folder: Path, python: str, model: str, batch: int, allocator: str, trials: int
) -> list[str]:
    words = [
        "--benchmark_methods=benchmarks.torch.model.Model.inference",
        f"--benchmark_num_trials={trials}",
        f"--allocator={allocator}",
    ]
    series = [
        one["perfrun"]["series"][0]
        for one in _run(folder, python, words, [f"--model={model}", f"--batch_size={batch}"])
    ]
    times = [one["statistics"]["median_s"] for one in series]
    shares = [one["system_cpu_s"] / one["cpu_s"] for one in series]
    return [
        f"{model}, {batch}",
        allocator,
        ", ".join(f"{1e3 * time:.3g}" for time in sorted(times)) + " ms",
        f"{median(one['minor_faults_per_step'] for one in series):,.0f}",
        f"{median(shares):.0%}",
    ]


def _run(
    folder: Path, python: str, words: Sequence[str], flags: Sequence[str]
) -> list[dict[str, Any]]:
    """Run perfrun and return the summaries of its trials."""
    own = (f"--workspace={folder}", f"--python={python}", "--format=json", "--quiet")
    done = subprocess.run(
        [*PERFRUN, *own, *words, "--", "--threads=1", *flags],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout)["results"]
    return [json.loads(Path(one["summary"]).read_text(encoding="utf-8")) for one in results]


def _show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for cells in (head, ["---"] * len(head), *rows):
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.write("\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
