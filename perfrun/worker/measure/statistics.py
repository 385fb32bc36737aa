"""Quantiles of a series of times, and the confidence interval of its median.

The interval of the median is that of order statistics, which is exact for independent values of any
distribution (the ranks come from the binomial distribution; David & Nagaraja, Order Statistics,
3rd ed., 7.1). Times of one process are not independent: a slow moment makes its neighbours slow.
So the ranks are moved apart by the square root of the series' correlation time. It is computed from
the signs about the median, on which the median depends, and summed as in Geyer, Practical Markov
Chain Monte Carlo (Statistical Science 7, 1992): as long as pairs of neighbouring lags are positive.
"""

from __future__ import annotations

import math
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

_TAIL = 0.025  # on each side of a 95 % interval
_PAIRS_PER_STRIDE = 32  # pairs of lags that are summed before the stride doubles
# The least number n of independent values whose smallest and largest hold the q-quantile between
# them with 95 %: 1 - q**n - (1-q)**n (David & Nagaraja, 7.1). Of fewer values, it is a guess.
NEEDED = {"p90": 29, "p99": 299}


class Interval(NamedTuple):
    """A 95 % confidence interval of a median."""

    low: float
    high: float


class Distribution(NamedTuple):
    """Figures of a series, in its own unit. None is unknown; `absent` says why."""

    size: int  # values
    minimum: float
    median: float
    mean: float
    deviation: Optional[float]  # standard, of a sample: over n - 1; None for a single value
    p90: Optional[float]
    p99: Optional[float]
    maximum: float
    interval: Optional[Interval]
    correlation: float  # values per independent one; 1 when neighbours are independent
    absent: Dict[str, str]

    @property
    def precision(self) -> Optional[float]:
        """Half the width of the interval, as a share of the median."""
        if self.interval is None or self.median <= 0:
            return None
        return (self.interval.high - self.interval.low) / 2.0 / self.median


def describe(values: Sequence[float]) -> Distribution:
    """Describe a series given in the order in which it was measured; at least one value."""
    ordered = sorted(values)
    count = len(ordered)
    correlation = correlation_time(values, median_of(ordered))
    interval = median_interval(ordered, correlation)
    mean = math.fsum(ordered) / count
    absent = {
        name: "needs %d timed intervals, there are %d" % (needed, count)
        for name, needed in NEEDED.items()
        if count < needed
    }
    if interval is None:
        text = "too few independent values: %d, each %.1f times like its neighbours"
        absent["interval"] = text % (count, correlation)
    return Distribution(
        size=count,
        minimum=ordered[0],
        median=median_of(ordered),
        mean=mean,
        deviation=standard_deviation(ordered, mean),
        p90=None if "p90" in absent else quantile(ordered, 0.90),
        p99=None if "p99" in absent else quantile(ordered, 0.99),
        maximum=ordered[-1],
        interval=interval,
        correlation=correlation,
        absent=absent,
    )


def standard_deviation(values: Sequence[float], mean: float) -> Optional[float]:
    """Return the standard deviation of a sample about its mean; None for a single value."""
    if len(values) < 2:
        return None
    # Rounding may carry a mean past its values; of equal ones the deviation is 0, and not nearly.
    mean = min(max(mean, min(values)), max(values))
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def median_of(ordered: Sequence[float]) -> float:
    """Return the middle of sorted values, or the mean of the middle two."""
    return quantile(ordered, 0.5)


def median(values: Sequence[float]) -> float:
    """Return the median of values in any order."""
    return median_of(sorted(values))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between the two nearest of the sorted values (numpy's default)."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    low, high = ordered[below], ordered[math.ceil(position)]
    # Rounding must not carry it past `high`.
    return min(high, low + (high - low) * (position - below))


def median_interval(ordered: Sequence[float], correlation: float = 1.0) -> Optional[Interval]:
    """Return a 95 % confidence interval of the median, or None for too few values."""
    count = len(ordered)
    rank = _rank(count)
    if rank is None:
        return None
    middle = (count - 1) / 2.0
    below = math.floor(middle - (middle - rank) * math.sqrt(max(1.0, correlation)))
    if below < 0:
        return None
    return Interval(ordered[below], ordered[count - 1 - below])


def _rank(count: int) -> Optional[int]:
    """Return the largest rank j (from 0) such that P(X <= j) <= 2.5 % for X of B(count, 1/2)."""
    if count < 1:
        return None
    below = (count - 1) // 2
    term = math.exp(
        math.lgamma(count + 1)
        - math.lgamma(below + 1)
        - math.lgamma(count - below + 1)
        - count * math.log(2.0)
    )
    # From the middle outwards: half of the distribution lies below it (when count is even, half of
    # what is not the middle term itself).
    probability = 0.5 if count % 2 else (1.0 - term * (count - below) / (below + 1)) / 2.0
    while below >= 0 and probability > _TAIL:
        probability -= term
        term *= below / (count - below + 1.0)
        below -= 1
    return below if below >= 0 else None


def correlation_time(values: Sequence[float], median: float) -> float:
    """Return the number of values that carry the information of one independent value; at least 1.

    The signs about the median are the bits of one large integer, so that a lag costs a shift and
    a count of bits instead of a loop over the values.
    """
    count = len(values)
    signs = "".join(["1" if value > median else "0" for value in values])
    bits, ones = int(signs, 2), signs.count("1")
    share = ones / count
    variance = share * (1.0 - share)
    if variance == 0.0:
        return 1.0  # all values are equal, or none is above the median

    def correlation(lag: int) -> float:
        if lag >= count:
            return 0.0
        both = _ones(bits & (bits >> lag))
        early, late = _ones(bits >> lag), _ones(bits & ((1 << (count - lag)) - 1))
        covariance = both - share * (early + late) + (count - lag) * share * share
        return covariance / count / variance

    total, lag, stride, pairs = 0.0, 0, 1, 0
    while lag < count:
        pair = correlation(lag) + correlation(lag + 1)
        if pair <= 0.0:
            break
        total += pair * stride
        pairs += 1
        lag += 2 * stride
        if pairs % _PAIRS_PER_STRIDE == 0:
            stride *= 2
    return min(float(count), max(1.0, 2.0 * total - 1.0))


def _ones(number: int) -> int:
    return bin(number).count("1")


def thinned(values: Sequence[float], limit: int) -> Tuple[List[float], int]:
    """Return every k-th value, for the least k that leaves at most `limit` values, and k."""
    every = max(1, -(-len(values) // limit))
    return list(values[::every]), every


def grouped(values: Sequence[float], limit: int) -> Tuple[List[float], int]:
    """Return medians of k neighbours, for the least k that leaves at most `limit`, and k."""
    size = max(1, -(-len(values) // limit))
    if size == 1:
        return list(values), 1
    starts = range(0, len(values), size)
    return [median(values[start : start + size]) for start in starts], size
