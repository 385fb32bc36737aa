"""Cut a series of times into parts of constant level, whatever noise lies on it.

Sources: Hampel, "The Influence Curve and its Role in Robust Estimation" (1974), for outliers;
Jackson et al., "An Algorithm for Optimal Partitioning of Data on an Interval" (2005), and Killick
et al., "Optimal Detection of Changepoints With a Linear Computational Cost" (2012, PELT), for the
cuts. What is our own is the penalty: it counts the noise's memory.
"""

from __future__ import annotations

import math
from operator import mul
from typing import List, Sequence

from perfrun.worker.distribution import median

TOLERANCE = 0.01  # relative; levels that differ by less are the same
BURST_SHARE = 0.1  # of all samples, at most, in a disturbance between two equal levels
_MIN_SEGMENT = 3  # blocks
_PENALTY = 4.5  # per change, times log(blocks) and the long-run variance
_MAX_CORRELATION = 0.7  # of neighbours; what looks like more is taken for a change of level
_OUTLIER = 3.0  # standard deviations from the running median
_WINDOW = 7  # values in the running median
_NOISE_FLOOR = 5e-4  # relative; clocks and short series make noise look smaller than it is
_TO_SIGMA = 1.4826  # standard deviation of a normal distribution, in median absolute deviations


class Noise:
    """Noise of a series that may have changes of level, from differences of neighbours.

    For noise in which each value remembers the share r of the one before, differences of
    neighbours have variance 2 s^2 (1 - r) and those over two steps 2 s^2 (1 - r^2), so their ratio
    is 1 + r. The variance of a mean of k values then is s^2 / k times (1 + r) / (1 - r).
    """

    def __init__(self, values: Sequence[float]) -> None:
        one, two = _spread_over(values, 1), _spread_over(values, 2)
        ratio = (two / one) ** 2 if one > 0 else 1.0
        self.correlation = min(max(ratio - 1.0, 0.0), _MAX_CORRELATION)
        self.sigma = max(_floor(values), one / math.sqrt(2 * (1 - self.correlation)))
        inflation = (1 + self.correlation) / (1 - self.correlation)
        self.long_run = self.sigma * math.sqrt(inflation)


def _floor(values: Sequence[float]) -> float:
    return _NOISE_FLOOR * abs(median(values)) or 1e-12


def _spread_over(values: Sequence[float], lag: int) -> float:
    """Standard deviation of the differences over `lag` steps, steps of level not counted in full.

    The median deviation is robust but coarse; it only says from where on to pull steps in.
    """
    steps = [after - before for before, after in zip(values, values[lag:])]
    limit = _OUTLIER * _TO_SIGMA * median([abs(step) for step in steps])
    inner = [min(max(step, -limit), limit) for step in steps]
    return math.sqrt(sum(map(mul, inner, inner)) / len(inner))


def without_outliers(values: List[float]) -> List[float]:
    """Put the median of its neighbours in the place of each value that is far from it."""
    steps = [abs(after - before) for before, after in zip(values, values[1:])]
    reach = _OUTLIER * max(_TO_SIGMA * median(steps) / math.sqrt(2), _floor(values))
    half = _WINDOW // 2
    last = len(values) - _WINDOW
    calm = []
    for index, value in enumerate(values):
        begin = min(max(index - half, 0), last)
        middle = sorted(values[begin : begin + _WINDOW])[half]
        calm.append(value if abs(value - middle) <= reach else middle)
    return calm


def find_cuts(values: List[float], variance: float) -> List[int]:
    """Return where levels begin and end, first and last included.

    Optimal partitioning (Jackson et al. 2005) of squared errors, with the pruning of PELT (Killick
    et al. 2012): the least sum of squares plus a penalty for each change.
    """
    count = len(values)
    centre = median(values)
    sums, squares = [0.0], [0.0]
    for value in values:
        sums.append(sums[-1] + value - centre)
        squares.append(squares[-1] + (value - centre) ** 2)
    penalty = _PENALTY * math.log(count) * variance
    best = [-penalty] + [math.inf] * count
    before = [0] * (count + 1)
    open_begins = [0]
    for end in range(_MIN_SEGMENT, count + 1):
        costs = []
        for begin in open_begins:
            total = sums[end] - sums[begin]
            error = squares[end] - squares[begin] - total * total / (end - begin)
            costs.append(best[begin] + error)
        least = min(costs)
        best[end] = least + penalty
        before[end] = open_begins[costs.index(least)]
        limit = best[end]
        open_begins = [b for b, cost in zip(open_begins, costs) if cost <= limit]
        if end + 1 - _MIN_SEGMENT >= _MIN_SEGMENT:
            open_begins.append(end + 1 - _MIN_SEGMENT)
    cuts = [count]
    while cuts[-1]:
        cuts.append(before[cuts[-1]])
    return cuts[::-1]


def merge_equivalent(values: List[float], cuts: List[int]) -> List[int]:
    """Take out the cuts between neighbours whose levels are the same, the most alike first."""
    cuts = list(cuts)
    while len(cuts) > 2:
        levels = [median(values[begin:end]) for begin, end in zip(cuts, cuts[1:])]
        gaps = [relative_gap(left, right) for left, right in zip(levels, levels[1:])]
        least = min(gaps)
        if least > TOLERANCE:
            break
        del cuts[gaps.index(least) + 1]
    return cuts


def relative_gap(one: float, other: float) -> float:
    """Relative difference of two levels."""
    smaller = min(abs(one), abs(other))
    if one == other:
        return 0.0
    return abs(one - other) / smaller if smaller else math.inf


def without_bursts(values: List[float], cuts: List[int]) -> List[int]:
    """Drop the cuts around what lies between two equal levels, or at the very end, and is short.

    The shortest goes first, because what it parted may be long enough for the next.
    """
    sigma = Noise(values).sigma
    most = BURST_SHARE * len(values)
    cuts = list(cuts)
    while True:
        levels = [median(values[begin:end]) for begin, end in zip(cuts, cuts[1:])]
        last = len(levels) - 1
        bursts = [
            (cuts[after] - cuts[before + 1], before, after)
            for before in range(last)
            for after in range(before + 2, last + 1)
            if cuts[after] - cuts[before + 1] <= most and _same(levels, before, after, sigma)
        ]
        if last and cuts[-1] - cuts[-2] <= most:
            bursts.append((cuts[-1] - cuts[-2], last - 1, last))
        if not bursts:
            return cuts
        _, before, after = min(bursts)
        del cuts[before + 1 : after + 1]


def _same(levels: List[float], one: int, other: int, sigma: float) -> bool:
    """Whether two levels differ by no more than the tolerance, or than single values do."""
    is_within_noise = abs(levels[one] - levels[other]) <= sigma
    return is_within_noise or relative_gap(levels[one], levels[other]) <= TOLERANCE
