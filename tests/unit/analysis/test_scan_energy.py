"""The energy statistic on ranks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perfrun.analysis.scan import energy_p_values, whitened


def observations(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def energy_p_value(values: np.ndarray, split: int, memory: float) -> float:
    """Return the p-value of one row."""
    return float(energy_p_values(values[None, :], split, np.array([memory]))[0])


@pytest.mark.parametrize("after", [2, 5, 21])
def test_without_a_change_small_p_values_are_as_rare_as_they_say(after: int) -> None:
    rows = np.array([observations(60 + after, seed) for seed in range(2000)])
    found = energy_p_values(rows, 60, np.zeros(2000))
    for level in (0.05, 0.01):
        assert np.mean(found <= level) <= 1.5 * level


def test_it_is_the_criterion_of_cramer_and_von_mises() -> None:
    for seed in range(20):
        values = observations(70, seed)
        values[60:] += 0.5
        theirs = stats.cramervonmises_2samp(values[:60], values[60:], method="asymptotic").pvalue
        assert energy_p_value(values, 60, 0.0) == pytest.approx(theirs, rel=0.3, abs=0.01)


def test_the_size_of_an_outlier_does_not_matter() -> None:
    values = observations(66, 1)
    values[62] += 10
    far = values.copy()
    far[62] += 1000
    assert energy_p_value(values, 60, 0.0) == energy_p_value(far, 60, 0.0) > 0.05


def test_the_p_value_of_two_observations_is_bounded_by_their_number() -> None:
    values = observations(62, 1)
    values[60:] += 100
    assert energy_p_value(values, 60, 0.0) >= 1 / 1891


def test_whitening_leaves_nothing_of_a_memory() -> None:
    news = observations(4000, 3)
    values = news.copy()
    for at in range(1, len(values)):
        values[at] = 0.6 * values[at - 1] + 0.8 * news[at]
    white = whitened(values, 0.6)
    assert abs(np.corrcoef(white[1:], white[:-1])[0, 1]) < 0.05
    assert np.std(white) == pytest.approx(np.std(values), rel=0.05)
