"""The little arithmetic that a paired measurement needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from perfrun.analysis.stats import exact_median_interval


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The middle and the ends of some values."""

    median: float
    low: float
    high: float
    count: int


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

    With fewer than six values none does that is narrower than all of them; then it is their range.
    """
    found = exact_median_interval(values)
    return (found.low, found.high) if found else (min(values), max(values))
