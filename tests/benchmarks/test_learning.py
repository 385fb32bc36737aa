"""Iris and digits, learned in every framework: one process each, because imports cost most."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from image_sets import run_code

from benchmarks._support.datasets.learning import IRIS, Scores, learned

RUN = """
import importlib, json, sys
found = []
for name, class_name, method, keywords in json.loads(sys.argv[1]):
    benchmark = getattr(importlib.import_module(name), class_name)(
        output_dir=sys.argv[2], **keywords
    )
    benchmark.report_benchmark = lambda **report: found.append(report)
    getattr(benchmark, method)()
print(json.dumps(found))
"""
TRAIN, TWICE, SAVE = "training", "training_softmax_twice", "save_load_predict"


def reports_of(
    python: str, framework: str, folder: Path, *runs: tuple[str, str, dict[str, int]]
) -> list[dict[str, Any]]:
    """Run methods of classes such as `Iris` one after the other; return their reports."""
    named = [(f"benchmarks.{framework}.{each[0].lower()}", *each) for each in runs]
    reports: list[dict[str, Any]] = json.loads(
        run_code(python, RUN, json.dumps(named), str(folder))
    )
    for report in reports:
        report["metrics"] = {metric["name"]: metric for metric in report["metrics"]}
    return reports


def assert_learned(
    report: dict[str, Any], *, epochs: int, split: tuple[int, int], classes: int, lowest: float
) -> None:
    metrics, extras = report["metrics"], report["extras"]
    assert extras["epochs"] == epochs
    assert report["iters"] == epochs - 4  # without the first one and three of warm-up
    assert (extras["train_examples"], extras["test_examples"]) == split
    assert extras["device"] == "cpu"
    accuracy, train_loss = metrics["test_accuracy"], metrics["train_loss"]
    assert (accuracy["min_value"], accuracy["max_value"]) == (lowest, 1)
    assert lowest + 0.02 < accuracy["value"] <= 1
    # A network that cannot tell two classes apart has at least this loss: ln 2 for each of the two.
    assert train_loss["max_value"] == pytest.approx(2 / classes * math.log(2))
    # Half of what guessing costs; with softmax twice, as in the article, Iris stays above it.
    assert 0 < train_loss["value"] < math.log(classes) / 2
    assert 0 < train_loss["value"] < train_loss["max_value"]
    assert metrics["train_accuracy"]["value"] > metrics["train_accuracy"]["min_value"] + 0.01
    assert metrics["epochs_per_second"]["value"] * report["wall_time"] == pytest.approx(1)


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
        pytest.param("jax", marks=pytest.mark.jax),
        pytest.param("sklearn", marks=pytest.mark.torch),  # torch's environment has scikit-learn
    ],
)
def test_a_network_learns_the_same_with_the_same_seed(
    framework: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = "torch_python" if framework == "sklearn" else f"{framework}_python"
    twice = [("Iris", TWICE, {})] if framework != "sklearn" else []
    iris, again, other, short, digits, saved, *published = reports_of(
        request.getfixturevalue(name),
        framework,
        tmp_path,
        ("Iris", TRAIN, {"threads": 1}),
        ("Iris", TRAIN, {"seed": 0}),
        ("Iris", TRAIN, {"seed": 1}),
        ("Iris", TRAIN, {"iterations": 2, "warmup": 0}),
        ("Digits", TRAIN, {}),
        ("Iris", SAVE, {}),
        *twice,
    )
    assert_learned(iris, epochs=100, split=(120, 30), classes=3, lowest=0.8)
    assert_learned(digits, epochs=30, split=(1437, 360), classes=10, lowest=0.95)
    for metric in ("test_accuracy", "train_loss", "test_loss"):
        assert iris["metrics"][metric] == again["metrics"][metric]
    assert iris["metrics"]["train_loss"]["value"] != other["metrics"]["train_loss"]["value"]
    # With another seed's split 30 flowers say too little; those of the training set decide.
    assert "min_value" not in other["metrics"]["test_accuracy"]
    assert other["metrics"]["train_accuracy"]["min_value"] == 0.85
    # Three epochs are another training than the one that the bounds are for.
    assert short["metrics"]["train_loss"]["value"] > iris["metrics"]["train_loss"]["value"]
    assert "min_value" not in short["metrics"]["test_accuracy"]
    assert "max_value" not in short["metrics"]["train_loss"]
    assert iris["extras"]["threads"] == 1
    for report in published:
        assert report["extras"]["softmax"] == "twice, as published"
        assert report["metrics"]["train_loss"]["value"] > math.log(3) / 2
        assert "max_value" not in report["metrics"]["train_loss"]
    # What was loaded predicts the same to the last bit, or the method fails.
    metrics, (file,) = saved["metrics"], tmp_path.rglob("iris.*")
    assert saved["extras"]["model_file"] == str(file)
    assert metrics["file_bytes"]["value"] == file.stat().st_size > 4 * 2953  # its parameters
    assert metrics["test_accuracy"]["value"] == iris["metrics"]["test_accuracy"]["value"]
    assert 0 < metrics["save_median_s"]["value"] > saved["wall_time"] / 1000
    assert metrics["load_median_s"]["value"] > 0
    assert saved["throughput"] * saved["wall_time"] == pytest.approx(30)  # flowers


CONFUSED = Scores(accuracy=0.8, train_accuracy=0.75, train_loss=2 / 3 * math.log(2), test_loss=1.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_network_that_confuses_two_species_is_out_of_its_bounds(seed: int) -> None:
    # By luck it has 24 of the 30 flowers; what it should have learned, it has not.
    metrics = {each["name"]: each for each in learned(IRIS, CONFUSED, seed=seed, has_bounds=True)}
    assert metrics["train_accuracy"]["value"] < metrics["train_accuracy"]["min_value"]
    assert metrics["train_loss"]["value"] >= metrics["train_loss"]["max_value"]
    unlucky = replace(CONFUSED, accuracy=20 / 30)
    found = {each["name"]: each for each in learned(IRIS, unlucky, seed=0, has_bounds=True)}
    assert found["test_accuracy"]["value"] < found["test_accuracy"]["min_value"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("framework", "knobs", "said"),
    [
        ("torch", {"device": "cuda:7"}, "device is 'cuda:7'; PyTorch"),
        ("sklearn", {"device": "cpu"}, "Iris does not take device"),
        ("sklearn", {"inter_threads": 2}, "Iris does not take inter_threads"),
    ],
)
def test_a_knob_without_an_effect_is_refused(
    framework: str, knobs: dict[str, object], said: str, torch_python: str
) -> None:
    code = (
        "import importlib, json, sys\n"
        "from perfrun import SetupError\n"
        "try:\n"
        "    iris = importlib.import_module(f'benchmarks.{sys.argv[1]}.iris').Iris\n"
        "    iris(**json.loads(sys.argv[2])).training()\n"
        "except SetupError as error:\n"
        "    print(error)\n"
    )
    assert run_code(torch_python, code, framework, json.dumps(knobs)).startswith(said)
