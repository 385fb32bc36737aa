"""What PELT says of a change when more nights are known."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from perfrun.analysis.hindsight import pelt_sees


def nights(after: int, shift: float, seed: int = 1) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(60 + after)
    values[60:] += shift
    return values


def test_a_step_that_stays_is_seen_and_noise_is_not() -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    assert pelt_sees(nights(20, 2.5), 60, 0.0)
    assert not any(pelt_sees(nights(60, 0.0, seed), 60, 0.0) for seed in range(100))


def test_a_step_elsewhere_is_another_one() -> None:
    pytest.importorskip("ruptures", reason="ruptures is for Python below 3.14")
    assert not pelt_sees(nights(30, 3.0), 40, 0.0)


def test_without_ruptures_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    assert pelt_sees(nights(20, 2.5), 60, 0.0) is None
