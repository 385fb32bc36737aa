"""EfficientNet-B0 in both frameworks, each in its own environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shipped_run import ROOT, RunMethod, assert_plausible

TORCH = "benchmarks.torch.efficientnet.EfficientNetB0"
TENSORFLOW = "benchmarks.tensorflow.efficientnet.EfficientNetB0"
COMMON_METRICS = [
    "latency_median_s",
    "latency_mean_s",
    "latency_p50_s",
    "latency_min_s",
    "latency_max_s",
    "first_call_s",
    "warmup_s",
    "examples_per_second",
    "examples_per_second_per_device",
    "parameters",
]
# Random guessing among 1000 classes costs ln(1000) = 6.9; the same eight pictures are learned soon.
LEARNED_LOSS = 6.0


@pytest.mark.torch
def test_torch_inference_is_plausible_and_counts_its_parameters(
    run_method: RunMethod, torch_python: str
) -> None:
    run = run_method(f"{TORCH}.inference", python=torch_python, iterations=5, warmup=1)
    assert_plausible(run, examples_per_step=1, iterations=5)
    assert set(COMMON_METRICS) <= set(run.metrics)
    assert run.metrics["parameters"] == 5_288_548
    assert run.bounds("parameters") == (5_288_548, 5_288_548)
    assert run.extras["batch_size"] == 1
    assert run.extras["threads"] >= 1
    assert {"device", "torch_version", "torchvision_version"} <= set(run.extras)


@pytest.mark.torch
def test_torch_batch8_is_eight_whatever_batch_size_says(
    run_method: RunMethod, torch_python: str
) -> None:
    run = run_method(f"{TORCH}.inference_batch8", python=torch_python, iterations=3, batch_size=2)
    assert_plausible(run, examples_per_step=8, iterations=3)
    assert run.extras["batch_size"] == 8


@pytest.mark.torch
def test_torch_training_learns(run_method: RunMethod, torch_python: str) -> None:
    run = run_method(f"{TORCH}.training", python=torch_python)
    assert_plausible(run, examples_per_step=8, iterations=6)
    assert {*COMMON_METRICS, "final_loss"} <= set(run.metrics)
    assert 0 < run.metrics["final_loss"] < LEARNED_LOSS


@pytest.mark.torch
def test_torch_flags_reach_the_method(run_method: RunMethod, torch_python: str) -> None:
    run = run_method(
        f"{TORCH}.inference", "--batch_size=3", "--iterations=2", python=torch_python, warmup=0
    )
    assert_plausible(run, examples_per_step=3, iterations=2)
    assert run.extras["batch_size"] == 3


@pytest.mark.torch
def test_torch_refuses_an_empty_batch_by_name(run_method: RunMethod, torch_python: str) -> None:
    run = run_method(f"{TORCH}.inference", python=torch_python, fails=True, batch_size=0)
    said = "perfrun.SetupError: batch_size is 0; it must"
    assert run.stderr.strip().splitlines()[-1].startswith(said)


def in_python(python: str, code: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{path}:{ROOT}" if path else str(ROOT)}
    return subprocess.run([python, "-c", code], capture_output=True, text=True, env=environment)


@pytest.mark.torch
def test_torchvision_loads_and_its_operators_work_or_explain_themselves(torch_python: str) -> None:
    done = in_python(
        torch_python,
        """
import torch
from benchmarks.torch._support.libraries import torchvision
first = torchvision.load()
assert torchvision.load() is first
assert first.ops is not None and first.extension is not None
try:
    kept = first.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([1.0]), 0.5)
    assert kept.tolist() == [0] and not torchvision.is_repaired()
except RuntimeError as error:
    assert torchvision.is_repaired() and "C++ ops" in str(error), error
""",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.torch
def test_other_failures_of_torchvision_are_not_papered_over(
    torch_python: str, tmp_path: Path
) -> None:
    broken = tmp_path / "torchvision"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('the disk is on fire')\n")
    code = "from benchmarks.torch._support.libraries import torchvision as t; t.load()"
    done = in_python(torch_python, code, path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.strip().endswith("RuntimeError: the disk is on fire")


@pytest.mark.tensorflow
def test_tensorflow_inference_is_plausible_and_counts_its_parameters(
    run_method: RunMethod, tensorflow_python: str
) -> None:
    run = run_method(f"{TENSORFLOW}.inference", python=tensorflow_python, iterations=5, warmup=1)
    assert_plausible(run, examples_per_step=1, iterations=5)
    assert set(COMMON_METRICS) <= set(run.metrics)
    assert run.metrics["parameters"] == 5_330_571
    assert run.bounds("parameters") == (5_330_571, 5_330_571)
    assert run.metrics["trainable_parameters"] == 5_288_548  # as many as torchvision's model
    # The first call traces and compiles; were it not kept apart, it would be in the latency.
    assert run.metrics["first_call_s"] > run.metrics["latency_median_s"]


@pytest.mark.tensorflow
def test_tensorflow_batch_of_eight_reports_eight_examples_per_step(
    run_method: RunMethod, tensorflow_python: str
) -> None:
    run = run_method(f"{TENSORFLOW}.inference_batch8", python=tensorflow_python, iterations=3)
    assert_plausible(run, examples_per_step=8, iterations=3)


@pytest.mark.tensorflow
def test_tensorflow_training_learns(run_method: RunMethod, tensorflow_python: str) -> None:
    run = run_method(f"{TENSORFLOW}.training", python=tensorflow_python)
    assert_plausible(run, examples_per_step=8, iterations=6)
    assert 0 < run.metrics["final_loss"] < LEARNED_LOSS


@pytest.mark.tensorflow
def test_tensorflow_flags_reach_the_method(run_method: RunMethod, tensorflow_python: str) -> None:
    run = run_method(
        f"{TENSORFLOW}.inference", "--batch_size=2", "--iterations=2", python=tensorflow_python
    )
    assert_plausible(run, examples_per_step=2, iterations=2)
