"""Observations that ran what the one before ran: only the machine can have changed there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perfrun.analysis.changepoint import ALARM, SeriesWatch
from perfrun.analysis.detection import History, detect
from simulations.detect import gaussian

AT, COUNT = 60, 81
WEEKLY = [night % 7 != AT % 7 for night in range(COUNT)]  # one commit a week, one of them at AT


def noisy(count: int, step: float = 1.0, *, at: int = AT, seed: int = 1) -> list[float]:
    values = gaussian(np.random.default_rng([seed, 17]), (count,), 0.02)
    values[at:] *= step
    return [float(value) for value in values]


def history(values: Sequence[float], repeats: Sequence[bool] = ()) -> History:
    return History(
        values=values, nights=range(len(values)), direction="lower", repeats=tuple(repeats)
    )


def test_a_history_without_repeats_and_one_of_repeats_only_are_judged_alike() -> None:
    values = noisy(COUNT, 1.05)
    as_ever = SeriesWatch(values)
    none = SeriesWatch(values, [False] * COUNT)
    only = SeriesWatch(values, [False] + [True] * (COUNT - 1))
    assert none.p_values.tolist() == as_ever.p_values.tolist()
    low = np.flatnonzero(as_ever.p_values <= 0.02)
    assert len(low) >= 10
    assert only.p_values[low].tolist() == pytest.approx(as_ever.p_values[low].tolist())


def test_a_step_at_a_commit_is_found_sooner_and_on_its_night_where_commits_are_few() -> None:
    sooner = right = right_without = found = 0
    for seed in range(40):
        values = noisy(COUNT, 1.05, seed=seed)
        with_digests, without = detect([history(values, WEEKLY)]), detect([history(values)])
        if with_digests and without:
            found += 1
            sooner += with_digests[0].alarm < without[0].alarm
            right += with_digests[0].first_after == AT
            right_without += without[0].first_after == AT
    assert found >= 36
    assert sooner >= 8
    assert right >= 0.85 * found > right_without


def test_a_clear_step_between_repeats_stays_where_it_is() -> None:
    values = noisy(COUNT, 1.15, at=AT + 3)
    (found,) = detect([history(values, WEEKLY)])
    assert found.first_after == AT + 3  # the machine's, not that of the commit three nights before
    assert WEEKLY[found.first_after]


def test_repeats_raise_no_more_false_alarms() -> None:
    weekends = [night % 7 in (5, 6) for night in range(100)]
    table = gaussian(np.random.default_rng(23), (400, 100), 0.02).tolist()
    without = SeriesWatch.all_of(table)[0]
    for repeats in (weekends, [night % 7 != 0 for night in range(100)]):
        watches, _ = SeriesWatch.all_of(table, [repeats] * len(table))
        alarms = sum((watch.p_values <= ALARM).any() for watch in watches)
        assert alarms <= sum((watch.p_values <= ALARM).any() for watch in without) + 4


def test_marks_of_one_series_change_nothing_in_the_others() -> None:
    several = [noisy(COUNT, 1.05, seed=seed) for seed in (1, 2, 3)]
    marked, _ = SeriesWatch.all_of(several, [[False] * COUNT, WEEKLY, [False] * COUNT])
    for number, repeats in enumerate(([], WEEKLY, [])):
        own = SeriesWatch(several[number], repeats)
        assert marked[number].p_values.tolist() == own.p_values.tolist()


def test_what_was_judged_is_judged_alike_tomorrow() -> None:
    values = noisy(COUNT, 1.05)
    whole = SeriesWatch(values, WEEKLY)
    part = SeriesWatch(values[:70], WEEKLY[:70])
    assert part.p_values.tolist() == whole.p_values[:70].tolist()
