"""Series that are tested where others of their suite have changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perfrun.analysis.detection import Detected, History, changes_of, detect, watch_suite
from perfrun.analysis.together import FEWEST_TOGETHER
from simulations.suite import SUITES, WATCHES, Score, make, score

AT, COUNT = 60, 81


def series(step: float, *, seed: int, nights: Sequence[int] = range(COUNT)) -> History:
    """Return a series with noise of 2 % whose level changes in night `AT`."""
    values = np.exp(0.02 * np.random.default_rng([seed, 9]).standard_normal(len(nights)))
    values[np.asarray(nights) >= AT] *= step
    return History(values=values.tolist(), nights=nights, direction="lower")


def suite(changed: int, small: History) -> list[History]:
    """Return a suite of 60 in which so many series change much, and the first one a little."""
    much = [series(1.2, seed=seed) for seed in range(1, 1 + changed)]
    return [small, *much, *(series(1.0, seed=seed) for seed in range(101, 160 - changed))]


def of_first(found: Sequence[Detected]) -> list[Detected]:
    return [one for one in found if one.series == 0]


def test_a_small_step_is_found_sooner_with_others_of_its_night() -> None:
    histories = suite(FEWEST_TOGETHER, series(1.04, seed=201))
    (found,) = of_first(detect(histories))
    assert found.detectors[0] == "together"
    assert found.first_after == AT
    assert found.low < 1.04 < found.high
    (alone,) = of_first(changes_of(histories, watch_suite(histories, together=0)))
    assert found.alarm < alone.alarm
    assert "together" not in alone.detectors


def test_a_few_series_that_change_show_nothing_of_the_others() -> None:
    histories = suite(FEWEST_TOGETHER - 1, series(1.04, seed=201))
    assert not any("together" in one.detectors for one in detect(histories))


def test_many_small_steps_of_a_night_are_found_before_any_of_them_is_sure() -> None:
    moved = [series(1.05, seed=seed) for seed in range(301, 325)]
    histories = [*moved, *(series(1.0, seed=seed) for seed in range(401, 437))]
    known = [
        History(values=one.values[: AT + 3], nights=range(AT + 3), direction="lower")
        for one in histories
    ]
    alone = changes_of(known, watch_suite(known, together=0))
    assert len(alone) < FEWEST_TOGETHER  # else they would show the night by themselves
    found = detect(known)
    assert sum(one.series < len(moved) for one in found) >= 12
    assert {one.first_after for one in found} == {AT}


def test_a_night_that_only_hints_at_a_change_shows_none() -> None:
    nothing = [series(1.0, seed=seed) for seed in range(501, 561)]
    for one in nothing:  # a slow machine in two nights: nothing is sure of any of them
        one.values[AT : AT + 2] = [1.03 * value for value in one.values[AT : AT + 2]]
    assert not detect(nothing)


def test_a_series_that_was_not_run_that_night_is_tested_from_its_next_one() -> None:
    every_second = series(1.08, seed=0, nights=range(1, COUNT, 2))
    (found,) = of_first(detect(suite(FEWEST_TOGETHER, every_second)))
    assert found.detectors[0] == "together"
    assert every_second.nights[found.first_after] == AT + 1


def test_several_observations_a_night_are_all_tested() -> None:
    twice = series(1.025, seed=200, nights=[number // 2 for number in range(2 * COUNT)])
    (found,) = of_first(detect(suite(20, twice)))
    assert found.detectors[0] == "together"
    assert found.first_after == 2 * AT
    assert found.alarm % 2 == 1  # the last one of a night


def test_young_series_and_those_that_end_are_left_out() -> None:
    for nights in (range(AT - 11, COUNT), range(AT + 1), range(AT)):
        histories = suite(FEWEST_TOGETHER, series(1.05, seed=0, nights=nights))
        assert not any("together" in one.detectors for one in of_first(detect(histories)))


def test_what_was_reported_is_reported_again_tomorrow() -> None:
    made = make(SUITES["four kinds"], "together", series=80, moved=24, seed=5)
    histories = [
        History(values=own.tolist(), nights=range(COUNT), direction="lower") for own in made.table
    ]
    whole = detect(histories)
    assert any("together" in one.detectors for one in whole)
    for end in (64, 67, 71):
        known = [
            History(values=one.values[:end], nights=range(end), direction="lower")
            for one in histories
        ]
        assert [(one.series, one.first_after, one.alarm, one.p_value) for one in detect(known)] == [
            (one.series, one.first_after, one.alarm, one.p_value)
            for one in whole
            if one.alarm < end
        ]


@pytest.mark.parametrize(("kind", "least"), [("Gaussian", 0.96), ("four kinds", 0.87)])
def test_most_steps_that_come_together_are_found_in_a_week(kind: str, least: float) -> None:
    suites = [make(SUITES[kind], "together", series=300, moved=60, seed=seed) for seed in range(3)]
    found = {name: [score(one, watch) for one in suites] for name, watch in WATCHES.items()}
    assert share(found["perfrun"]) >= least
    assert share(found["perfrun"]) >= share(found["each by itself"]) + 0.08
    reports = sum(one.found + one.false for one in found["perfrun"])
    assert sum(one.false for one in found["perfrun"]) <= 0.04 * reports


def share(scores: Sequence[Score]) -> float:
    return sum(one.early for one in scores) / sum(one.made for one in scores)
