"""The cost of a million items."""

from __future__ import annotations

import pytest

from perfrun.analysis.costs import Figure, cost_per_million, figure


def test_a_million_items_at_a_hundred_a_second_cost_ten_thousand_seconds() -> None:
    throughput = Figure(median=100.0, low=80.0, high=125.0, trials=8)
    cost = cost_per_million(3.6, throughput)
    assert cost is not None
    assert cost.median == pytest.approx(10.0)  # 3.6 an hour is 0.001 a second
    # Dearer when slower: the ends change places.
    assert (cost.low, cost.high) == (pytest.approx(8.0), pytest.approx(12.5))
    assert cost.trials == 8


def test_without_an_interval_of_the_throughput_there_is_none_of_the_cost() -> None:
    cost = cost_per_million(1.0, Figure(median=50.0, low=None, high=None, trials=1))
    assert cost is not None
    assert (cost.low, cost.high) == (None, None)
    below = cost_per_million(1.0, Figure(median=50.0, low=-1.0, high=60.0, trials=2))
    assert below is not None
    assert (below.low, below.high) == (None, None)


def test_no_throughput_has_no_price() -> None:
    assert cost_per_million(1.0, Figure(median=0.0, low=None, high=None, trials=1)) is None


def test_a_figure_has_its_median_and_an_interval_from_two_trials_up() -> None:
    assert figure([]) is None
    one = figure([2.0])
    assert one == Figure(median=2.0, low=None, high=None, trials=1)
    several = figure([1.0, 2.0, 3.0, 2.0, 2.5, 1.5])
    assert several is not None
    assert several.median == 2.0
    assert several.low is not None
    assert several.high is not None
    assert several.low <= 2.0 <= several.high
