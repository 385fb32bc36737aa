"""Figures over readings that are not kept: each takes one reading at a time and stays small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfrun.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Span:
    """A sampled figure: smallest, mean, largest."""

    low: float
    mean: float
    high: float


class RunningSpan:
    """Smallest, mean and largest of the values that are known."""

    def __init__(self) -> None:
        self._low = self._high = self._total = 0.0
        self._count = 0

    def add(self, value: float | None) -> None:
        """Take one value; None is no value."""
        if value is None:
            return
        self._low = min(self._low, value) if self._count else value
        self._high = max(self._high, value) if self._count else value
        self._total += value
        self._count += 1

    def span(self) -> Span | None:
        """Return the figures; None when no value was known."""
        if not self._count:
            return None
        return Span(low=self._low, mean=self._total / self._count, high=self._high)


class RunningShares:
    """How often each name was there, of the times at which names were known."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._known = 0

    def add(self, names: tuple[str, ...] | None) -> None:
        """Take the names of one moment; None when they are not known."""
        if names is not None:
            self._counts.update(set(names))
            self._known += 1

    def shares(self) -> Mapping[str, float] | None:
        """Return the share of each name, 0 to 1; None when names were never known."""
        if not self._known:
            return None
        return {name: self._counts[name] / self._known for name in sorted(self._counts)}


class RunningIntegral:
    """A value over time, by trapezoids between the moments at which it is known."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._total = 0.0
        self._is_known = False

    def add(self, at_s: float, value: float | None) -> None:
        """Take the value of one moment; None when it is not known."""
        if value is None:
            return
        if self._last is not None:
            before_s, before = self._last
            self._total += (at_s - before_s) * (before + value) / 2
            self._is_known = True
        self._last = at_s, value

    def total(self) -> float | None:
        """Return the integral; None without two moments."""
        return self._total if self._is_known else None
