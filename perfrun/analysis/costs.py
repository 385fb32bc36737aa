"""Compute the cost of a million items from the price of an hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfrun.analysis.stats import median, median_interval

SECONDS_AN_HOUR = 3600.0
MILLION = 1e6


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A median over trials with its 95 % interval; a single trial has no interval."""

    median: float
    low: float | None
    high: float | None
    trials: int


def figure(values: Sequence[float]) -> Figure | None:
    """Return the figure of the trials' values; None without values."""
    if not values:
        return None
    interval = median_interval(values)
    return Figure(
        median=median(values),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        trials=len(values),
    )


def cost_per_million(price_per_hour: float, throughput: Figure) -> Figure | None:
    """Return the price of a million items at a throughput in items per second.

    `price / 3600 / throughput * 1e6`, in the currency of the price; the ends of the interval change
    places, since more throughput costs less. None where the throughput is not positive.
    """
    if throughput.median <= 0:
        return None
    per_second = price_per_hour / SECONDS_AN_HOUR * MILLION
    low, high = throughput.low, throughput.high
    known = low is not None and high is not None and low > 0
    return Figure(
        median=per_second / throughput.median,
        low=per_second / high if known and high else None,
        high=per_second / low if known and low else None,
        trials=throughput.trials,
    )
