"""Any PyTorch model run for real on the CPU: inference and training, eager and compiled."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import pytest
from several_methods import Several, method, run_several

from perfrun.selftest.reference import read_peak

pytestmark = pytest.mark.torch

MODEL = "benchmarks.torch.model.Model"
TINY = {"iterations": 3, "warmup": 1, "intra_threads": 1}
NET = {"model": "sensor_net", **TINY}
IMAGE = {**TINY, "input_shape": "3x64x64", "batch_size": 4}
SMALL = {"model": "mobilenet_v2", **IMAGE}
METHODS = {
    # The first one is the only one with a cold start.
    "eager": method(f"{MODEL}.inference", **SMALL, channels_last=True, seed=7, inter_threads=3),
    "trained": method(f"{MODEL}.training", **SMALL),
    "half": method(f"{MODEL}.inference_bfloat16", **NET),
    "trained_half": method(f"{MODEL}.training_float16", **NET, batch_size=4),
    "run_forward": method(f"{MODEL}.run", **NET, forward_only=True, cudnn_fastest=True),
    "trained_run": method(f"{MODEL}.run", **NET),
    "pageable": method(f"{MODEL}.inference", **NET, data="synthetic/pageable", batch_size=4),
    "two_results": method(
        f"{MODEL}.training",
        **{**TINY, "iterations": 1, "warmup": 0},
        model="torchvision:inception_v3",  # and its auxiliary classifier, which needs 299 pixels
        batch_size=2,
    ),
    "named": method("benchmarks.torch.resnet.ResNet18.inference", **IMAGE),
    # What is refused.
    "no_gpu": method(f"{MODEL}.inference", **NET, device="cuda:1"),
    "other_framework": method(f"{MODEL}.inference", **NET, compile="xla"),
    "contradiction": method(f"{MODEL}.inference_eager", **NET, compile="default"),
    "other_type": method(f"{MODEL}.inference_bfloat16", **NET, dtype="float16"),
    "other_way": method(f"{MODEL}.training", **NET, forward_only=True),
    "shape": method(f"{MODEL}.inference", **NET, input_shape="3x32x32"),
    "one_size": method(f"{MODEL}.inference", **{**NET, "model": "alexnet"}, input_shape="3x99x99"),
    "no_images": method(f"{MODEL}.inference", **NET, channels_last=True),
    "unknown": method(f"{MODEL}.inference", model="resnet19"),
    "library": method(f"{MODEL}.inference", model="tensorvision:resnet18"),
    "other_model": method("benchmarks.torch.resnet.ResNet18.inference", **NET),
    "late_threads": method(f"{MODEL}.inference", **NET, inter_threads=7),
    "no_compiler": method(f"{MODEL}.inference_compiled", {"CXX": "/nowhere/g++"}, **NET),
}
REFUSED = {
    "no_gpu": "SetupError: device is 'cuda:1'; PyTorch",
    "other_framework": "SetupError: compile is 'xla'; here it must be one of eager, default",
    "contradiction": "SetupError: compile is 'default'; this method is the one for eager",
    "other_type": "SetupError: dtype is 'float16'; this method is the one for bfloat16",
    "other_way": "SetupError: forward_only is True; this method is the one for training",
    "shape": "SetupError: input_shape is 3x32x32; sensor_net takes features, such as 784",
    "one_size": "SetupError: alexnet takes 3x227x227 and nothing else",
    "no_images": "SetupError: channels_last is for images; sensor_net takes features",
    "unknown": "SetupError: there is no model resnet19 for PyTorch; did you mean resnet1",
    "library": "SetupError: model is 'tensorvision:resnet18': PyTorch's models are in torchvision",
    "other_model": "SetupError: ResNet18 does not take model; ResNet18 takes forward_only",
    "late_threads": "SetupError: inter_threads is 7, and PyTorch has started its threads",
    "no_compiler": "SetupError: torch.compile needs a C++ compiler for the CPU, and there is no",
}
# What no thread on this machine can exceed, in single precision; 16-bit types have units of
# their own (AMX does 16 times what AVX-512 does in single precision).
BOUND = (read_peak().flops_per_s or math.inf) / read_peak().cores
FASTER = {"float32": 1, "bfloat16": 16, "float16": 16}
# SensorNet's matrices by hand: 784, 1024, 1024, 1024, 16.
BY_HAND = 2 * (784 * 1024 + 2 * 1024 * 1024 + 1024 * 16)
# Backward: once more for the weights, and for the inputs of all layers but the first.
TRAINED = 3 * BY_HAND - 2 * 784 * 1024


@pytest.fixture(scope="module")
def several(compiling_python: str, tmp_path_factory: pytest.TempPathFactory) -> Several:
    # By a path without a space, which is refused before a compiler is looked for.
    return run_several(compiling_python, tmp_path_factory.mktemp("torch"), METHODS)


def test_what_cannot_be_measured_is_refused_in_one_line(several: Several) -> None:
    assert set(several.refusals) == set(REFUSED), several.refusals
    for name, line in REFUSED.items():
        assert several.refusals[name].startswith(line), several.refusals[name]
        assert "\n" not in several.refusals[name]


def test_each_way_of_running_a_model_is_measured_and_named(several: Several) -> None:
    assert set(several.reports) == set(METHODS) - set(REFUSED)
    trained = {"trained", "trained_half", "trained_run", "two_results"}
    for name, report in several.reports.items():
        metrics, extras = report["metrics"], report["extras"]
        assert report["wall_time"] * report["throughput"] == pytest.approx(extras["batch_size"])
        assert ("final_loss" in metrics) == (name in trained), name
        assert ("cold_start_s" in metrics) == (name == "eager"), name
        assert "compile_s" not in metrics
        assert extras["compile"] == "eager"
        assert metrics["model_build_s"] > 0, name
    of = {name: report["extras"] for name, report in several.reports.items()}
    assert (of["half"]["dtype"], of["trained_half"]["dtype"]) == ("bfloat16", "float16")
    assert of["run_forward"]["cudnn_fastest"] == "no effect"


def test_a_cold_start_holds_import_build_and_first_step(several: Several) -> None:
    metrics = several.reports["eager"]["metrics"]
    parts = ("framework_import_s", "model_build_s", "first_call_s")
    assert sum(metrics[name] for name in parts) < metrics["cold_start_s"] < 3000


def test_arithmetic_is_counted_for_one_example_and_held_against_the_peak(
    several: Several,
) -> None:
    for name in ("half", "run_forward", "pageable"):
        assert several.reports[name]["metrics"]["flops_per_example"] == BY_HAND, name
    # The arithmetic of float16 is far slower than that of float32 on many CPUs; autocast uses both.
    for name in ("half", "trained_half"):
        assert "float" in several.reports[name]["extras"]["peak_measured_by"]
        assert several.reports[name]["metrics"]["peak_flops_per_second"] > 1e8
    for name in ("trained_half", "trained_run"):
        assert several.reports[name]["metrics"]["flops_per_example"] == TRAINED, name
    for name, report in several.reports.items():
        metrics = report["metrics"]
        flops = metrics["flops_per_example"]
        assert metrics["macs_per_example"] == flops / 2
        achieved = flops * metrics["examples_per_second_per_device"]
        assert metrics["achieved_flops_per_second"] == pytest.approx(achieved)
        share = achieved / metrics["peak_flops_per_second"]
        assert metrics["model_flops_utilisation"] == pytest.approx(share)
        # One of these threads: a rate with a factor of a batch, a unit or a pass too much is above
        # what it can do. A peak that was measured beside others may be too low, and says so.
        extras = report["extras"]
        assert extras["threads"] == 1
        best = BOUND * FASTER[extras["peak_measured_by"].rpartition(", ")[2]]
        assert 0 < metrics["peak_flops_per_second"] <= best, name
        assert 0 < achieved <= BOUND * FASTER[extras["dtype"]], name
        assert (share > 1) == ("mfu_suspicious" in extras), name


def test_training_takes_three_times_the_arithmetic_with_grouped_convolutions_too(
    several: Several,
) -> None:
    forward = several.reports["eager"]["metrics"]["flops_per_example"]
    both = several.reports["trained"]["metrics"]["flops_per_example"]
    # Less than three times by the gradient of the picture, which nobody needs. torch's own count
    # of the backward pass of grouped convolutions is many times too high.
    assert 2.5 < both / forward < 3


def test_a_batch_from_the_host_shows_the_parts_of_its_way(several: Several) -> None:
    report = several.reports["pageable"]
    parts = ("transfer_in_median_s", "device_step_median_s", "transfer_out_median_s")
    assert all(report["metrics"][name] > 0 for name in parts)
    assert report["metrics"]["end_to_end_median_s"] == report["metrics"]["latency_median_s"]
    assert report["extras"]["data_copied"] == "within host memory"
    assert not set(parts) & set(several.reports["eager"]["metrics"])


def test_extras_say_what_was_measured(several: Several) -> None:
    extras = several.reports["eager"]["extras"]
    assert (extras["model"], extras["model_library"]) == ("mobilenet_v2", "torchvision")
    assert (extras["input_shape"], extras["channels_last"]) == ("3x64x64", "true")
    assert extras["batch_size"] == extras["global_batch_size"] == 4
    assert (extras["device"], extras["seed"]) == ("cpu", 7)
    assert (extras["threads"], extras["inter_threads"]) == (1, 3)
    assert (extras["data"], extras["warmup"]) == ("synthetic/device", 1)
    assert {"torch_version", "torchvision_version", "torchvision_operators"} <= set(extras)
    assert extras["flops_counted_by"].endswith("attention, 2 per multiply-add, forward pass")


def test_published_counts_are_bounds_only_at_the_published_size(several: Several) -> None:
    assert several.reports["run_forward"]["bounds"]["parameters"] == (2_919_440, 2_919_440)
    assert several.reports["eager"]["bounds"]["parameters"] == (None, None)
    assert several.reports["eager"]["metrics"]["parameters"] == 3_504_872


@pytest.mark.slow
def test_a_compiled_model_is_the_same_model_and_its_compilation_is_told_apart(
    compiling_python: str, tmp_path: Path
) -> None:
    if shutil.which("g++") is None and os.environ.get("PERFRUN_REQUIRE_FRAMEWORKS") != "1":
        pytest.skip("torch.compile needs g++")
    methods = {
        "inference": method(f"{MODEL}.inference_compiled", **NET),
        "training": method(f"{MODEL}.training", **NET, compile="default"),
    }
    found = run_several(compiling_python, tmp_path, methods)
    assert not found.refusals
    for name, flops in (("inference", BY_HAND), ("training", TRAINED)):
        metrics, extras = found.reports[name]["metrics"], found.reports[name]["extras"]
        assert metrics["parameters"] == 2_919_440
        assert metrics["flops_per_example"] == flops
        assert extras["compile"] == "default"
        assert extras["compile_cache"] == "empty at the start"
        steady_s = metrics["latency_median_s"]
        assert metrics["compile_s"] == pytest.approx(metrics["first_call_s"] - steady_s)
        assert metrics["compile_s"] > 0.1  # a C++ compiler was run
