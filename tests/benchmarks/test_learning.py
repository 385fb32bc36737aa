"""Iris and digits, learned in every framework: one process each, because imports cost most."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from image_sets import run_code

RUN = """
import importlib, json, sys
found = []
for name, class_name, keywords in json.loads(sys.argv[1]):
    benchmark = getattr(importlib.import_module(name), class_name)(**keywords)
    benchmark.report_benchmark = lambda **report: found.append(report)
    benchmark.training()
print(json.dumps(found))
"""


def trained(python: str, framework: str, *runs: tuple[str, dict[str, int]]) -> list[dict[str, Any]]:
    """Run `training` of classes such as `Iris` one after the other; return their reports."""
    named = [(f"benchmarks.{framework}.{name.lower()}", name, keys) for name, keys in runs]
    reports: list[dict[str, Any]] = json.loads(run_code(python, RUN, json.dumps(named)))
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
    accuracy, train_loss = metrics["test_accuracy"], metrics["train_loss"]
    assert (accuracy["min_value"], accuracy["max_value"]) == (lowest, 1)
    assert lowest + 0.05 < accuracy["value"] <= 1
    assert train_loss["max_value"] == pytest.approx(math.log(classes))
    # Half of what guessing costs; with softmax twice, as in the article, Iris stays above it.
    assert 0 < train_loss["value"] < math.log(classes) / 2
    assert metrics["epochs_per_second"]["value"] * report["wall_time"] == pytest.approx(1)


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
        pytest.param("sklearn", marks=pytest.mark.torch),  # torch's environment has scikit-learn
    ],
)
def test_a_network_learns_the_same_with_the_same_seed(
    framework: str, request: pytest.FixtureRequest
) -> None:
    name = "tensorflow_python" if framework == "tensorflow" else "torch_python"
    iris, again, other, short, digits = trained(
        request.getfixturevalue(name),
        framework,
        ("Iris", {}),
        ("Iris", {"seed": 0}),
        ("Iris", {"seed": 1}),
        ("Iris", {"iterations": 2, "warmup": 0}),
        ("Digits", {}),
    )
    assert_learned(iris, epochs=100, split=(120, 30), classes=3, lowest=0.7)
    assert_learned(digits, epochs=30, split=(1437, 360), classes=10, lowest=0.9)
    for metric in ("test_accuracy", "train_loss", "test_loss"):
        assert iris["metrics"][metric] == again["metrics"][metric]
    assert iris["metrics"]["train_loss"]["value"] != other["metrics"]["train_loss"]["value"]
    # Three epochs are another training than the one that the bounds are for.
    assert short["metrics"]["train_loss"]["value"] > iris["metrics"]["train_loss"]["value"]
    assert "min_value" not in short["metrics"]["test_accuracy"]
    assert "max_value" not in short["metrics"]["train_loss"]
