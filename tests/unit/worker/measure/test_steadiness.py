"""The steadiness classifier on series whose kind is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from cputime import arithmetic, cpu_ratio

from perfrun.worker.measure.statistics import median
from perfrun.worker.measure.steadiness import MIN_SAMPLES, Steadiness, classify


def made(level: Callable[[int], float], count: int = 100, seed: int = 1) -> list[float]:
    """Times around 10 ms with 1 % noise."""
    source = random.Random(seed)
    return [0.01 * level(index) * source.gauss(1, 0.01) for index in range(count)]


def test_noise_around_one_level_is_flat_from_the_first_value() -> None:
    found = classify(made(lambda index: 1.0))
    assert found.kind == "flat"
    assert found.steady_from == 0
    assert found.segments[0][:2] == (0, 100)
    assert found.segments[0][2] == pytest.approx(0.01, rel=0.01)


def test_equal_values_are_flat() -> None:
    assert classify([0.5] * 50).kind == "flat"
    assert classify([0.0] * 50).kind == "flat"


def test_a_slow_start_is_a_warmup_that_ends_where_the_steady_part_begins() -> None:
    found = classify(made(lambda index: 1.2 if index < 20 else 1.0))
    assert found.kind == "warmup"
    assert found.steady_from == pytest.approx(20, abs=2)


def test_a_start_that_fades_out_is_a_warmup() -> None:
    found = classify(made(lambda index: 1 + math.exp(-index / 10), 200))
    assert found.kind == "warmup"
    assert found.steady_from is not None
    assert 15 <= found.steady_from <= 80


def test_two_slow_values_at_the_head_of_a_long_series_are_seen() -> None:
    found = classify(made(lambda index: 3.0 if index < 2 else 1.0, 5000))
    assert (found.kind, found.steady_from) == ("warmup", 2)


def test_one_slow_value_is_an_outlier_wherever_it_is() -> None:
    for place in (0, 50, 99):
        found = classify(made(lambda index, place=place: 3.0 if index == place else 1.0))
        assert found.kind == "flat"


def test_a_series_that_becomes_slower_is_a_slowdown_with_a_steady_part() -> None:
    found = classify(made(lambda index: 1.0 if index < 40 else 1.1))
    assert found.kind == "slowdown"
    assert found.steady_from == pytest.approx(40, abs=2)


def test_a_series_that_keeps_getting_slower_is_a_slowdown_without_a_steady_part() -> None:
    found = classify(made(lambda index: 1 + index / 500))
    assert (found.kind, found.steady_from) == ("slowdown", None)


def test_a_series_that_keeps_getting_faster_is_not_steady() -> None:
    found = classify(made(lambda index: 1.2 - index / 500))
    assert (found.kind, found.steady_from) == ("none", None)


def test_a_level_that_came_too_late_is_not_steady() -> None:
    found = classify(made(lambda index: 1.2 if index < 75 else 1.0))
    assert (found.kind, found.steady_from) == ("none", None)
    assert len(found.segments) == 2


@pytest.mark.parametrize("period", [2, 4, 10, 25])
def test_a_series_that_goes_up_and_down_is_cyclic(period: int) -> None:
    found = classify(made(lambda index: 1.1 if index % period < period / 2 else 1.0, 200))
    assert (found.kind, found.steady_from) == ("cyclic", None)


def test_a_cycle_below_the_tolerance_is_flat() -> None:
    values = [1.0 + 0.002 * (index // 5 % 2) for index in range(200)]
    assert classify(values).kind == "flat"


def test_few_values_say_nothing() -> None:
    for count in range(MIN_SAMPLES):
        assert classify([1.0 + index for index in range(count)]).kind == "too_few"
    assert classify([]) == Steadiness("too_few", None, [])
    assert classify([1.0, 3.0]).segments == [(0, 2, 2.0)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_series_with_a_value_that_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        classify([1.0] * 20 + [bad])


def test_the_unit_makes_no_difference() -> None:
    values = made(lambda index: 1.2 if index < 20 else 1.0)
    in_nanoseconds = classify([value * 1e9 for value in values])
    assert in_nanoseconds.kind == "warmup"
    assert in_nanoseconds.steady_from == classify(values).steady_from


def test_segments_cover_the_series_without_gap_and_adjacent_levels_differ() -> None:
    for count in (10, 11, 57, 200, 201, 999, 3000):
        values = made(lambda index, count=count: 2.0 if index < count // 3 else 1.0, count)
        segments = classify(values).segments
        edges = [0, *(end for _, end, _ in segments)]
        assert edges == [*(begin for begin, _, _ in segments), count]


def test_ten_thousand_values_take_little_time() -> None:
    values = made(lambda index: 1 + 5 * math.exp(-index / 500) + index % 7 / 50, 10_000)
    assert cpu_ratio(lambda: classify(values), arithmetic) < 50


def test_the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_ones() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_a_short_disturbance_between_equal_levels_changes_nothing() -> None:
    found = classify(made(lambda index: 3.0 if 100 <= index < 110 else 1.0, 200))
    assert (found.kind, found.steady_from) == ("flat", 0)
    uneven = classify(made(lambda index: 1.0 + max(0, 110 - index if index > 100 else 0), 200))
    assert (uneven.kind, uneven.steady_from) == ("flat", 0)


def test_a_long_disturbance_makes_what_comes_after_it_the_steady_part() -> None:
    found = classify(made(lambda index: 3.0 if 60 <= index < 100 else 1.0, 200))
    assert found.kind == "warmup"
    assert found.steady_from == pytest.approx(100, abs=3)
