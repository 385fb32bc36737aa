"""Classification of a series of times: it is steady from some value on, or it is not.

The question and the terms are those of Barrett et al., "Virtual Machine Warmup Blows Hot and Cold"
(OOPSLA 2017, arXiv 1602.00602): cut the series into segments of constant level, call segments
equivalent whose levels hardly differ, and see whether the last level was kept for long enough. The
methods differ, because a benchmark's noise has outliers and autocorrelation, either of which makes
a plain least-squares segmentation find changes that are not there:

* a value far from its neighbours is replaced by their median (Hampel, "The Influence Curve and its
  Role in Robust Estimation", 1974);
* a long series is reduced to medians of equal blocks;
* the cuts are those of Jackson et al., "An Algorithm for Optimal Partitioning of Data on an
  Interval" (2005), and Killick et al., "Optimal Detection of Changepoints With a Linear
  Computational Cost" (2012, PELT); the penalty for a change is our own: it grows with the noise's
  long-run variance, which counts autocorrelation;
* up to a tenth of the values between two equal levels is a disturbance, not a change of level.

The constants are chosen by `simulations/steadiness.py`; docs/research/measurement.md has its table.
"""

from __future__ import annotations

import math
from operator import mul
from typing import List, NamedTuple, Optional, Sequence, Tuple

from perfrun.worker.measure.statistics import median

TOLERANCE = 0.01  # relative; levels that differ by less are the same
BURST_SHARE = 0.1  # of all samples, at most, in a disturbance between two equal levels
_MIN_SEGMENT = 3  # blocks
_PENALTY = 4.5  # per change, times log(blocks) and the long-run variance
_MAX_CORRELATION = 0.7  # of neighbours; a higher one is taken for a change of level
_OUTLIER = 3.0  # standard deviations from the running median
_WINDOW = 7  # values in the running median
_NOISE_FLOOR = 5e-4  # relative; clocks and short series make noise look smaller than it is
_TO_SIGMA = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
MIN_SAMPLES = 10  # fewer cannot be classified
STEADY_SHARE = 0.4  # of all samples, at least, in the last segment
_MAX_BLOCKS = 200
_HEAD = 5.0  # standard deviations by which a slow start stands out
_SLOPE = 4.0  # standard errors above which a slope is no accident
_CYCLE = 4.0  # the same for the autocorrelation of a cycle
_SHORT_CYCLE = 40  # longest cycle that is sought in the single values
Segment = Tuple[int, int, float]


class SeriesNoise:
    """Noise of a series that may have changes of level, from differences of neighbours.

    For AR(1) noise with correlation r, differences of neighbours have variance 2 s^2 (1 - r) and
    those over two steps 2 s^2 (1 - r^2), so their ratio is 1 + r. The variance of a mean of k
    values then is s^2 / k times (1 + r) / (1 - r).
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
    """Return the standard deviation of the differences over `lag` values; large ones are cut.

    The median deviation is robust but coarse, so it only sets the limit at which they are cut.
    """
    steps = [after - before for before, after in zip(values, values[lag:])]
    limit = _OUTLIER * _TO_SIGMA * median([abs(step) for step in steps])
    inner = [min(max(step, -limit), limit) for step in steps]
    return math.sqrt(sum(map(mul, inner, inner)) / len(inner))


def without_outliers(values: List[float]) -> List[float]:
    """Replace each value that is far from the median of its neighbours by that median."""
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
    """Return the indices at which levels begin and end, first and last included.

    This is optimal partitioning (Jackson et al. 2005) of squared errors with the pruning of PELT
    (Killick et al. 2012): the least sum of squares plus a penalty for each change.
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
    """Remove the cuts between neighbours with equal levels, the most similar ones first."""
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
    """Return the relative difference of two levels."""
    smaller = min(abs(one), abs(other))
    if one == other:
        return 0.0
    return abs(one - other) / smaller if smaller else math.inf


def without_bursts(values: List[float], cuts: List[int]) -> List[int]:
    """Remove the cuts around short segments between two equal levels, or at the very end.

    The shortest goes first, because it may have divided a segment that is long enough.
    """
    sigma = SeriesNoise(values).sigma
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
    """Return True when two levels differ by no more than the tolerance or the noise."""
    is_within_noise = abs(levels[one] - levels[other]) <= sigma
    return is_within_noise or relative_gap(levels[one], levels[other]) <= TOLERANCE


"""Begin, end (exclusive) and median."""


class Steadiness(NamedTuple):
    """The kind of a series, the index from which on it is steady, and its segments.

    `kind` is one of

    * `flat`: one level from the first value to the last;
    * `warmup`: slower at first (or in between), then steady at its fastest level;
    * `slowdown`: it ends slower than it was before: steady at that level, or still getting slower;
    * `cyclic`: it goes up and down between levels;
    * `none`: no steady state, as when the last level is kept for less than 40 % of the values, or
      is still falling;
    * `too_few`: fewer than `MIN_SAMPLES` values.

    `steady_from` is None when the series is nowhere steady. `segments` are the parts of constant
    level, in units of the values given.
    """

    kind: str
    steady_from: Optional[int]
    segments: List[Segment]


