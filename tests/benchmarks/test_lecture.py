"""The lecture's small programs: their work and their reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from shipped_run import Run, RunMethod, assert_plausible, run_method

PYTHON = "benchmarks.python.lecture.Lecture"
TORCH = "benchmarks.torch.lecture.Lecture"


def steps_in_blocks(run: Run, iterations: int) -> int:
    """Return the number of timed steps: short ones are in equal blocks, one an iteration."""
    steps: int = run.entry["iters"]
    assert steps == iterations * run.extras["block_size"]
    return steps


@pytest.mark.parametrize("method", ["sum2d_interpreted", "sum2d_numpy"])
def test_a_matrix_is_summed_right_whoever_does_it(run_method: RunMethod, method: str) -> None:
    run = run_method(f"{PYTHON}.{method}", iterations=5, warmup=1, size=20)
    steps = steps_in_blocks(run, 5)
    assert_plausible(run, examples_per_step=400, iterations=steps, item="element")
    assert run.extras["size"] == 20


def test_an_expression_comes_with_its_bytecode(run_method: RunMethod) -> None:
    run = run_method(f"{PYTHON}.expression", iterations=5, warmup=1)
    steps = steps_in_blocks(run, 5)
    assert_plausible(run, examples_per_step=10_000, iterations=steps, item="operation")
    assert {"FOR_ITER", "STORE_FAST"} <= set(run.extras["bytecode"].split())


def test_numba_is_named_where_it_is_missing(run_method: RunMethod) -> None:
    pytest.importorskip("numpy")
    run = run_method(f"{PYTHON}.sum2d_numba", fails=True)
    assert run.stderr.splitlines()[-1].startswith(
        "perfrun.SetupError: this benchmark needs numba: pip"
    )


@pytest.mark.parametrize("collector", ["on", "off"])
def test_objects_are_made_with_the_collector_as_it_is_said(
    run_method: RunMethod, collector: str
) -> None:
    method = {"on": "objects_collected", "off": "objects_uncollected"}[collector]
    run = run_method(f"{PYTHON}.{method}", iterations=3, warmup=1)
    assert_plausible(run, examples_per_step=100_000, iterations=3, item="object")
    assert run.extras["garbage_collector"] == collector


@pytest.mark.torch
def test_the_network_of_two_layers_learns(tmp_path: Path, torch_python: str) -> None:
    keywords = {"iterations": 20, "warmup": 2, "batch_size": 8, "intra_threads": 1}
    run = run_method(tmp_path, f"{TORCH}.two_layers", python=torch_python, **keywords)
    assert_plausible(run, examples_per_step=8, iterations=20)
    assert 0 < run.metrics["final_loss"] < 80  # eight times ten values of variance 1


@pytest.mark.torch
def test_a_compiled_operation_is_held_against_the_plain_code(
    tmp_path: Path, compiling_python: str
) -> None:
    keywords = {"iterations": 5, "warmup": 1, "intra_threads": 1}
    run = run_method(tmp_path, f"{TORCH}.scaled_product", python=compiling_python, **keywords)
    steps = steps_in_blocks(run, 5)
    assert_plausible(run, examples_per_step=1, iterations=steps, item="operation")
    assert run.metrics["fused_latency_median_s"] == run.entry["wall_time"]
    assert run.metrics["compile_s"] > run.metrics["eager_latency_median_s"] > 0
    assert run.extras["threads"] == 1


@pytest.mark.torch
def test_torchscript_is_held_against_the_plain_code(tmp_path: Path, torch_python: str) -> None:
    keywords = {"iterations": 5, "warmup": 1, "intra_threads": 1}
    target = f"{TORCH}.recurrent_cell_torchscript"
    run = run_method(tmp_path, target, python=torch_python, **keywords)
    assert run.metrics["compile_s"] > 0
    assert run.metrics["fused_latency_median_s"] == run.entry["wall_time"]
    assert run.extras["compiled_by"] == "torchscript"
    assert "deprecated" not in run.stderr


@pytest.mark.torch
def test_products_side_by_side_end_within_their_step(tmp_path: Path, torch_python: str) -> None:
    keywords = {"iterations": 5, "warmup": 1, "intra_threads": 1, "size": 200}
    target = f"{TORCH}.products_side_by_side"
    run = run_method(tmp_path, target, python=torch_python, **keywords)
    assert_plausible(run, examples_per_step=1, iterations=5, item="operation")
