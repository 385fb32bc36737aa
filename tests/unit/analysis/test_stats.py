"""Statistics of one sample: published values, scipy's own, and coverage by simulation."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from perfrun.analysis.stats import (
    benjamini_hochberg,
    exact_median_interval,
    mad,
    median,
    median_interval,
    minimum_detectable_effect,
    relative_noise,
    robust_sd,
)
from simulations.noises import NOISES, true_median

SERIES = 2000
SPREAD = 0.02
TIMES = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=40)


def coverage(noise: str, size: int) -> float:
    """Return the share of intervals of the median that hold the median."""
    reference = true_median(noise, SPREAD)
    series = NOISES[noise](np.random.default_rng(size), (SERIES, size), SPREAD)
    intervals = [median_interval(values) for values in series]
    return sum(i is not None and i.low <= reference <= i.high for i in intervals) / SERIES


@pytest.mark.parametrize("noise", ["gaussian", "log-normal", "5 % outliers"])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 30])
def test_a_95_percent_interval_of_the_median_covers_it_93_to_97_times_in_100(
    noise: str, size: int
) -> None:
    assert 0.93 <= coverage(noise, size) <= 0.97


@pytest.mark.parametrize("size", [5, 8, 20])
@pytest.mark.parametrize("noise", ["skewed", "two modes"])
def test_it_needs_no_particular_kind_of_noise(noise: str, size: int) -> None:
    assert 0.93 <= coverage(noise, size) <= 0.97


@pytest.mark.parametrize(
    ("size", "depth"),  # David and Nagaraja's rule, as scipy's exact quantile test has it
    [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10)],
)
def test_the_exact_interval_is_the_published_pair_of_order_statistics(
    size: int, depth: int
) -> None:
    values = list(range(1, size + 1))
    found = exact_median_interval(values)
    assert found is not None
    assert (found.low, found.high) == (depth, size + 1 - depth)
    scipys = scipy_stats.quantile_test(values, q=0, p=0.5).confidence_interval()
    assert (found.low, found.high) == (scipys.low, scipys.high)


def test_five_values_have_no_exact_95_percent_interval() -> None:
    assert exact_median_interval([1, 2, 3, 4, 5]) is None
    assert exact_median_interval([1, 2, 3, 4, 5, 6]) is not None


@settings(deadline=None)
@given(TIMES)
def test_an_interval_holds_its_median_and_lies_within_the_exact_one(values: list[float]) -> None:
    found = median_interval(values)
    assert found is not None
    if len(values) >= 5:
        slack = 1e-9 * max(values)
        assert found.low - slack <= median(values) <= found.high + slack
    outer = exact_median_interval(values)
    if outer is not None:
        assert outer.low <= found.low <= found.high <= outer.high


@settings(deadline=None)
@given(TIMES, st.floats(1e-3, 1e3))
def test_another_unit_changes_an_interval_and_nothing_else(
    values: list[float], unit: float
) -> None:
    one, other = median_interval(values), median_interval([value * unit for value in values])
    assert one is not None
    assert other is not None
    if math.isfinite(one.high) and one.high < 1e12:
        assert other.low == pytest.approx(one.low * unit, rel=1e-6)
        assert other.high == pytest.approx(one.high * unit, rel=1e-6)


def test_more_confidence_is_a_wider_interval() -> None:
    values = NOISES["gaussian"](np.random.default_rng(1), (20,), SPREAD)
    widths = [median_interval(values, c) for c in (0.8, 0.9, 0.95, 0.99, 0.999)]
    assert [w.half_width for w in widths if w] == sorted(w.half_width for w in widths if w)


def test_one_value_has_no_interval_and_no_noise() -> None:
    assert median_interval([3.0]) is None
    assert robust_sd([3.0]) is None
    assert relative_noise([3.0]) is None
    assert minimum_detectable_effect(0.01, 1) is None


def test_values_of_any_sign_have_an_interval() -> None:
    found = median_interval([-1.0, 0.0, 1.0])
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(-2.484, abs=1e-3), pytest.approx(2.484, 1e-3))


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf]])
def test_nothing_and_what_is_not_finite_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        median(bad)


def test_the_mad_is_scipys() -> None:
    values = np.random.default_rng(2).normal(10, 3, 51)
    assert mad(values) == pytest.approx(float(scipy_stats.median_abs_deviation(values)))


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 30])
def test_the_robust_standard_deviation_is_right_on_average(size: int) -> None:
    series = np.random.default_rng(3).normal(100, 5, (6000, size))
    found = np.array([robust_sd(values) for values in series])
    # Below five values it is the plain one, whose square is right on average.
    mean = np.sqrt(np.mean(found**2)) if size < 5 else np.mean(found)
    assert mean == pytest.approx(5, rel=0.03)


def test_outliers_do_not_move_the_noise_much() -> None:
    quiet = NOISES["gaussian"](np.random.default_rng(4), (30,), SPREAD)
    disturbed = np.concatenate([quiet[:28], [2.0, 3.0]])
    before, after = relative_noise(quiet), relative_noise(disturbed)
    assert before is not None
    assert after is not None
    assert after < 1.3 * before


def test_noise_of_mostly_equal_values_is_not_nothing() -> None:
    assert mad([1.0, 1.0, 1.0, 1.0, 2.0]) == 0
    assert robust_sd([1.0, 1.0, 1.0, 1.0, 2.0]) == pytest.approx(0.2 * math.sqrt(math.pi / 2))
    assert robust_sd([1.0, 1.0]) == 0
    assert relative_noise([0.0, 0.0]) is None


@pytest.mark.parametrize(
    ("trials", "standard_effect"),  # Cohen 1988, tables 2.3: power 0.80 at alpha 0.05, two-sided
    [(17, 1.0), (26, 0.8), (64, 0.5), (100, 0.4), (393, 0.2)],
)
def test_the_detectable_effect_is_cohens(trials: int, standard_effect: float) -> None:
    found = minimum_detectable_effect(1.0, trials)
    assert found is not None
    assert math.log1p(found) * math.sqrt(3 / math.pi) == pytest.approx(standard_effect, rel=0.02)


@pytest.mark.parametrize("trials", [6, 10, 30])
def test_an_effect_of_that_size_is_found_four_times_in_five(trials: int) -> None:
    effect = minimum_detectable_effect(0.02, trials)
    assert effect is not None
    noise = np.random.default_rng(trials)
    base = 0.02 * noise.standard_normal((4000, trials))
    slower = math.log1p(effect) + 0.02 * noise.standard_normal((4000, trials))
    p_values = scipy_stats.mannwhitneyu(base, slower, axis=1).pvalue
    assert np.mean(p_values < 0.05) == pytest.approx(0.8, abs=0.04)


def test_more_trials_and_less_noise_show_smaller_effects() -> None:
    by_trials = [minimum_detectable_effect(0.02, n) or 0 for n in range(2, 60)]
    assert by_trials == sorted(by_trials, reverse=True)
    assert minimum_detectable_effect(0.0, 5) == 0


def test_false_discoveries_are_those_of_the_first_paper() -> None:
    # Benjamini and Hochberg 1995, section 4.1: four of fifteen hypotheses are rejected at 5 %.
    published = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    published += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    adjusted = benjamini_hochberg(published)
    assert sum(p <= 0.05 for p in adjusted) == 4
    assert adjusted[3] == pytest.approx(0.0095 * 15 / 4)
    assert benjamini_hochberg([]) == ()


def test_adjusted_p_values_are_those_of_scipy() -> None:
    p_values = np.random.default_rng(3).random(200) ** 3
    for few in (p_values, p_values[:1], np.repeat(p_values[:20], 3)):
        theirs = scipy_stats.false_discovery_control(few, method="bh")
        assert benjamini_hochberg(few.tolist()) == pytest.approx(theirs.tolist(), rel=1e-12)


def test_importing_statistics_does_not_import_scipy_stats() -> None:
    program = "import sys, perfrun.analysis.stats as s; s.median_interval([1,2,3,4,5,6]); "
    program += "s.minimum_detectable_effect(0.1, 5); print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