def classify(times: Sequence[float]) -> Steadiness:
    """Classify a series of times in any unit; all must be finite (ValueError).

    10,000 values take less than 0.1 s.
    """
    values = [float(time) for time in times]
    if not all(map(math.isfinite, values)):
        raise ValueError("a series of times must hold finite numbers only")
    if len(values) < MIN_SAMPLES:
        whole = [(0, len(values), median(values))] if values else []
        return Steadiness("too_few", None, whole)
    calm = without_outliers(values)
    edges = _edges(len(calm))
    blocks = [median(calm[begin:end]) for begin, end in zip(edges, edges[1:])]
    cuts = merge_equivalent(blocks, find_cuts(blocks, SeriesNoise(blocks).long_run ** 2))
    if _is_cycle(calm, blocks, cuts):
        return Steadiness("cyclic", None, _segments(calm, [edges[number] for number in cuts]))
    cuts = without_bursts(blocks, cuts)
    segments = _segments(calm, [edges[number] for number in cuts])
    return _classify_segments(_split_slow_start(values, segments, SeriesNoise(calm).sigma), calm)


def _edges(count: int) -> List[int]:
    """Return the edges of blocks: as many blocks as values, but at most `_MAX_BLOCKS`."""
    blocks = min(count, _MAX_BLOCKS)
    return [number * count // blocks for number in range(blocks + 1)]


def _segments(values: Sequence[float], cuts: Sequence[int]) -> List[Segment]:
    return [(begin, end, median(values[begin:end])) for begin, end in zip(cuts, cuts[1:])]


def _split_slow_start(
    values: Sequence[float], segments: List[Segment], sigma: float
) -> List[Segment]:
    """Give slow first values a segment of their own, if they are too few to show as blocks.

    One value is not enough: it may be an outlier.
    """
    begin, end, level = segments[0]
    limit = max(level + _HEAD * sigma, level * (1 + TOLERANCE))
    first = begin
    while first < end and values[first] > limit:
        first += 1
    if first < 2 or first == end:
        return segments
    return _segments(values, [begin, first, end]) + segments[1:]


def _classify_segments(segments: List[Segment], calm: List[float]) -> Steadiness:
    begin, end, level = segments[-1]
    is_long = end - begin >= STEADY_SHARE * len(calm)
    slope = _direction(calm[begin:end])
    steady_from = _steady_begin(calm, begin) if is_long else None
    others = [old for _, _, old in segments[:-1] if relative_gap(old, level) > TOLERANCE]
    slower, faster = any(old > level for old in others), any(old < level for old in others)
    if steady_from is None:
        # The slope decides for a single segment; the levels decide for several, unless it falls.
        rising = slope > 0 if len(segments) == 1 else faster and not slower and slope >= 0
        return Steadiness("slowdown" if rising else "none", None, segments)
    if faster:
        return Steadiness("slowdown", steady_from, segments)
    return Steadiness("warmup" if slower else "flat", steady_from, segments)


def _steady_begin(calm: List[float], begin: int) -> Optional[int]:
    """Return the index after which the last segment has no slope: its begin or a quarter of it."""
    least = STEADY_SHARE * len(calm)
    for quarters in range(3):
        start = begin + quarters * (len(calm) - begin) // 4
        if len(calm) - start >= least and _direction(calm[start:]) == 0:
            return start
    return None


def _direction(values: Sequence[float]) -> int:
    """Return 1 or -1 for a series that clearly rises or falls, by more than the tolerance; else 0.

    The slope is that of Theil and Sen: the median slope of all pairs, here of up to 60 medians.
    """
    count = min(len(values), 60)
    edges = [number * len(values) // count for number in range(count + 1)]
    points = [median(values[begin:end]) for begin, end in zip(edges, edges[1:])]
    slopes = [
        (points[right] - points[left]) / (right - left)
        for left in range(count)
        for right in range(left + 1, count)
    ]
    if not slopes:
        return 0
    slope = median(slopes)
    error = SeriesNoise(points).long_run * math.sqrt(12.0 / count**3)
    rise = slope * count
    if abs(slope) <= _SLOPE * error or abs(rise) <= TOLERANCE * abs(median(points)):
        return 0
    return 1 if rise > 0 else -1


def _is_cycle(calm: List[float], blocks: List[float], cuts: List[int]) -> bool:
    """Return True when values repeat after a fixed number of steps, or levels alternate."""
    if _repeats(calm, _SHORT_CYCLE):
        return True
    if len(blocks) < len(calm) and _repeats(blocks, len(blocks) // 3):
        return True
    is_long = cuts[-1] - cuts[-2] >= STEADY_SHARE * len(blocks)
    return not is_long and _alternates(blocks, cuts)


def _alternates(values: List[float], cuts: List[int]) -> bool:
    """Return True when at least five segments alternate between two sets of levels."""
    levels = [median(values[begin:end]) for begin, end in zip(cuts, cuts[1:])]
    if len(levels) < 5:
        return False
    one, other = levels[::2], levels[1::2]
    return min(one) > max(other) or min(other) > max(one)


def _repeats(values: Sequence[float], longest: int) -> bool:
    """Return True when the autocorrelation falls and then clearly rises within `longest` steps."""
    count = len(values)
    ordered = sorted(values)
    # The extremes are cut: two bursts are not a cycle.
    low, high = ordered[count // 20], ordered[-1 - count // 20]
    inner = [min(max(value, low), high) for value in values]
    middle = sum(inner) / count
    parts = [value - middle for value in inner]
    power = sum(map(mul, parts, parts))
    if not power or math.sqrt(power / count) < TOLERANCE / 2 * abs(middle):
        return False  # any cycle is below the tolerance
    lowest = 1.0
    limit = _CYCLE / math.sqrt(count)
    for lag in range(1, min(longest, count // 3) + 1):
        share = sum(map(mul, parts, parts[lag:])) / power
        if share > limit and share - lowest > 1.5 * limit:
            return True
        lowest = min(lowest, share)
    return False
