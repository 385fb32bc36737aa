"""The interval in which one more trial is expected."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perfrun.replay.prediction import prediction_interval


def test_one_more_trial_lies_in_it_as_often_as_stated() -> None:
    generator = np.random.default_rng(16)
    draws = np.exp(generator.normal(0.0, 0.1, (4000, 6)))
    inside = 0
    for *today, further in draws.tolist():
        found = prediction_interval(today)
        inside += found.low <= further <= found.high
    assert 0.94 <= inside / len(draws) <= 0.96


def test_it_is_students_t_with_the_noise_of_one_more_trial() -> None:
    values = [-1.0, 0.0, 1.0]  # not all positive: no logarithms
    reach = stats.t.ppf(0.975, 2) * (1 + 1 / 3) ** 0.5
    found = prediction_interval(values)
    assert (found.low, found.high) == pytest.approx((-reach, reach))
    same = prediction_interval([0.1, 0.1, 0.1])
    assert (same.low, same.high) == (0.1, 0.1)
    with pytest.raises(ValueError, match="one value has no prediction interval"):
        prediction_interval([1.0])
