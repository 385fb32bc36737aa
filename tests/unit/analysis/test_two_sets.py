"""The rule of `perfrun compare`: what is called faster, slower, equivalent or undecided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.analysis.directions import Direction
from perfrun.analysis.two_sets import Comparison, Pairing, compare
from simulations.compare import simulate
from simulations.noises import NOISES


def one(
    base: list[float], new: list[float], direction: Direction = "lower", **options: float
) -> Comparison:
    pairing = Pairing(method="m", metric="x", direction=direction, base=tuple(base), new=tuple(new))
    return compare([pairing], **options)[0]


def noisy(median: float, count: int, spread: float = 0.005, seed: int = 1) -> list[float]:
    numbers = median * np.exp(spread * np.random.default_rng(seed).standard_normal(count))
    return [float(number) for number in numbers]


@pytest.mark.parametrize("count", [3, 5, 10])
def test_a_method_that_got_slower_is_called_so_with_an_interval_around_the_true_ratio(
    count: int,
) -> None:
    found = one(noisy(1.0, count), noisy(1.1, count, seed=2))
    assert found.verdict == "slower"
    assert found.interval is not None
    assert found.interval.low < 1.1 < found.interval.high
    assert found.interval.low > 1.05
    assert found.cliffs_delta == 1.0


def test_of_a_rate_more_is_faster_and_less_is_slower() -> None:
    assert one(noisy(100, 8), noisy(110, 8, seed=2), "higher").verdict == "faster"
    assert one(noisy(100, 8), noisy(90, 8, seed=2), "higher").verdict == "slower"


def test_a_metric_without_a_direction_is_never_judged() -> None:
    found = one(noisy(100, 8), noisy(110, 8, seed=2), "none")
    assert found.verdict == "undecided"
    assert found.reason == "it differs, and which way is better is not known"


def test_the_same_is_equivalent_within_what_could_have_been_seen() -> None:
    found = one(noisy(1.0, 10), noisy(1.0, 10, seed=2))
    assert found.verdict == "equivalent"
    assert found.margin is not None
    assert 0.005 < found.margin < 0.02


def test_what_is_too_noisy_is_undecided_not_equivalent() -> None:
    found = one(noisy(1.0, 5, spread=0.3), noisy(1.0, 5, spread=0.3, seed=2))
    assert found.verdict == "undecided"
    assert found.reason == "too noisy for so few trials"


def test_one_trial_on_a_side_has_a_ratio_and_nothing_else() -> None:
    found = one([2.0], [3.0, 3.0, 3.0])
    assert (found.ratio, found.interval, found.verdict) == (1.5, None, "undecided")
    assert found.reason == "one trial on a side"


def test_a_difference_too_small_to_matter_is_none_however_sure() -> None:
    base, new = noisy(1.0, 20, spread=1e-4), noisy(1.005, 20, spread=1e-4, seed=2)
    assert one(base, new).verdict == "equivalent"
    assert one(base, new, min_effect=0.001).verdict == "slower"


def test_figures_that_never_vary_are_compared_by_their_ranks() -> None:
    assert one([5.0] * 4, [5.0] * 4).verdict == "equivalent"
    assert one([5.0] * 8, [6.0] * 8).verdict == "slower"
    assert one([5.0] * 3, [6.0] * 3).verdict == "undecided"  # p cannot be below 0.1


def test_zero_or_less_has_no_ratio() -> None:
    found = one([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    assert (found.ratio, found.verdict) == (None, "undecided")


def test_more_comparisons_ask_for_stronger_evidence() -> None:
    weak = Pairing(
        method="weak",
        metric="x",
        direction="lower",
        base=(1.00, 1.02, 0.98, 1.01, 0.99),
        new=(1.04, 1.06, 1.02, 1.05, 1.03),
    )
    alone = compare([weak])[0]
    same = [
        Pairing(
            method=str(at),
            metric="x",
            direction="lower",
            base=tuple(noisy(1.0, 5, seed=at)),
            new=tuple(noisy(1.0, 5, seed=1000 + at)),
        )
        for at in range(100)
    ]
    among_many = compare([weak, *same])[0]
    assert alone.verdict == "slower"
    assert among_many.verdict == "undecided"
    assert among_many.ratio == alone.ratio


SAMPLE = st.lists(st.floats(0.001, 1000), min_size=1, max_size=12)


@given(SAMPLE, SAMPLE)
@settings(max_examples=60, deadline=None)
def test_whatever_the_figures_the_ratio_lies_in_the_interval(
    base: list[float], new: list[float]
) -> None:
    found = one(base, new)
    assert found.ratio is not None
    if found.interval:
        assert found.interval.low <= found.ratio * (1 + 1e-9)
        assert found.interval.high >= found.ratio * (1 - 1e-9)
        assert found.p_value is not None
        assert 0 <= found.p_value <= 1


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("size", [3, 5, 10])
def test_of_identical_methods_at_most_five_in_a_hundred_are_called_different(
    noise: str, size: int
) -> None:
    # 12 suites of 50; less than 1 % is called different at length (docs/research/comparison.md).
    assert simulate(NOISES[noise], size, suites=12).share_different <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "log-normal", "two modes"])
def test_ten_trials_find_one_method_of_fifty_that_is_a_tenth_slower(noise: str) -> None:
    tally = simulate(NOISES[noise], 10, suites=12)
    assert tally.found >= 9
