"""PELT judges a change when more observations are known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from perfrun.analysis import changepoint
from perfrun.analysis.changepoint import pelt_finds


def observations(after: int, shift: float, seed: int = 1) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(60 + after)
    values[60:] += shift
    return values


def test_a_step_that_stays_is_seen_and_noise_is_not() -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    assert pelt_finds(observations(20, 2.5), 60, 0.0)
    assert not any(pelt_finds(observations(60, 0.0, seed), 60, 0.0) for seed in range(100))


def test_a_step_elsewhere_is_another_one() -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    assert not pelt_finds(observations(30, 3.0), 40, 0.0)


def test_the_compiled_part_of_ruptures_finds_what_all_of_it_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    generator = np.random.default_rng(5)
    series = []
    for count in range(4, 124, 2):
        values = generator.standard_normal((count, 1))
        for begin in generator.integers(count, size=generator.integers(4)):
            values[begin:] += generator.choice([-6.0, -2.0, 2.0, 6.0])
        series.append(values)

    found = [sorted(changepoint._pelt_splits(values, 8.0) or []) for values in series]
    whole = [changepoint._splits_by_all_of_ruptures(values, 8.0) for values in series]
    assert found == whole
    assert {len(places) for places in found} >= {0, 1, 2, 3}
    monkeypatch.setattr(changepoint, "_compiled", lambda *_: None)
    assert [changepoint._pelt_splits(values, 8.0) for values in series] == whole


def refuse(*_: object) -> None:
    raise TypeError("takes 4 positional arguments but 3 were given")


def does_not_load(*_: object) -> None:
    raise ImportError("undefined symbol: _PyGen_SetStopIterationValue")


@pytest.mark.parametrize(
    "compiled",
    [
        lambda *_: SimpleNamespace(ekcpd_pelt_L2=refuse),
        lambda *_: SimpleNamespace(ekcpd_pelt_L2=lambda *_: [7] * 81),  # it would go on for ever
        lambda *_: SimpleNamespace(ekcpd_pelt_L2=lambda *_: []),
        lambda *_: SimpleNamespace(),
        does_not_load,
    ],
    ids=["other arguments", "other answer", "too short", "not there", "does not load"],
)
def test_a_compiled_part_that_has_changed_costs_no_alarm(
    monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., object]
) -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    monkeypatch.setattr(changepoint, "_compiled", compiled)
    assert pelt_finds(observations(20, 2.5), 60, 0.0)


def test_a_ruptures_that_cannot_be_imported_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    monkeypatch.setattr(changepoint, "_compiled", does_not_load)
    broken = ModuleType("ruptures")
    broken.__spec__ = ModuleSpec("ruptures", None)
    monkeypatch.setitem(sys.modules, "ruptures", broken)  # it has no KernelCPD
    assert pelt_finds(observations(20, 2.5), 60, 0.0) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_observations_that_are_too_few_for_two_levels_are_one(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    asked: list[object] = []
    monkeypatch.setattr(changepoint, "_compiled", lambda *_: asked.append(1))
    assert changepoint._pelt_splits(np.arange(float(count)).reshape(-1, 1), 0.1) == []
    assert not asked


def test_all_of_ruptures_is_not_imported() -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    program = (
        "import sys, numpy; from perfrun.analysis.changepoint import pelt_finds; "
        "observations = numpy.repeat([0.0, 5.0], 20); observations[::2] += 0.5; "
        "print(pelt_finds(observations, 20, 0.0), 'scipy.stats' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "True False\n"


def test_without_ruptures_the_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    assert pelt_finds(observations(20, 2.5), 60, 0.0) is None
