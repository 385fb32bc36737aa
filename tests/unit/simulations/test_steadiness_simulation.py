"""The classifier's figures of docs/research/measurement.md, in small: fixed seeds, so no chance."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[3] / "simulations" / "steadiness.py"


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("steadiness_simulation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def percent_called(
    simulation: ModuleType, shape: int, kind: str, noise: str, size: float, spread: float
) -> float:
    cell = simulation.Cell(
        shape=simulation.SHAPES[shape], size=size, noise=noise, length=100, spread=spread
    )
    return float(simulation.share(simulation.found_kinds(cell, seed=7, repeats=100), kind))


@pytest.mark.parametrize("spread", [0.01, 0.03])
@pytest.mark.parametrize("noise", ["Gaussian", "log-normal", "5 % outliers", "AR(1) 0.5"])
def test_flat_series_are_called_flat(simulation: ModuleType, noise: str, spread: float) -> None:
    assert percent_called(simulation, 0, "flat", noise, 0.1, spread) >= 94


@pytest.mark.parametrize("noise", ["Gaussian", "log-normal", "5 % outliers"])
@pytest.mark.parametrize("shape", [1, 2])
def test_warmups_of_five_percent_are_found(simulation: ModuleType, noise: str, shape: int) -> None:
    assert simulation.SHAPES[shape].kind == "warmup"
    assert percent_called(simulation, shape, "warmup", noise, 0.05, 0.01) >= 90


@pytest.mark.parametrize("shape", range(3, 10))
def test_the_other_kinds_are_told_apart(simulation: ModuleType, shape: int) -> None:
    kind = simulation.SHAPES[shape].kind
    assert percent_called(simulation, shape, kind, "Gaussian", 0.1, 0.01) >= 90


def test_the_same_seed_makes_the_same_series(simulation: ModuleType) -> None:
    cell = simulation.Cell(
        shape=simulation.SHAPES[1], size=0.05, noise="AR(1) 0.5", length=30, spread=0.03
    )
    found = [simulation.found_kinds(cell, seed, 30) for seed in (1, 1)]
    assert found[0] == found[1]
