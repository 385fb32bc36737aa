"""How likely each revision is the culprit: figures that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from perfrun.analysis.culprits import Belief, Pair, believe

EFFECT = 0.05


def pairs_of(a: int, b: int, numbers: object) -> list[Pair]:
    return [Pair(a=a, b=b, log_ratio=float(number)) for number in np.atleast_1d(numbers)]


def drawn(count: int, spread: float, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, count)


def test_pairs_that_show_the_change_rule_out_the_revisions_after_them() -> None:
    told = pairs_of(0, 4, EFFECT + drawn(10, 0.005)) + pairs_of(0, 2, [EFFECT])
    shares = believe([0, 1, 2, 3, 4], told).shares
    assert shares[0] == pytest.approx(shares[1])
    assert shares[2] == pytest.approx(shares[3])
    assert shares[:2].sum() > 0.95
    told[-1] = Pair(a=0, b=2, log_ratio=0.0)
    assert believe([0, 1, 2, 3, 4], told).shares[2:].sum() > 0.95


def test_more_pairs_make_it_surer_and_a_stray_revision_never_quite() -> None:
    told = pairs_of(0, 4, EFFECT + drawn(40, 0.05))
    sure = [
        believe([0, 2, 4], [*told, *pairs_of(0, 2, np.full(count, EFFECT))]).shares[0]
        for count in (1, 4, 16, 400)
    ]
    assert sure == sorted(sure)
    assert sure[0] < 0.9
    assert 0.99 < sure[3] < 0.997


@pytest.mark.parametrize(("outliers", "degrees"), [(0, (6, 20)), (20, (2, 3))])
def test_the_noise_is_that_of_most_pairs_and_its_tails_are_seen(
    outliers: int, degrees: tuple[int, int]
) -> None:
    numbers = drawn(200, 0.05)
    numbers[:outliers] += 0.6
    noise = believe([0, 9], pairs_of(0, 9, EFFECT + numbers)).noise
    assert 0.03 < noise.scale < 0.055
    assert degrees[0] <= noise.degrees <= degrees[1]


def test_an_outlier_tells_less_than_a_figure_that_is_as_expected() -> None:
    numbers = drawn(40, 0.01)
    numbers[::10] += 0.4
    told = pairs_of(0, 2, EFFECT + numbers)
    far, usual = (believe([0, 1, 2], [*told, *pairs_of(0, 1, [x])]).shares[0] for x in (0.6, 0.05))
    assert 0.5 < far < 0.8 < usual


def test_figures_that_repeat_exactly_are_no_reason_to_fail() -> None:
    told = pairs_of(0, 2, np.full(8, EFFECT)) + pairs_of(0, 1, [0.0])
    shares = believe([0, 1, 2], told).shares
    assert np.isfinite(shares).all()
    assert shares[1] > 0.95


def test_a_pair_that_was_run_often_is_worth_less_the_less_noise_there_is() -> None:
    inside, often = np.array([0.5, 0.5]), np.array([0.0, 8.0])
    worth = {}
    for spread in (0.001, 0.05):
        belief: Belief = believe([0, 1, 2], pairs_of(0, 2, EFFECT + drawn(40, spread)))
        new, again = belief.worth(inside, often)
        worth[spread] = again / new
    assert worth[0.001] < 0.01
    assert 0.5 < worth[0.05] < 1.0
