"""Changes of level in a whole suite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfrun.analysis.detection import Detected, History, detect
from simulations.year import make, score


def history(
    step: float = 1.0,
    *,
    at: int = 40,
    seed: int = 1,
    count: int = 60,
    spread: float = 0.01,
    direction: str = "lower",
    is_canary: bool = False,
) -> History:
    values = np.exp(spread * np.random.default_rng(seed).standard_normal(count))
    values[at:] *= step
    return History(
        values=values.tolist(),
        nights=range(count),
        direction="lower" if direction == "lower" else "higher",
        is_canary=is_canary,
    )


def only(found: tuple[Detected, ...]) -> Detected:
    (one,) = found
    return one


@pytest.mark.parametrize(
    ("step", "direction", "verdict"),
    [
        (1.1, "lower", "worse"),
        (0.9, "lower", "better"),
        (1.1, "higher", "better"),
        (0.9, "higher", "worse"),
    ],
)
def test_a_change_is_worse_or_better_by_the_direction(
    step: float, direction: str, verdict: str
) -> None:
    found = only(detect([history(step, direction=direction)]))
    assert found.direction == verdict
    assert found.low < step < found.high
    assert found.first_after == 40


def test_evidence_that_is_enough_for_one_series_takes_longer_among_many() -> None:
    alone = only(detect([history(1.04, spread=0.02)]))
    others = [history(seed=seed, spread=0.02) for seed in range(2, 302)]
    found = [one for one in detect([history(1.04, spread=0.02), *others]) if one.series == 0]
    assert not found or found[0].alarm > alone.alarm


def test_many_series_that_move_together_help_each_other() -> None:
    together = [history(1.04, seed=seed, spread=0.02) for seed in range(100)]
    found = detect(together)
    assert len({one.series for one in found}) > 90


def test_a_difference_below_the_least_effect_is_none() -> None:
    tiny = history(1.006, spread=0.001)
    assert detect([tiny]) == ()
    assert only(detect([tiny], min_effect=0.003)).ratio == pytest.approx(1.006, abs=0.001)


def test_what_moves_with_the_canary_may_be_the_machine() -> None:
    canary = history(1.1, seed=9, is_canary=True)
    moved, later = history(1.1, seed=2), history(1.1, at=50, seed=3)
    found = {one.series: one for one in detect([moved, canary, later])}
    assert found[0].machine_suspect
    assert found[1].machine_suspect
    assert not found[2].machine_suspect


def test_a_canary_that_moves_the_other_way_excuses_nothing() -> None:
    canary = history(0.9, seed=9, is_canary=True)
    found = {one.series: one for one in detect([history(1.1, seed=2), canary])}
    assert not found[0].machine_suspect


def test_a_canary_need_not_raise_an_alarm_of_its_own() -> None:
    moved = history(1.2, seed=3, count=45)
    canary = history(1.015, seed=12, count=45, is_canary=True)
    assert detect([canary]) == ()
    assert only(detect([moved, canary])).machine_suspect


def test_a_canary_that_was_not_run_in_those_nights_says_nothing() -> None:
    canary = replace(history(1.1, seed=9, is_canary=True), nights=range(1000, 1060))
    found = {one.series: one for one in detect([history(1.1, seed=2), canary])}
    assert not found[0].machine_suspect


def test_several_observations_a_night_are_looked_at_in_their_order() -> None:
    twice = replace(history(1.1), nights=[number // 2 for number in range(60)])
    assert only(detect([twice])).first_after == 40


def test_nothing_is_found_in_nothing() -> None:
    assert detect([]) == ()
    assert detect([History(values=[], nights=[], direction="lower")]) == ()


def test_a_year_of_a_suite_has_few_false_alarms_and_finds_most_changes() -> None:
    year = make(series=60, nights=300, changes=15, seed=2)
    came_out = score(year)
    assert came_out.found >= 11
    assert came_out.false <= 3
    assert came_out.machine > 4 * came_out.machine_unmarked


def test_old_changes_can_be_left_out_and_count_for_the_others_all_the_same() -> None:
    histories = [history(1.2, at=at, seed=at, count=80) for at in (30, 40, 50)]
    whole = detect(histories)
    assert [one.first_after for one in whole] == [30, 40, 50]
    assert detect(histories, begun_since=40) == whole[1:]
    assert detect(histories, alarm_since=whole[1].alarm + 1) == whole[2:]
    assert detect(histories, begun_since=51) == ()
