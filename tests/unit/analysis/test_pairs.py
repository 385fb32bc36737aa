"""The sequential test of pairs: its interval is Wilcoxon's, and all analyses keep the level."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfrun.analysis.directions import Direction
from perfrun.analysis.pairs import (
    FALSE_ALARMS,
    PairRule,
    interim_analyses,
    judge,
    level,
    rank_depth,
    walsh_averages,
)
from simulations.ab import NOISE, block_alarms, paired
from simulations.noises import NOISES

# Hollander and Wolfe, Nonparametric Statistical Methods, table 3.1: before minus after.
DEPRESSION = [0.952, -0.147, 1.022, 0.430, 0.620, 0.590, 0.490, -0.080, 0.010]


def test_the_textbooks_estimate_and_interval() -> None:
    walsh = walsh_averages(np.asarray(DEPRESSION))
    assert float(np.median(walsh)) == pytest.approx(0.46)
    depth = rank_depth(9, 0.04)  # exactly 96.1 % in the book
    assert walsh[depth - 1] == pytest.approx(0.010, abs=1e-3)
    assert walsh[-depth] == pytest.approx(0.786, abs=1e-3)


@pytest.mark.parametrize("pairs", [6, 8, 13, 22, 30])
def test_the_interval_holds_one_exactly_when_scipys_exact_test_sees_nothing(pairs: int) -> None:
    generator = np.random.default_rng(pairs)
    rule = PairRule(max_pairs=pairs, min_effect=0.0)
    for _ in range(60):
        logs = generator.standard_normal(pairs) + 0.6
        found = judge(logs, "lower", rule)
        assert found.interval is not None
        outside = not found.interval.low <= 1 <= found.interval.high
        assert outside == (stats.wilcoxon(logs).pvalue <= level(pairs))


@pytest.mark.parametrize(
    ("direction", "sign", "verdict"),
    [
        ("lower", 1, "slower"),
        ("lower", -1, "faster"),
        ("higher", 1, "faster"),
        ("higher", -1, "slower"),
        ("none", 1, "undecided"),
    ],
)
def test_the_direction_decides_what_more_means(
    direction: Direction, sign: int, verdict: str
) -> None:
    logs = [sign * (0.1 + at / 1000) for at in range(8)]
    assert judge(logs, direction, PairRule()).verdict == verdict


def test_what_is_surely_smaller_than_matters_is_equivalent_even_if_it_is_real() -> None:
    logs = [0.001 + at / 1e5 for at in range(8)]
    assert judge(logs, "lower", PairRule(min_effect=0.02)).verdict == "equivalent"
    assert judge(logs, "lower", PairRule(min_effect=0.0)).verdict == "slower"


def test_too_few_pairs_decide_nothing() -> None:
    for count in range(8):
        found = judge([1.0 + at for at in range(count)], "lower", PairRule(max_pairs=30))
        assert found.verdict == "undecided"
    assert judge([], "lower", PairRule()).ratio is None
    six = judge([0.1, 0.11, 0.12, 0.13, 0.14, 0.15], "lower", PairRule(max_pairs=6))
    assert six.verdict == "slower"


def test_pairs_without_a_difference_are_no_evidence() -> None:
    found = judge([0.0] * 10, "lower", PairRule())
    assert found.verdict == "equivalent"
    assert found.p_value == 1.0
    assert found.ratio == 1.0


@pytest.mark.parametrize("most", range(6, 201))
def test_interim_analyses_grow_end_at_the_last_pair_and_the_first_can_decide(most: int) -> None:
    found = interim_analyses(most)
    assert found[-1] == most
    assert list(found) == sorted(set(found))
    assert 0 < level(most) <= FALSE_ALARMS
    if most < 100:
        assert rank_depth(found[0], level(most)) >= 1


@pytest.mark.parametrize("noise", NOISES)
def test_drift_as_large_as_the_noise_makes_at_most_five_false_alarms_in_a_hundred(
    noise: str,
) -> None:
    runs = 3000
    found = paired(np.random.default_rng(1), runs, noise=noise, drift_spread=NOISE)
    luck = 2.6 * math.sqrt(FALSE_ALARMS * (1 - FALSE_ALARMS) / runs)  # 1 in 200
    assert found.different <= FALSE_ALARMS + luck


def test_the_usual_way_is_wrong_many_times_as_often() -> None:
    generator = np.random.default_rng(2)
    student, ranks = block_alarms(generator, 1000, NOISE)
    assert min(student, ranks) > 0.2


def test_a_difference_of_twice_the_noise_is_found_in_few_pairs() -> None:
    found = paired(
        np.random.default_rng(3), 1000, drift_spread=NOISE, effect=2 * NOISE, min_effect=0.02
    )
    assert found.slower > 0.95
    assert found.faster == 0
    assert found.mean_pairs < 15
