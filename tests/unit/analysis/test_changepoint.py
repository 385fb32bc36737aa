"""Changes of level in one series. Seeds are fixed, so shares are the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfrun.analysis.changepoint import ALARM, Change, SeriesWatch
from perfrun.analysis.scan import FEWEST_BEFORE, MOST_AFTER
from simulations.detect import KINDS, found, ours
from simulations.detect import false_alarms as share_of_false_alarms


def quiet(count: int, seed: int = 1, spread: float = 0.01) -> np.ndarray:
    return np.exp(spread * np.random.default_rng(seed).standard_normal(count))


def changes(values: np.ndarray) -> tuple[Change, ...]:
    """Accept every alarm, as a suite of one series does."""
    watch = SeriesWatch(values)
    place = 0
    while place < len(values):
        if watch.p_values[place] <= ALARM:
            watch.cut(place)
        place += 1
    return watch.changes()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "very skewed"])
def test_pure_noise_raises_an_alarm_in_at_most_five_percent_of_the_series(kind: str) -> None:
    assert share_of_false_alarms(ours, KINDS[kind], series=300, seed=11) <= 0.05


@pytest.mark.parametrize("kind", ["Gaussian", "log-normal", "5 % outliers of +15 %"])
def test_five_percent_are_found_within_a_week(kind: str) -> None:
    within, later, _ = found(ours, KINDS[kind], 0.05, series=300, seed=11)
    assert within >= 0.85
    assert later >= 0.99


@settings(deadline=None, max_examples=100)
@given(
    place=st.integers(0, 79),
    factor=st.one_of(st.floats(1e-3, 0.9), st.floats(1.1, 1e3)),
    seed=st.integers(0, 20),
)
def test_a_single_outlier_of_any_size_is_no_change(place: int, factor: float, seed: int) -> None:
    values = quiet(80, seed=100 + seed)
    # An outlier can tip a balance that others have brought about; alone it changes nothing.
    assume(SeriesWatch(values).p_values.min() > 0.1)
    values[place] *= factor
    assert changes(values) == ()


def test_the_verdict_on_an_observation_does_not_depend_on_the_observations_after_it() -> None:
    values = quiet(120)
    values[50:] *= 1.1
    values[90:] *= 0.95
    whole = changes(values)
    assert [one.first_after for one in whole] == [50, 90]
    for count in range(10, 120, 7):
        known = changes(values[:count])
        assert [(one.first_after, one.alarm, one.p_value) for one in known] == [
            (one.first_after, one.alarm, one.p_value) for one in whole if one.alarm < count
        ]


@pytest.mark.parametrize("factor", [1.05, 0.95, 1.5, 20.0])
def test_a_step_is_put_on_its_observation_and_measured(factor: float) -> None:
    values = quiet(60)
    values[40:] *= factor
    (change,) = changes(values)
    assert abs(change.first_after - 40) <= (1 if factor < 1.1 else 0)
    assert 42 <= change.alarm + 1 <= 46
    assert abs(change.shift - np.log(factor)) <= change.reach < 0.02


def test_a_step_and_its_repair_are_two_changes() -> None:
    values = quiet(80)
    values[40:48] *= 1.2
    first, second = changes(values)
    assert (first.first_after, second.first_after) == (40, 48)
    assert first.shift > 0.17
    assert second.shift < -0.17


def test_small_steps_are_found_when_there_are_enough_observations() -> None:
    values = quiet(60 + MOST_AFTER, spread=0.02)
    values[60:] *= 1.03
    assert [change.shift > 0 for change in changes(values)] == [True]


def test_the_unit_does_not_matter() -> None:
    values = quiet(70)
    values[40:] *= 1.08
    seconds, nanoseconds = changes(values), changes(values * 1e9)
    assert [c.alarm for c in seconds] == [c.alarm for c in nanoseconds]
    assert seconds[0].shift == pytest.approx(nanoseconds[0].shift)


def test_levels_of_a_clock_that_hardly_varies() -> None:
    assert changes(np.full(50, 3.0)) == ()
    (change,) = changes(np.array([3.0] * 30 + [3.3] * 10))
    assert change.first_after == 30


@pytest.mark.parametrize("count", [0, 1, 2, FEWEST_BEFORE, FEWEST_BEFORE + 1])
def test_a_short_series_has_no_verdict(count: int) -> None:
    assert changes(np.array([1.0, 9.0] * 20)[:count]) == ()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_have_no_logarithm_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive, finite"):
        SeriesWatch([1.0, bad, 2.0])


def test_a_single_question_needs_less_than_an_alarm() -> None:
    values = quiet(40)
    values[38:] *= 1.03
    watch = SeriesWatch(values)
    assert min(watch.p_values) > ALARM
    shift, p_value = watch.shift_between(0, 38, 39)
    assert shift == pytest.approx(np.log(1.03), abs=0.015)
    assert p_value < 0.05
    assert watch.shift_between(0, 5, 6) == (0.0, 1.0)
    assert watch.shift_between(0, 30, 31)[1] > 0.05
