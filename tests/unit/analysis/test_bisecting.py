"""The search for a revision, with figures that are made up: no clock, no process."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from perfrun.analysis.bisecting import Ask, End, SearchRule, interim_levels, next_move
from perfrun.analysis.culprits import RevisionPair, posterior_of
from perfrun.analysis.pairs import rank_depth
from simulations import bisect_oracle
from simulations.bisect import gaussian, outliers, row, simulate

Ratio = Callable[[int, int], float]


def run(
    count: int,
    ratio: Ratio,
    broken: frozenset[int] = frozenset(),
    rule: SearchRule | None = None,
    measured: list[RevisionPair] | None = None,
) -> tuple[End, list[RevisionPair]]:
    """Search among revisions of which some do not run."""
    pairs = [] if measured is None else measured
    known: set[int] = set()
    while True:
        move = next_move(count, pairs, known, rule or SearchRule())
        if isinstance(move, End):
            return move, pairs
        fails = {move.a, move.b} & broken
        known |= fails
        if not fails:
            pairs.append(RevisionPair(a=move.a, b=move.b, log_ratio=ratio(move.a, move.b)))


def step(culprit: int, effect: float = 0.1, noise: float = 0.0, seed: int = 1) -> Ratio:
    """Every revision from `culprit` on takes longer."""
    random = np.random.default_rng(seed)

    def ratio(a: int, b: int) -> float:
        moved = math.log1p(effect) * ((b >= culprit) - (a >= culprit))
        return moved + float(random.normal(0, noise))

    return ratio


@pytest.mark.parametrize("culprit", [1, 2, 8, 15, 16, 29, 30])
def test_without_noise_every_culprit_is_found_in_few_pairs(culprit: int) -> None:
    end, pairs = run(31, step(culprit))
    assert (end.status, end.after, end.last) == ("found", culprit - 1, culprit)
    assert end.change is not None
    assert end.change.ratio == pytest.approx(1.1)
    assert len(pairs) <= 30  # two tests of eight, and about a pair a halving


def test_two_revisions_need_the_comparison_of_good_and_bad_alone() -> None:
    end, pairs = run(2, step(1, noise=0.01))
    assert (end.status, end.last, len(pairs)) == ("found", 1, 8)
    assert end.probability == pytest.approx(1.0)


def test_a_gain_is_found_like_a_loss() -> None:
    end, _ = run(31, step(7, effect=-0.1, noise=0.01))
    assert (end.status, end.last) == ("found", 7)
    assert end.change is not None
    assert end.change.verdict == "faster"


def test_good_and_bad_that_are_the_same_are_not_searched() -> None:
    end, pairs = run(31, step(40, noise=0.005))
    assert end.status == "not_reproduced"
    assert {(pair.a, pair.b) for pair in pairs} == {(0, 30)}


def test_figures_of_few_values_without_any_effect_are_undecided() -> None:
    told = [RevisionPair(a=0, b=4, log_ratio=(0.01, 0.0, -0.01)[at % 3]) for at in range(60)]
    end = next_move(5, told, frozenset(), SearchRule(min_effect=0.0))
    assert isinstance(end, End)
    assert end.status != "found"


def test_good_and_bad_that_noise_hides_are_undecided() -> None:
    end, pairs = run(31, step(9, effect=0.001, noise=0.5))
    assert (end.status, end.probability) == ("undecided", None)
    assert (end.after, end.last, len(pairs)) == (0, 30, SearchRule().max_test_pairs)


def test_a_culprit_beside_revisions_that_do_not_run_is_a_range() -> None:
    end, _ = run(31, step(12, noise=0.01), broken=frozenset({10, 11, 12, 20}))
    assert (end.status, end.after, end.last) == ("range", 9, 13)
    end, _ = run(31, step(14, noise=0.01), broken=frozenset({10, 11, 12, 20}))
    assert (end.status, end.after, end.last) == ("found", 13, 14)


def test_nothing_between_good_and_bad_runs() -> None:
    end, pairs = run(5, step(2, noise=0.01), broken=frozenset({1, 2, 3}))
    assert (end.status, end.after, end.last) == ("range", 0, 4)
    assert len(pairs) == 8


def test_short_of_pairs_the_range_holds_the_culprit() -> None:
    end, pairs = run(101, step(33, noise=0.02), rule=SearchRule(max_pairs=12))
    assert end.status == "undecided"
    assert end.after < 33 <= end.last
    assert end.last - end.after < 60
    assert end.probability is not None
    assert end.probability >= 0.95
    assert len(pairs) == 12


def test_a_search_goes_on_from_its_pairs_as_if_never_interrupted() -> None:
    whole, pairs = run(31, step(22, noise=0.03, seed=5))
    for cut in (0, 3, 9, len(pairs) - 1):
        replay = iter(pairs[cut:])

        def recorded(a: int, b: int) -> float:
            pair = next(replay)  # noqa: B023
            assert (pair.a, pair.b) == (a, b)
            return pair.log_ratio

        end, _ = run(31, recorded, measured=pairs[:cut])
        assert end == whole


def test_more_pairs_go_where_the_answer_is_less_clear() -> None:
    costs = [
        np.mean([len(run(31, step(17, noise=noise, seed=seed))[1]) for seed in range(5)])
        for noise in (0.005, 0.03, 0.06)
    ]
    assert costs[0] < 30
    assert costs[0] < costs[1] < costs[2]


def test_a_pair_that_was_disturbed_costs_pairs_and_not_the_answer() -> None:
    calm = step(11, noise=0.01)
    count = 0

    def ratio(a: int, b: int) -> float:
        nonlocal count
        count += 1
        return calm(a, b) + (0.7 if count in (9, 14) else 0.0)  # the first two of the search

    end, _ = run(31, ratio)
    assert (end.status, end.last) == ("found", 11)


def test_before_anything_else_is_measured_every_revision_is_as_likely() -> None:
    pairs = [RevisionPair(a=0, b=4, log_ratio=0.1 + i / 1000) for i in range(8)]
    assert list(posterior_of([0, 1, 2, 3, 4], pairs).probabilities) == pytest.approx([0.25] * 4)
    assert list(posterior_of([0, 3, 4], pairs).probabilities) == pytest.approx([0.75, 0.25])
    move = next_move(5, pairs, frozenset(), SearchRule())
    assert move == Ask(a=0, b=2, why="search")


@pytest.mark.parametrize("count", [5, 13, 31, 101, 1001])
def test_the_first_pair_of_the_search_halves_the_revisions(count: int) -> None:
    pairs = [RevisionPair(a=0, b=count - 1, log_ratio=0.1 + i / 1000) for i in range(8)]
    assert next_move(count, pairs, frozenset(), SearchRule()) == Ask(
        a=0, b=count // 2, why="search"
    )


def test_a_test_that_60_pairs_leave_open_goes_on_when_more_may_decide_it() -> None:
    ratio = step(1, effect=0.05, noise=0.14, seed=8)
    end, pairs = run(2, ratio)
    assert end.status == "found"
    assert 60 < len(pairs) <= 200
    fewer = next_move(2, pairs[:60], frozenset(), SearchRule())
    assert fewer == Ask(a=0, b=1, why="verify")


def test_identical_revisions_are_called_different_in_5_of_100_tests_at_most() -> None:
    values = np.random.default_rng(3).standard_normal((4000, 200))
    alarms = np.zeros(len(values), dtype=bool)
    for count, nominal in interim_levels(SearchRule()):
        seen = values[:, :count]
        ranks = np.argsort(np.argsort(np.abs(seen), axis=1), axis=1) + 1
        above = (ranks * (seen > 0)).sum(axis=1)
        below = count * (count + 1) // 2 - above
        alarms |= np.minimum(above, below) < rank_depth(count, nominal)
    assert 0.03 < alarms.mean() < 0.055


def test_a_good_revision_that_is_off_by_itself_does_not_mislead_the_search() -> None:
    # All pairs are against it: a third of the effect is in all of them.
    calm = step(29, effect=0.05, noise=0.03, seed=8)
    end, pairs = run(31, lambda a, b: calm(a, b) + (0.016 if a == 0 else 0.0))
    assert (end.status, end.last) == ("found", 29)
    assert len(pairs) < 150


@pytest.mark.parametrize("culprit", [22, 29, 30])
def test_one_revision_that_is_off_by_the_whole_effect_is_not_named(culprit: int) -> None:
    # The first pair of the search is of it: what follows leads to it, but not what is after it.
    calm = step(culprit, noise=0.005, seed=3)
    seen = RevisionPair(a=0, b=15, log_ratio=0.1)
    verified = [RevisionPair(a=0, b=30, log_ratio=calm(0, 30)) for _ in range(8)]
    end, pairs = run(
        31,
        lambda a, b: calm(a, b) + 0.1 * ((b == 15) - (a == 15)),
        measured=[*verified, seen],
    )
    assert (end.status, end.last) == ("found", culprit)
    assert len(pairs) < 60


def test_a_sure_culprit_is_named_when_no_pair_is_left_for_its_neighbours() -> None:
    told = [RevisionPair(a=0, b=30, log_ratio=0.1 + at / 1e4) for at in range(8)]
    told += [RevisionPair(a=14, b=15, log_ratio=0.1 + at / 1e4) for at in range(8)]
    told += [RevisionPair(a=0, b=15, log_ratio=0.1), RevisionPair(a=0, b=14, log_ratio=0.0)]
    assert next_move(31, told, frozenset(), SearchRule()) == Ask(a=14, b=16, why="confirm")
    end = next_move(31, told, frozenset(), SearchRule(max_pairs=len(told)))
    assert isinstance(end, End)
    assert (end.status, end.after, end.last) == ("found", 14, 15)
    assert end.probability is not None
    assert end.probability >= 0.98


def test_pairs_are_not_only_against_good() -> None:
    _, pairs = run(31, step(17, effect=0.05, noise=0.05, seed=4))
    searched = [pair for pair in pairs if 30 in (pair.a, pair.b) and pair.a]
    assert searched
    assert any(pair.a and pair.b < 30 for pair in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "spread"), [(gaussian, 0.02), (outliers, 0.02), (gaussian, 0.05)])
def test_the_simulation_in_small(
    draw: Callable[[np.random.Generator, float], float], spread: float
) -> None:
    tally = simulate(30, 0.1, spread, draw, 0.1, 20)
    assert tally.answers["right"] >= 19
    assert row(30, 0.1, "x", 0.1, tally).startswith("| 30 | 10% | x | 10% |")


def test_who_knows_the_noise_and_the_effect_finds_it_with_fewer_pairs() -> None:
    random, law = np.random.default_rng(1), bisect_oracle.log_density("5 % outliers")
    done = [bisect_oracle.search(random, 30, outliers, law) for _ in range(40)]
    assert sum(found for found, _ in done) >= 37
    assert 40 < np.mean([pairs for _, pairs in done]) < 130
