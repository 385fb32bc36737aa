"""What a history tells before the rules decide: held against the rules themselves."""

from __future__ import annotations

import numpy as np
import pytest

from perfrun.analysis.changepoint import SeriesWatch
from perfrun.analysis.detection import History, watch_suite
from perfrun.analysis.outlook import (
    NEEDED,
    SEEN,
    SEEN_SHARE,
    needed_p_value,
    sensitivity,
    unsure_shifts,
)
from simulations.detect import drifting, gaussian
from simulations.noises import Noise
from simulations.outlook import least_seen, said_of_steps, shown_in_noise


@pytest.mark.slow
@pytest.mark.parametrize("noise", [gaussian, drifting])
def test_the_nights_that_are_said_are_those_that_the_rules_then_take(noise: Noise) -> None:
    said = [
        one
        for before, step in ((8, 0.2), (20, 0.1), (60, 0.1))
        for one in said_of_steps(noise, step, before, 8, seed=5)
        if one.needed is not None and one.true is not None
    ]
    off = [abs(one.needed - one.true) for one in said]
    assert len(off) >= 40
    assert np.mean([gap <= 1 for gap in off]) >= 0.8
    assert np.mean([gap <= 2 for gap in off]) >= 0.9


def test_noise_is_rarely_shown_as_a_shift() -> None:
    assert shown_in_noise(gaussian, 8, 100, seed=6) <= 0.02
    assert shown_in_noise(drifting, 40, 100, seed=6) <= 0.06


@pytest.mark.parametrize("before", [6, 20, 40])
def test_changes_that_are_said_to_be_seen_are_seen(before: int) -> None:
    stated = dict(SEEN)[before]
    for size, needed in zip(least_seen(gaussian, before, 40, seed=7), stated, strict=True):
        assert size <= 1.15 * needed  # forty series say 90 % only roughly
    assert SEEN_SHARE == 0.9


def history(values: list[float], first: int = 0) -> History:
    return History(values=values, nights=range(first, first + len(values)), direction="lower")


def test_a_large_suite_asks_for_more_evidence_and_a_history_that_ended_for_none() -> None:
    assert needed_p_value(1) == needed_p_value(10) == NEEDED[0]
    assert needed_p_value(100) == pytest.approx(NEEDED[1])
    assert needed_p_value(0) == NEEDED[0]
    noise = np.random.default_rng(8).normal(1, 0.01, 12)
    stepped = history([*noise.tolist(), 2.0, 2.02, 2.01])
    (shift,) = unsure_shifts([stepped], watch_suite([stepped]), 5)
    assert (shift.first_after, shift.after, shift.needed) == (12, 3, 3)  # separation needs six
    assert shift.ratio == pytest.approx(2.0, rel=0.02)
    later = history([1.0, 1.01, 0.99], first=40)
    both = [stepped, later]
    assert unsure_shifts(both, watch_suite(both), 5) == ()
    assert unsure_shifts([], [], 5) == ()


def test_histories_of_hardly_any_nights_say_nothing_or_how_little_they_know() -> None:
    for count in range(1, 12):
        one = history([1.0 + 0.01 * (number % 2) for number in range(count)])
        (watch,) = watch_suite([one])
        assert unsure_shifts([one], [watch], 5) == ()
        known = sensitivity(watch, 1, 0.05)
        assert (known is None) == (count < 3)
        if known is not None:
            assert known.noise_low < known.noise < known.noise_high
            assert (known.nights, known.wait) == (count, max(6 - count, 0))
            assert known.seen > known.noise_high
    flat, _ = SeriesWatch.all_of([[1.0] * 8])
    known = sensitivity(flat[0], 1, 0.05)
    assert known is not None
    assert (known.more, known.seen) == (0, 0.01)  # differences below 1 % are not relevant


@pytest.mark.filterwarnings("error")
def test_a_change_is_not_shown_as_unsure_in_the_night_that_calls_it() -> None:
    noise = np.random.default_rng(9).normal(1, 0.01, 60)
    every = [*noise[:50].tolist(), *(1.1 * noise[50:]).tolist()]
    for count in range(51, 61):
        one = history(every[:count])
        (watch,) = watch_suite([one])
        shifts = unsure_shifts([one], [watch], 5)
        if watch.changes():
            assert shifts == ()
            return
    raise AssertionError("the step was never called")


def test_a_shift_that_is_not_sure_yet_does_not_count_as_noise() -> None:
    noise = np.random.default_rng(9).normal(1, 0.01, 8).tolist()
    (quiet,), (stepped,) = (
        watch_suite([history(values)]) for values in (noise, [*noise, 1.5, 1.51, 1.49])
    )
    before, now = sensitivity(quiet, 1, 0.05), sensitivity(stepped, 1, 0.05)
    assert before is not None
    assert now is not None
    assert now.noise == before.noise
    assert now.nights == 11
