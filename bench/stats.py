"""The little arithmetic that a paired measurement needs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The middle and the ends of some values."""

    median: float
    low: float
    high: float
    count: int


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the middle two. Raises ValueError on none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def spread(values: Sequence[float]) -> Spread:
    """Return median, smallest and largest."""
    return Spread(median=median(values), low=min(values), high=max(values), count=len(values))


def ratios(values: Sequence[float], references: Sequence[float]) -> tuple[float, ...]:
    """Divide each value by the reference that was measured beside it.

    Pairwise: what slows the machine down for a while falls on both sides of a pair.
    """
    return tuple(value / reference for value, reference in zip(values, references, strict=True))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval that covers the true median at least 95 times in 100.

    From order statistics: the number of values below the true median is binomial with p = 1/2,
    whatever the distribution (Conover, Practical Nonparametric Statistics, section 3.2). With
    fewer than six values no such interval is narrower than all of them; then it is their range.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, left_out = 0.0, 0
    while left_out < count // 2:
        outside += 2 * math.comb(count, left_out) / 2**count
        if outside > 0.05:
            break
        left_out += 1
    left_out = max(0, left_out - 1)
    return ordered[left_out], ordered[count - 1 - left_out]
