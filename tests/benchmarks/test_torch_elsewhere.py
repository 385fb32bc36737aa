"""PyTorch classes through the perfrun command, and under PerfZero's contract without perfrun."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from shipped_run import ROOT
from worlds import World

from perfrun.selftest.reference import read_peak

pytestmark = pytest.mark.torch

MODEL = "benchmarks.torch.model.Model"
TINY = ("--num_batches=3", "--num_warmup_batches=1", "--threads=1", "--batch_size=2")


def metrics_of(summary: dict[str, Any]) -> dict[str, float]:
    found = summary["benchmark_result"]["metrics"]
    return {metric["name"]: metric["value"] for metric in found}


@pytest.mark.parametrize(
    ("model", "shape", "parameters"),
    [
        ("torchvision:resnet18", "3x64x64", 11_689_512),
        ("timm:efficientnet_b0", "3x64x64", 5_288_548),
        ("transformers:llama-small", "16", 58_073_600),
    ],
)
def test_a_model_of_each_library_is_run_and_trained_by_the_command(
    tmp_path: Path, torch_python: str, model: str, shape: str, parameters: int
) -> None:
    world = World(tmp_path)
    world.write("")  # the folder of classes must be there
    done = world.run(
        *(f"--python={torch_python}", "--format=json", "--"),
        *(f"--model={model}", f"--input_shape={shape}", *TINY),
        methods=f"{MODEL}.inference,{MODEL}.training",
    )
    assert done.statuses == ["passed", "passed"], done.stderr
    inference, training = done.summaries()
    for summary in (inference, training):
        metrics = metrics_of(summary)
        assert metrics["parameters"] == metrics["trainable_parameters"] == parameters
        assert metrics["latency_median_s"] * metrics["examples_per_second"] == pytest.approx(2)
        # Where the peak was measured beside others, more than the peak is said to be suspicious.
        extras = {extra["name"]: extra["value"] for extra in summary["benchmark_result"]["extras"]}
        share = metrics["model_flops_utilisation"]
        assert (share > 1) == ("mfu_suspicious" in extras)
        assert extras["threads"] == 1
        bound = (read_peak().flops_per_s or math.inf) / read_peak().cores
        assert 0 < metrics["peak_flops_per_second"] <= bound
        assert 0 < metrics["achieved_flops_per_second"] <= bound
        # The summary has memory and the CPU's energy or its absence in sections of their own.
        assert summary["process_info"]["max_rss"] > parameters * 4
    assert "final_loss" not in metrics_of(inference)
    assert metrics_of(training)["final_loss"] > 0
    more = metrics_of(training)["flops_per_example"] / metrics_of(inference)["flops_per_example"]
    assert 2.5 < more <= 3


def test_a_class_runs_under_perfzeros_contract_without_perfrun(
    tmp_path: Path, torch_python: str
) -> None:
    program = str(Path(__file__).with_name("perfzero_contract.py"))
    keywords = {"iterations": 3, "warmup": 1, "intra_threads": 1, "input_shape": "3x64x64"}
    target = "benchmarks.torch.resnet.ResNet18.inference"
    done = subprocess.run(
        [torch_python, program, target, str(tmp_path), json.dumps(keywords)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["has_exception"], result["succeeded"]) == (False, True)
    assert (result["name"], result["iters"]) == (target, 3)
    assert result["wall_time"] * result["throughput"] == pytest.approx(1)
    assert result["extras"]["model"] == "resnet18"
    metrics = {metric["name"]: metric["value"] for metric in result["metrics"]}
    assert metrics["parameters"] == 11_689_512
    assert metrics["latency_median_s"] == result["wall_time"]


def test_perfzeros_contract_turns_a_refusal_into_its_minus_one(
    tmp_path: Path, torch_python: str
) -> None:
    program = str(Path(__file__).with_name("perfzero_contract.py"))
    target = "benchmarks.torch.resnet.ResNet18.inference"
    done = subprocess.run(
        [torch_python, program, target, str(tmp_path), json.dumps({"batch_size": 0})],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, result["wall_time"]) == (1, -1)
    assert "batch_size is 0; it must be a whole number, at least 1" in result["error"]
