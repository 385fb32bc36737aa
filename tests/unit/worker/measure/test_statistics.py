"""Quantiles and the median's interval: against definitions, and by coverage on known series."""

from __future__ import annotations

import math
import random
import statistics
from fractions import Fraction

import numpy
import pytest
from cputime import arithmetic, cpu_ratio
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.worker.measure.statistics import (
    NEEDED,
    correlation_time,
    describe,
    grouped,
    median_interval,
    quantile,
    thinned,
)

times = st.floats(min_value=1e-9, max_value=1e4)
series = st.lists(times, min_size=1, max_size=310)


@given(series, st.floats(min_value=0, max_value=1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    ours = quantile(sorted(values), share)
    assert ours == pytest.approx(float(numpy.quantile(values, share)), rel=1e-9)


@given(st.lists(times, min_size=2, max_size=310))
def test_the_standard_deviation_is_that_of_a_sample(values: list[float]) -> None:
    found = describe(values)
    expected = pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-9 * max(values))
    assert found.deviation == expected
    assert describe(values[:1]).deviation is None
    assert describe([values[0]] * 30).deviation == 0.0


@given(series)
def test_the_figures_are_in_their_natural_order(values: list[float]) -> None:
    found = describe(values)
    assert found.size == len(values)
    present = [found.minimum, found.median, found.p90, found.p99, found.maximum]
    ordered = [value for value in present if value is not None]
    assert ordered == sorted(ordered)
    assert found.minimum * (1 - 1e-12) <= found.mean <= found.maximum * (1 + 1e-12)
    if found.interval:
        assert found.minimum <= found.interval.low <= found.median <= found.interval.high
        assert found.interval.high <= found.maximum
    assert 1 <= found.correlation <= max(1, len(values))


@given(series)
def test_what_is_left_out_is_explained(values: list[float]) -> None:
    found = describe(values)
    missing = {n for n in ("p90", "p99", "interval") if getattr(found, n) is None}
    assert set(found.absent) == missing
    assert (found.p99 is None) == (len(values) < 299)


def exact_rank(count: int) -> int | None:
    """By whole numbers: the largest j with P(X <= j) <= 2.5 % for X of B(count, 1/2)."""
    total, best = 0, None
    for j in range(count):
        total += math.comb(count, j)
        if Fraction(total, 2**count) > Fraction(25, 1000):
            break
        best = j
    return best


@pytest.mark.parametrize("count", [*range(1, 60), 100, 101, 999, 1000])
def test_the_ranks_are_exactly_the_binomial_distributions(count: int) -> None:
    rank = exact_rank(count)
    found = median_interval([float(value) for value in range(count)])
    if rank is None:
        assert found is None
    else:
        assert found == (rank, count - 1 - rank)


def test_five_values_are_too_few_for_an_interval_and_six_are_not() -> None:
    assert describe([1.0, 2.0, 3.0, 2.0, 1.0]).interval is None
    assert "too few" in describe([1.0] * 5).absent["interval"]
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)


def autoregressive(count: int, memory: float, noise: random.Random) -> list[float]:
    value = noise.gauss(0, 1 / math.sqrt(1 - memory**2))
    values = []
    for _ in range(count):
        value = memory * value + noise.gauss(0, 1)
        values.append(100 + value)
    return values


@pytest.mark.parametrize(
    ("count", "memory", "least"),
    [(30, 0.0, 0.93), (100, 0.3, 0.91), (100, 0.6, 0.90), (1000, 0.9, 0.90)],
)
def test_the_interval_covers_the_median_also_when_neighbours_are_alike(
    count: int, memory: float, least: float
) -> None:
    noise = random.Random(20261121)
    found = [describe(autoregressive(count, memory, noise)).interval for _ in range(400)]
    covered = [interval.low <= 100 <= interval.high for interval in found if interval]
    assert len(covered) > 390
    assert sum(covered) / len(covered) >= least


def test_without_the_correlation_the_interval_would_be_far_too_narrow() -> None:
    # The test above must be able to fail: this is what plain order statistics claim.
    noise = random.Random(20261121)
    found = [median_interval(sorted(autoregressive(1000, 0.9, noise))) for _ in range(200)]
    assert (
        sum(interval is not None and interval.low <= 100 <= interval.high for interval in found)
        < 130
    )


def test_independent_values_count_as_one_each_and_a_drift_as_next_to_nothing() -> None:
    noise = random.Random(1)
    values = [noise.random() for _ in range(2000)]
    assert correlation_time(values, 0.5) < 1.6
    assert describe([float(value) for value in range(1, 2001)]).interval is None
    assert correlation_time([1.0] * 50, 1.0) == 1.0


def test_ten_thousand_values_are_described_in_no_time() -> None:
    noise = random.Random(2)
    values = [noise.lognormvariate(0, 0.1) for _ in range(10_000)]
    assert cpu_ratio(lambda: describe(values), arithmetic) < 10


@given(st.lists(times, min_size=1, max_size=500), st.integers(1, 100))
@settings(max_examples=50)
def test_a_long_series_is_thinned_or_grouped_to_the_limit(values: list[float], limit: int) -> None:
    kept, every = thinned(values, limit)
    assert len(kept) <= limit
    assert kept == values[::every]
    medians, size = grouped(values, limit)
    assert len(medians) <= limit
    assert min(values) <= min(medians) <= max(medians) <= max(values)
    if len(values) <= limit:
        assert kept == medians == values
        assert every == size == 1


@pytest.mark.parametrize(("name", "share"), [("p90", 0.90), ("p99", 0.99)])
def test_a_quantile_is_given_from_where_on_the_values_enclose_it_with_95_percent(
    name: str, share: float
) -> None:
    def enclosed(count: int) -> float:
        return 1 - share**count - (1 - share) ** count

    assert enclosed(NEEDED[name]) >= 0.95 > enclosed(NEEDED[name] - 1)
    values = [float(value) for value in range(NEEDED[name])]
    assert getattr(describe(values), name) is not None
    assert getattr(describe(values[1:]), name) is None
