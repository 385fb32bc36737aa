"""A drift is told from steps, whatever a search for steps has made of it."""

from __future__ import annotations

import numpy as np
import pytest

from perfrun.analysis.drift import drifts_of


def noise(seed: int, number: int, memory: float = 0.0) -> np.ndarray:
    draw = np.random.default_rng(seed).normal(0.0, 0.01, number)
    for at in range(1, number):
        draw[at] = memory * draw[at - 1] + np.sqrt(1 - memory**2) * draw[at]
    return draw


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_steps_are_no_drift(memory: float) -> None:
    wrong = 0
    for seed in range(60):
        values = noise(seed, 60, memory)
        values[25:] += 0.05
        values[45:] += 0.05
        found = drifts_of(values, range(60), [(25 + seed % 3 - 1, 1), (45, 1)])
        wrong += any(one is not None for one in found)
    assert wrong <= 1


def test_a_drift_is_found_though_it_was_cut_into_steps() -> None:
    for seed in range(20):
        values = noise(seed, 90)
        values[20:60] += 0.003 * np.arange(1, 41)
        values[60:] += 0.12
        values[40] += 0.5  # an outlier
        values[75:] += 0.2  # and a step after it
        first, second, step = drifts_of(values, range(90), [(32, 1), (48, 1), (75, 1)])
        assert first is not None
        assert first == second
        assert step is None
        assert abs(first.first - 19) <= 6
        assert abs(first.last - 59) <= 6
        assert abs(first.change - 0.12) < 0.02


def test_a_drift_downwards_and_a_short_series() -> None:
    values = noise(3, 50)
    values[10:] -= 0.004 * np.arange(1, 41)
    (down,) = drifts_of(values, range(50), [(30, -1)])
    assert down is not None
    assert down.change < -0.1
    assert drifts_of(values, range(50), [(30, 1)]) == [None]  # it did not go up
    assert drifts_of([0.0] * 5 + [1.0] * 2, range(7), [(5, 1)]) == [None]
    assert drifts_of([0.0] * 20 + [1.0] * 20, range(40), [(20, 1)]) == [None]
