"""Two samples: published examples, scipy's own values, and levels by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from perfrun.analysis.stats import ConfidenceInterval
from perfrun.analysis.two_samples import cliffs_delta, mann_whitney, ratio_of_medians, wilcoxon
from simulations.noises import NOISES

# Hollander and Wolfe, Nonparametric Statistical Methods: permeability of membranes at two ages
# (table 4.1), and the depression factor of nine patients before and after treatment (table 3.1).
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]
BEFORE = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
AFTER = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
SPREAD = 0.02
SAMPLE = st.lists(st.floats(0.01, 100), min_size=5, max_size=20)


def holds(interval: ConfidenceInterval | None, reference: float) -> bool:
    return interval is not None and interval.low <= reference <= interval.high


def test_mann_whitney_gives_the_textbooks_figures() -> None:
    found = mann_whitney(AT_TERM, EARLY)
    assert found.statistic == 35
    assert found.p_value == pytest.approx(2 * 0.1272, abs=1e-4)


def test_wilcoxon_gives_the_textbooks_figures() -> None:
    found = wilcoxon(BEFORE, AFTER)
    assert found.statistic == 45 - 40  # the smaller of the two rank sums
    assert found.p_value == pytest.approx(2 * 0.01953, abs=1e-4)


def test_too_small_samples_have_no_interval() -> None:
    assert ratio_of_medians([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert cliffs_delta([1], [1, 2]) is None


def test_the_delta_of_cliff_counts_pairs() -> None:
    # 50 pairs, of which 35 have the first above the second (the U above) and none are tied.
    found = cliffs_delta(AT_TERM, EARLY)
    assert found is not None
    assert found.estimate == pytest.approx((35 - 15) / 50)
    with_ties = cliffs_delta([1, 2, 3], [2, 2])
    assert with_ties is not None
    assert with_ties.estimate == 0


def test_samples_apart_have_a_delta_of_one() -> None:
    found = cliffs_delta([5, 6, 7], [1, 2, 3])
    assert found is not None
    assert found.estimate == 1


@settings(deadline=None)
@given(SAMPLE, SAMPLE)
def test_changing_sides_changes_the_sign(one: list[float], other: list[float]) -> None:
    forth, back = cliffs_delta(one, other), cliffs_delta(other, one)
    assert forth is not None
    assert back is not None
    assert forth.estimate == pytest.approx(-back.estimate)
    assert forth.interval.low == pytest.approx(-back.interval.high)
    assert -1 <= forth.interval.low <= forth.interval.high <= 1


def test_pairs_without_a_difference_are_no_evidence() -> None:
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]).p_value == 1


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "log-normal", "5 % outliers"])
@pytest.mark.parametrize("size", [5, 10, 15])
def test_intervals_of_a_ratio_keep_their_level(noise: str, size: int) -> None:
    generator = np.random.default_rng(size)
    series = NOISES[noise](generator, (2000, 2, size), SPREAD)
    ratios = [ratio_of_medians(1.1 * a, b, resamples=399) for a, b in series]
    assert 0.93 <= np.mean([holds(r.interval, 1.1) for r in ratios if r]) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 30])
def test_the_interval_of_cliffs_delta_keeps_its_level(size: int) -> None:
    # Gaussian samples one standard deviation apart: delta = 2 Phi(1 / sqrt 2) - 1.
    reference = 2 * scipy_stats.norm.cdf(1 / np.sqrt(2)) - 1
    series = np.random.default_rng(6).normal(0, 1, (2000, 2, size))
    found = [cliffs_delta(a + 1, b) for a, b in series]
    assert 0.93 <= np.mean([holds(f.interval, float(reference)) for f in found if f]) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("noise", list(NOISES))
def test_tests_of_equal_samples_are_rarely_significant(noise: str) -> None:
    series = NOISES[noise](np.random.default_rng(7), (1000, 2, 12), SPREAD)
    unpaired = [mann_whitney(a, b).p_value < 0.05 for a, b in series]
    paired = [wilcoxon(np.log(a), np.log(b)).p_value < 0.05 for a, b in series]
    assert np.mean(unpaired) <= 0.065
    assert np.mean(paired) <= 0.065
