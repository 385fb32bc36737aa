"""Memory, parameters and FLOPs of shipped models are those of a loop written by hand.

`python -m overhead.beside_loops` does the same for every shipped model, with latencies in pairs;
docs/figures.md has its table. Latencies are not asserted: this machine may be busy.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from overhead.beside_loops import Case, Pair, counted, measure

MEMORY = 0.02


def measured(framework: str, model: str, phase: str, python: str, folder: Path) -> Pair:
    case = Case(framework=framework, model=model, phase=phase)
    pair = measure(case, python, folder / "work space", cpu=None)
    assert pair.perfrun.parameters == pair.loop.parameters
    return pair


def memory_ratio(pair: Pair) -> float:
    return pair.perfrun.peak_rss_bytes / pair.loop.peak_rss_bytes


@pytest.mark.torch
@pytest.mark.parametrize(
    ("model", "phase"), [("sensor_net", "inference"), ("resnet18", "training")]
)
def test_a_model_in_pytorch_has_the_memory_and_the_count_of_a_loop_by_hand(
    model: str, phase: str, tmp_path: Path, torch_python: str
) -> None:
    pair = measured("torch", model, phase, torch_python, tmp_path)
    assert memory_ratio(pair) == pytest.approx(1, abs=MEMORY)
    assert pair.perfrun.flops_per_example == counted(model, phase, torch_python)


@pytest.mark.tensorflow
@pytest.mark.torch
def test_a_model_in_tensorflow_has_the_memory_of_a_loop_and_the_count_of_pytorch(
    tmp_path: Path, torch_python: str, tensorflow_python: str
) -> None:
    pair = measured("tensorflow", "resnet18", "training", tensorflow_python, tmp_path)
    assert memory_ratio(pair) == pytest.approx(1, abs=MEMORY)
    assert pair.perfrun.flops_per_example == counted("resnet18", "training", torch_python)
