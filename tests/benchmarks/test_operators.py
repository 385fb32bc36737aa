"""Single operators: the counts of their work, and the rates that physics allows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shipped_run import ROOT, RunMethod

from benchmarks._support import operators
from benchmarks._support.kept_memory import keep_freed_memory
from perfrun.run.outcome import read_series
from perfrun.selftest.reference import read_peak
from perfrun.worker.outcome_file import SERIES_VARIABLE
from perfrun.worker.test_log import decode_entries

# argv: module, constructor keywords by method as JSON. All methods in one process: imports cost.
DRIVER = """
import importlib, json, sys
Operators = importlib.import_module(sys.argv[1]).Operators
for method, keywords in json.loads(sys.argv[2]).items():
    getattr(Operators(**keywords), method)()
"""
LARGE = 3072  # a tensor of 36 MiB, which glibc by itself gives back whenever it is freed
# A call. Without kept memory it is six results of 9,000 pages each. A slow machine times five calls
# only, and one result that is new in one of them makes 1,843.
FEW_FAULTS = 5000
SMALL: dict[str, dict[str, Any]] = {
    "matmul": {"size": 256, "iterations": 30},
    "conv2d": {"size": 14, "batch_size": 2},
    "attention": {"size": 64, "batch_size": 2},
    "layer_norm": {"size": 128, "batch_size": 64},
    "elementwise_eager": {"size": LARGE, "dtype": "bfloat16", "warmup": 8},
    "elementwise_fused": {"size": LARGE, "warmup": 8},  # until the heap is as large as it gets
    "transfer_to_device": {"size": 512},
    "transfer_from_device": {"size": 512, "dtype": "float16"},
}


def run_all(folder: Path, python: str, module: str, *methods: str) -> dict[str, dict[str, Any]]:
    """Run methods (all) on one thread; return metrics and extras of each by its name."""
    folder.mkdir()
    keywords = {
        method: {"intra_threads": 1, "device": "cpu", "iterations": 5, "warmup": 2, **own}
        for method, own in SMALL.items()
        if method in (methods or SMALL)
    }
    done = subprocess.run(
        [python, "-c", DRIVER, module, json.dumps(keywords)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TEST_REPORT_FILE_PREFIX": f"{folder}/proto_",
            SERIES_VARIABLE: str(folder),
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for path in folder.glob("proto_*"):
        (entry,) = decode_entries(path.read_bytes())
        values = {item["name"]: item["value"] for item in (*entry["metrics"], *entry["extras"])}
        found[entry["name"].split(".")[1]] = values
    assert sorted(found) == sorted(keywords)
    return found


def fastest(values: dict[str, Any]) -> float:
    """Return the operations a second in the shortest call."""
    return float(values["flops_per_call"] / values["latency_min_s"])


def assert_possible(folder: Path, python: str, module: str, found: dict[str, Any]) -> None:
    """Assert that no operator does more than the machine can.

    The fastest of thirty small products on one thread is what a thread can do. The others are
    held to twice that: their best call may have had a higher clock, or no disturbance. Where all
    thirty were disturbed, there are thirty more.
    """
    peak = fastest(found["matmul"])
    bound = read_peak().flops_per_s or float("inf")
    rates = {name: fastest(values) for name, values in found.items() if "flops_per_call" in values}
    for attempt in range(8):
        if max(rates.values()) <= 2 * peak:
            break
        again = run_all(folder / f"again {attempt}", python, module, "matmul")
        peak = max(peak, fastest(again["matmul"]))
    assert max(rates.values()) <= min(2 * peak, bound), (rates, peak, bound)


def assert_same_memory(folder: Path, found: dict[str, dict[str, Any]]) -> None:
    """Assert that no method pays for memory that is given back, so that all can be compared."""
    assert {values["allocator"] for values in found.values()} == {keep_freed_memory()}
    notes: list[str] = []
    series = read_series(folder, notes)
    assert not notes
    chain = [one for one in series if one["name"].startswith("elementwise")]
    assert len(chain) == 3, "the eager chain by itself, and eager and fused to compare"
    for one in chain:
        assert one["minor_faults_per_step"] < FEW_FAULTS, one["name"]


def assert_sound(folder: Path, python: str, module: str) -> None:
    found = run_all(folder / "all", python, module)
    assert_possible(folder, python, module, found)
    matmul = found["matmul"]
    assert matmul["flops_per_call"] == 2 * 256**3
    for method, values in found.items():
        median_s = values["latency_median_s"]
        assert values["achieved_bytes_per_second"] * median_s == pytest.approx(
            values["bytes_per_call"]
        )
        assert {"counted_by", "shapes", "device", "dtype", "threads"} <= set(values)
        assert values["threads"] == 1
        assert ("flops_per_call" in values) == (not method.startswith("transfer"))
    for method in ("transfer_to_device", "transfer_from_device"):
        assert "within the CPU's memory" in found[method]["counted_by"]
    assert found["transfer_from_device"]["bytes_per_call"] == 512**2 * 2  # float16
    assert_same_memory(folder / "all", found)
    fused = found["elementwise_fused"]
    assert fused["compile_s"] > fused["latency_median_s"]
    assert fused["fusion_speedup"] == pytest.approx(
        fused["eager_latency_median_s"] / fused["fused_latency_median_s"]
    )
    # Nine times the traffic, in a type of half the size.
    assert found["elementwise_eager"]["bytes_per_call"] * 2 == 9 * fused["bytes_per_call"]


@pytest.mark.torch
def test_torch_operators_count_their_work_and_stay_below_the_peak(
    tmp_path: Path, compiling_python: str
) -> None:
    assert_sound(tmp_path, compiling_python, "benchmarks.torch.operators")


@pytest.mark.tensorflow
def test_tensorflow_operators_count_their_work_and_stay_below_the_peak(
    tmp_path: Path, tensorflow_python: str
) -> None:
    assert_sound(tmp_path, tensorflow_python, "benchmarks.tensorflow.operators")


def test_twice_the_side_is_eight_times_the_product_and_four_times_its_bytes() -> None:
    small, large = operators.matmul(128, "float32"), operators.matmul(256, "float32")
    assert large.flops == 8 * (small.flops or 0)
    assert large.bytes_moved == 4 * small.bytes_moved


def test_counts_are_those_of_a_walk_over_every_output() -> None:
    # One output of a convolution takes a multiply-add per input channel and kernel element.
    assert operators.conv2d(2, 5, 3, "float32").flops == 2 * (2 * 3 * 5 * 5) * (3 * 3 * 3)
    # Scores: T x T dot products of length d; output: T x d dot products of length T.
    assert operators.attention(2, 4, 16, 8, "float32").flops == 2 * 4 * (
        16 * 16 * 2 * 8 + 16 * 8 * 2 * 16
    )
    assert operators.layer_norm(10, 7, "float16").bytes_moved == (2 * 70 + 2 * 7) * 2


def test_fusing_saves_traffic_and_no_arithmetic() -> None:
    eager = operators.elementwise(64, "float32", fused=False)
    fused = operators.elementwise(64, "float32", fused=True)
    assert eager.flops == fused.flops == 8 * 64**2
    assert eager.bytes_moved == 9 * fused.bytes_moved == 9 * 2 * 4 * 64**2


def test_rates_are_counts_over_seconds() -> None:
    work = operators.matmul(100, "bfloat16")
    assert {metric["name"]: metric["value"] for metric in work.metrics(0.5)} == {
        "flops_per_call": 2e6,
        "bytes_per_call": 60_000,
        "achieved_flops_per_second": 4e6,
        "achieved_bytes_per_second": 120_000,
    }


PRODUCT = "benchmarks.python.products.Product.matmul"


def test_a_machine_without_a_framework_multiplies_with_numpy(run_method: RunMethod) -> None:
    run = run_method(PRODUCT, size=64, iterations=9, warmup=1)
    assert run.metrics["flops_per_call"] == 2 * 64**3
    assert run.entry["iters"] >= 9
    assert {"numpy_version", "blas", "counted_by"} <= set(run.extras)


def test_without_numpy_one_line_names_the_package(tmp_path: Path, run_method: RunMethod) -> None:
    hidden = tmp_path / "numpy.py"
    hidden.write_text("raise ImportError('not here')\n")
    driver = tmp_path / "python"  # an interpreter in which numpy cannot be imported
    driver.write_text(
        f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    driver.chmod(0o755)
    run = run_method(PRODUCT, python=str(driver), fails=True)
    assert (
        run.stderr.strip()
        .splitlines()[-1]
        .startswith("perfrun.SetupError: this benchmark needs numpy: pip install numpy")
    )
