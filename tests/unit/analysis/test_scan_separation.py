"""Steps that nobody can miss, in histories too young to know their noise. Seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.analysis.changepoint import ALARM, SeriesWatch
from perfrun.analysis.detection import History, detect
from perfrun.analysis.scan import SEPARATION_AFTER as AFTER
from perfrun.analysis.scan import SEPARATION_BEFORE as BEFORE
from perfrun.analysis.scan import (
    SEPARATION_P_VALUE,
    YOUNG_BEFORE,
    YOUNG_P_VALUE,
    separated,
    separated_young,
)
from simulations.detect import KINDS
from simulations.noises import drifting


def young(before: int, after: int, seed: int = 1, *, step: float = 1.1) -> np.ndarray:
    values = np.exp(0.001 * np.random.default_rng(seed).standard_normal(before + after))
    values[before:] *= step
    return values


def first_alarm(values: np.ndarray) -> int:
    return int(np.argmax(SeriesWatch(values).p_values <= ALARM))


@pytest.mark.parametrize("before", [12, 13, 14, 16, 18, 21, 25, 40])
@pytest.mark.parametrize("step", [1.1, 0.9])
def test_a_large_step_in_a_young_history_is_found_within_a_week(before: int, step: float) -> None:
    for seed in range(20):
        observations = first_alarm(young(before, 21, seed, step=step)) - before + 1
        assert 2 <= observations <= 7


@pytest.mark.parametrize("before", range(YOUNG_BEFORE, BEFORE))
@pytest.mark.parametrize("step", [1.1, 0.9])
def test_a_step_of_a_hundred_times_the_noise_is_found_after_six_observations(
    before: int, step: float
) -> None:
    for seed in range(20):
        values = young(before, AFTER, seed, step=step)
        assert first_alarm(values) == before + AFTER - 1
        (found,) = detect([History(values=values, nights=range(before + AFTER), direction="lower")])
        assert (found.first_after, found.p_value) == (before, YOUNG_P_VALUE)
        assert "separation" in found.detectors


@settings(max_examples=60)
@given(
    before=st.integers(0, BEFORE - 1),
    after=st.integers(0, 12),
    place=st.integers(0, 23),
    factor=st.one_of(st.floats(0.01, 0.8), st.floats(1.2, 100)),
)
def test_of_few_observations_every_one_counts(
    before: int, after: int, place: int, factor: float
) -> None:
    """One outlier, or fewer than six observations on a side, and none is marked."""
    logs = np.log(young(before, after))
    ends = np.array([len(logs)])
    said = separated_young(logs, np.array([0]), ends).tolist()
    assert said == ([before + AFTER - 1] if before >= YOUNG_BEFORE and after >= AFTER else [])
    if place < min(len(logs), before + AFTER):
        logs[place] += np.log(factor)
        assert separated_young(logs, np.array([0]), ends).tolist() == []


def test_levels_end_to_end_are_judged_as_alone() -> None:
    levels = [young(8, 6, 1), young(5, 9, 2), young(11, 3, 3), young(11, 9, 4)]
    sizes = np.array([len(level) for level in levels])
    ends = np.cumsum(sizes)
    found = separated_young(np.log(np.concatenate(levels)), ends - sizes, ends)
    assert sorted(found.tolist()) == [13, int(ends[2]) + 16]


def test_noise_hardly_ever_looks_like_a_step_of_the_first_observations() -> None:
    count = 30000
    starts = 18 * np.arange(count)
    for kind, least in {**dict.fromkeys(KINDS, 0.0002), "AR(1) 0.5": 0.0006}.items():
        table = np.log(KINDS[kind](np.random.default_rng(8), (count, 18), 0.02))
        assert len(separated_young(table.ravel(), starts, starts + 18)) <= least * count


def test_two_outliers_among_the_first_observations_do_not_hide_it() -> None:
    for seed in range(40):
        values = young(16, 7, seed)
        places = np.random.default_rng(seed).permutation(16)[:2]
        values[places] *= (1.3, 0.8 if seed % 2 else 1.15)
        assert 16 <= first_alarm(values) < 23


def test_an_alarm_names_its_statistics_and_the_change_is_put_at_the_step() -> None:
    raised = set()
    for seed in range(20):
        values = young(16, 10, seed)
        (found,) = detect([History(values=values, nights=range(26), direction="lower")])
        assert (found.first_after, found.direction) == (16, "worse")
        assert found.ratio == pytest.approx(1.1, abs=0.002)
        assert found.p_value == SEPARATION_P_VALUE
        raised.add(tuple(name for name in found.detectors if name != "pelt"))
    assert ("separation",) in raised
    assert raised <= {
        ("separation",),
        ("energy", "separation"),
        ("score", "energy", "separation"),
    }


def test_its_alarm_is_a_discovery_in_a_suite_of_a_thousand_series() -> None:
    generator = np.random.default_rng(3)
    suite = [
        young(16, AFTER, seed=2),
        *np.exp(0.001 * generator.standard_normal((1000, 22))),
    ]
    histories = [History(values=v, nights=range(22), direction="lower") for v in suite]
    assert [found.series for found in detect(histories)] == [0]


def test_steps_that_follow_one_another_are_all_found() -> None:
    levels = np.repeat([1.0, 1.25, 1.06, 2.4, 2.0], [27, 18, 16, 17, 31])
    for seed in range(10):
        generator = np.random.default_rng(seed)
        values = levels * np.exp(0.01 * generator.standard_normal(len(levels)))
        history = History(values=values, nights=range(len(values)), direction="lower")
        large = [c for c in detect([history], min_effect=0.05) if abs(np.log(c.ratio)) > 0.1]
        assert [change.first_after for change in large] == [27, 45, 61, 78]


def test_after_a_change_twelve_observations_of_the_new_level_are_enough() -> None:
    generator = np.random.default_rng(6)
    values = np.exp(0.001 * generator.standard_normal(20 + BEFORE + AFTER))
    values[20:] *= 1.5
    values[20 + BEFORE :] *= 1.5
    watch = SeriesWatch(values)
    watch.cut(20 + AFTER - 1)
    assert watch.separation[-1]
    assert not watch.separation[20 + AFTER : -1].any()


@pytest.mark.parametrize("wild", [5, 6, 7, 8])
def test_a_wild_week_is_none(wild: int) -> None:
    for seed in range(50):
        values = np.log(young(50, 0, seed))
        values[30 : 30 + wild] += np.random.default_rng(seed).uniform(-0.4, 0.4, wild)
        assert not separated(values).any()


def test_noise_with_a_memory_hardly_ever_is() -> None:
    table = np.log(drifting(np.random.default_rng(7), (4000, 100), 0.02))
    assert np.mean([separated(logs).any() for logs in table]) <= 0.002
    assert np.mean([separated(logs).sum() / (100 - BEFORE - AFTER + 1) for logs in table]) <= (
        2 * SEPARATION_P_VALUE
    )


def test_steps_below_a_clocks_own_noise_are_none() -> None:
    still = np.zeros(60)
    assert not separated(still).any()
    still[30:] += 0.003
    assert not separated(still).any()
    still[30:] += 0.003
    # Up to two observations may be outliers: from the sixth observation to the eighth.
    assert np.flatnonzero(separated(still)).tolist() == [35, 36, 37]


@pytest.mark.parametrize(
    "count",
    [
        0,
        1,
        AFTER,
        BEFORE,
        BEFORE + AFTER - 1,
        BEFORE + AFTER,
    ],
)
def test_the_first_observations_are_never_marked(count: int) -> None:
    observations = np.concatenate([np.zeros(BEFORE), np.ones(AFTER)])[:count]
    assert separated(observations).tolist() == [n == BEFORE + AFTER - 1 for n in range(count)]
