"""Screening, the evidence of pairs, and the error that a year allows: known answers."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest

from perfrun.analysis.screening import (
    FALSE_ALARMS_A_YEAR,
    MOST_ODDS,
    Pot,
    chance,
    common_factor,
    deviations,
    is_asked_again,
    is_asked_anew,
    is_proven,
    is_worth_a_pair,
    last_deviation,
    levels_before,
    log_belief,
    log_evidence,
    log_growth,
)


def noise(count: int, seed: int = 1, spread: float = 0.01) -> np.ndarray:
    return spread * np.random.default_rng(seed).standard_normal(count)


def test_a_step_in_the_last_observations_is_a_suspect_and_noise_is_not() -> None:
    logs = noise(70)
    assert last_deviation(logs) is None
    logs[-3:] += 0.06
    found = last_deviation(logs)
    assert found is not None
    assert found.is_suspect
    assert found.recent in (2, 3)
    assert found.since_good >= 3  # the side before is surely of the level before
    assert found.shift == pytest.approx(0.06, abs=0.02)
    assert found.noise == pytest.approx(0.01, rel=0.4)
    assert last_deviation(logs[:10]) is None  # too short
    mirrored = last_deviation(-logs)
    assert mirrored is not None
    assert mirrored.shift == -found.shift
    assert mirrored.p_value == found.p_value


def test_a_series_that_did_the_same_before_is_less_of_a_suspect() -> None:
    logs = noise(70)
    logs[-1] += 0.1
    usual = logs.copy()
    usual[10:60:12] += 0.1  # returns each time
    alone, often = last_deviation(logs), last_deviation(usual)
    assert alone is not None
    assert alone.odds <= MOST_ODDS
    assert often is None or often.p_value > 5 * alone.p_value


def test_a_night_that_slows_everything_has_a_common_factor() -> None:
    assert common_factor([0.05] * 9 + [0.5]) == 0.05
    assert common_factor([0.05] * 7) == 0.0  # too few to tell it from changes


@pytest.mark.parametrize(
    ("shift", "width", "memory"), [(0.05, 0.01, 0.0), (0.14, 0.002, 0.0), (0.03, 0.03, 0.8)]
)
def test_equal_sides_have_a_mean_evidence_of_one(shift: float, width: float, memory: float) -> None:
    # Whatever the sizes are, even all alike or in order, only the signs are drawn.
    generator = np.random.default_rng(5)
    sizes = np.abs(generator.standard_t(2, 9)) * width
    for at in range(1, 9):
        sizes[at] += memory * sizes[at - 1]
    signs = (np.arange(2**9)[:, None] >> np.arange(9)) & 1
    every = [math.exp(log_evidence(sizes * (2 * row - 1), shift, 0.01)) for row in signs]
    assert np.mean(every) == pytest.approx(1, rel=1e-9)


def test_pairs_that_all_go_one_way_double_the_evidence_each() -> None:
    ratios = [0.05] * 14
    assert log_evidence(ratios, 0.05, 0.003) == pytest.approx(14 * math.log(2), abs=0.5)
    assert log_evidence(ratios, -0.05, 0.003) < -25
    assert log_evidence([], 0.05, 0.003) == 0
    assert is_proven(ratios, 0.05, log_evidence(ratios, 0.05, 0.003), 1e-4)
    assert not is_proven(ratios[:13], 0.05, log_evidence(ratios[:13], 0.05, 0.003), 1e-4)
    small = [0.005] * 60  # surely there, and not relevant
    assert not is_proven(small, 0.02, log_evidence(small, 0.02, 0.001), 1e-4)


def test_what_a_pair_adds_is_at_most_a_doubling_and_grows_with_the_shift() -> None:
    assert log_growth(0.03, 0.03) < log_growth(0.05, 0.03) < log_growth(0.3, 0.003) <= math.log(2)


def test_nights_and_pairs_are_one_belief() -> None:
    typical = chance(0.01, 0.0)
    assert typical == pytest.approx(1 / 101)
    assert chance(0.01, math.log(100)) == pytest.approx(0.5)
    # The nights say less than a model of them does, either way.
    assert typical < chance(0.1, 0.0) < 0.1 / 1.1
    assert typical > chance(0.001, 0.0) > 0.001 / 1.001


def test_the_questions_of_a_year_spend_no_more_error_than_it_allows() -> None:
    pot, spent = Pot(), 0.0
    first = pot.allowed
    for day in range(365):
        pot = pot.after(1)
        for odds in [MOST_ODDS, 0.05] * (20 if day % 50 == 0 else 2):
            alpha, pot = pot.spent(odds)
            assert 0 < alpha < 0.01
            spent += alpha
    assert spent <= FALSE_ALARMS_A_YEAR + first
    assert Pot().after(-5) == Pot()
    assert Pot().after(1e6).allowed <= FALSE_ALARMS_A_YEAR / 12  # not all of a long break's


def test_a_small_step_that_stays_becomes_a_suspect_with_a_side_from_before_it() -> None:
    logs = noise(140, seed=4, spread=0.03)
    logs[-25:] += 0.03  # one standard deviation: no seven nights show it
    found = last_deviation(logs)
    assert found is not None
    assert found.is_suspect
    assert found.recent > 7
    assert found.since_good >= 25
    assert found.odds > 0.05
    without = last_deviation(noise(140, seed=4, spread=0.03))
    assert without is None or without.odds < 0.01


def test_series_of_one_length_are_screened_as_each_alone() -> None:
    rows = np.array([noise(60, seed) for seed in range(6)])
    rows[:, -3:] += np.linspace(0, 0.1, 6)[:, None]
    for one, alone in zip(deviations(rows), map(last_deviation, rows), strict=True):
        assert (one is None) == (alone is None)
        if one is not None and alone is not None:
            (*facts, by_count), (*facts_alone, by_count_alone) = astuple(one), astuple(alone)
            assert facts == pytest.approx(facts_alone)
            assert np.array(by_count) == pytest.approx(np.array(by_count_alone))
            assert one.odds_within(7) <= one.odds_within(28) <= one.odds
    assert deviations(rows[:, :10]) == [None] * 6


def test_the_level_before_a_night_is_the_median_of_sixty() -> None:
    logs = noise(80)
    levels = levels_before(logs)
    assert len(levels) == 70
    assert levels[0] == np.median(logs[:10])
    assert levels[-1] == np.median(logs[19:79])


def test_a_pair_without_the_shift_refutes_a_large_one_at_once() -> None:
    assert log_belief([], 0.1, 0.01) == 0
    assert log_belief([0.001, -0.002], 0.1, 0.01) < math.log(0.05)
    assert log_belief([0.1] * 4, 0.1, 0.01) > math.log(5)
    assert log_belief([-0.1] * 4, -0.1, 0.01) == log_belief([0.1] * 4, 0.1, 0.01)
    # Signs that go both ways count against it, whatever their sizes are.
    mixed = [-0.1, 0.05] * 5
    assert log_belief(mixed, 0.1, 0.01) <= log_evidence(mixed, 0.1, 0.01)


def test_a_question_that_is_given_up_leaves_the_error_that_it_no_longer_needs() -> None:
    alpha, left = Pot(allowed=0.002).spent(1.0)
    assert left.returned(alpha, 0.0).allowed == pytest.approx(0.002)
    assert left.returned(alpha, 3.0) == left.returned(alpha, 0.0)  # never more than it had
    half = left.returned(alpha, math.log(0.5))
    assert half.allowed == pytest.approx(left.allowed + alpha / 2)
    most = Pot().after(1e6)
    assert Pot().returned(0.1, 0.0) == most  # what a planted file says fills no pot
    assert most.returned(0.1, 0.0) == most


def test_alarms_and_what_is_given_back_are_together_no_more_than_the_share() -> None:
    # All signs that nine pairs of equal sides can have, each as likely as the others.
    sizes, alpha, alarms, back = np.full(9, 0.05), 0.02, 0, 0.0
    signs = (np.arange(2**9)[:, None] >> np.arange(9)) & 1
    for row in signs:
        pairs = (sizes * (2 * row - 1)).tolist()
        for count in range(1, 10):
            evidence = log_evidence(pairs[:count], 0.05, 0.01)
            if is_proven(pairs[:count], 0.05, evidence, alpha):
                alarms += 1
                break
            if evidence < math.log(0.4) or count == 9:
                back += Pot(allowed=0.0).returned(alpha, evidence).allowed
                break
    assert alarms > 0
    assert 0 < back < 2**9 * alpha
    assert alarms + back <= 2**9 * alpha


def test_a_new_and_an_old_step_wait_for_the_nights_and_a_refuted_one_for_more_of_them() -> None:
    assert is_worth_a_pair(0.01, age=3, growth=0.35)
    assert not is_worth_a_pair(0.01, age=0, growth=0.35)
    assert not is_worth_a_pair(0.01, age=20, growth=0.35)
    assert is_worth_a_pair(0.005, age=3, growth=0.35)
    assert not is_worth_a_pair(0.005, age=3, growth=0.1)  # it takes many pairs to decide
    assert is_worth_a_pair(0.2, age=0, growth=0.01)
    assert is_worth_a_pair(0.2, age=20, growth=0.01)
    assert is_asked_anew(-2.0, odds=0.3, odds_since=0.05)
    assert not is_asked_anew(-1.0, odds=0.3, odds_since=0.05)  # less than what is left of them
    assert not is_asked_anew(-9.0, odds=0.3, odds_since=0.005)
    assert not is_asked_anew(1.0, odds=0.3, odds_since=0.3)
    assert is_asked_again(-2.0, asked_odds=0.1, odds=0.5)
    assert not is_asked_again(-2.0, asked_odds=0.1, odds=0.2)
    assert not is_asked_again(0.5, asked_odds=0.1, odds=5.0)
