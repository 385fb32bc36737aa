"""Whether a series of iteration times came to a steady state, and from where on.

The question and the words are those of Barrett et al., "Virtual Machine Warmup Blows Hot and
Cold" (OOPSLA 2017, arXiv 1602.00602): cut the series into segments of constant level, call
segments equivalent whose levels hardly differ, and see whether the last level was kept for long
enough. The ways are other ones, because a benchmark's noise has outliers and a memory, either of
which makes a plain least-squares segmentation find changes that are not there:

* a value far from its neighbours gives way to their median (Hampel's filter);
* long series are taken as medians of equal blocks;
* the penalty for a change grows with the noise's long-run variance, which counts autocorrelation;
* a tenth of the values between two equal levels is a disturbance, not a change of level.

The constants are chosen by `simulations/steadiness.py`; docs/measurement.md has its table.
"""

from __future__ import annotations

import math
from operator import mul
from typing import List, NamedTuple, Optional, Sequence, Tuple

from perfrun.worker.distribution import median
from perfrun.worker.segments import (
    TOLERANCE,
    Noise,
    find_cuts,
    merge_equivalent,
    relative_gap,
    without_bursts,
    without_outliers,
)

MIN_SAMPLES = 10  # fewer say nothing
STEADY_SHARE = 0.4  # of all samples, at least, in the last segment
_MAX_BLOCKS = 200
_HEAD = 5.0  # standard deviations by which a slow start stands out
_SLOPE = 4.0  # standard errors from which a slope is no accident
_CYCLE = 4.0  # the same for the autocorrelation of a cycle
_SHORT_CYCLE = 40  # longest cycle looked for in the single values

Segment = Tuple[int, int, float]
"""Begin, end (exclusive) and median."""


class Steadiness(NamedTuple):
    """What kind of series it was.

    `kind` is one of

    * `flat`: one level from the first value to the last;
    * `warmup`: slower at first (or in between), then steady at its fastest level;
    * `slowdown`: it ends slower than it was before: steady at that level, or still getting slower;
    * `cyclic`: it goes up and down between levels;
    * `none`: no steady state, as when the last level is kept for less than 40 % of the values, or
      is still falling;
    * `too_few`: fewer than `MIN_SAMPLES` values.

    `steady_from` is the index from which on the series is steady, None when it is nowhere.
    `segments` are the parts of constant level, in units of the values given.
    """

    kind: str
    steady_from: Optional[int]
    segments: List[Segment]


def classify(times: Sequence[float]) -> Steadiness:
    """Say what kind of series `times` is. Any unit; all values must be finite (ValueError).

    Takes less than 0.1 s for 10,000 values.
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
    cuts = merge_equivalent(blocks, find_cuts(blocks, Noise(blocks).long_run ** 2))
    if _is_cycle(calm, blocks, cuts):
        return Steadiness("cyclic", None, _segments(calm, [edges[number] for number in cuts]))
    cuts = without_bursts(blocks, cuts)
    segments = _segments(calm, [edges[number] for number in cuts])
    return _judge(_split_slow_start(values, segments, Noise(calm).sigma), calm)


def _edges(count: int) -> List[int]:
    """Where blocks begin and end: as many blocks as values, but not more than `_MAX_BLOCKS`."""
    blocks = min(count, _MAX_BLOCKS)
    return [number * count // blocks for number in range(blocks + 1)]


def _segments(values: Sequence[float], cuts: Sequence[int]) -> List[Segment]:
    return [(begin, end, median(values[begin:end])) for begin, end in zip(cuts, cuts[1:])]


def _split_slow_start(
    values: Sequence[float], segments: List[Segment], sigma: float
) -> List[Segment]:
    """Give slow first values a segment of their own, if they are too few to be seen as blocks.

    One value is not enough: that may be any outlier.
    """
    begin, end, level = segments[0]
    limit = max(level + _HEAD * sigma, level * (1 + TOLERANCE))
    first = begin
    while first < end and values[first] > limit:
        first += 1
    if first < 2 or first == end:
        return segments
    return _segments(values, [begin, first, end]) + segments[1:]


def _judge(segments: List[Segment], calm: List[float]) -> Steadiness:
    begin, end, level = segments[-1]
    is_long = end - begin >= STEADY_SHARE * len(calm)
    slope = _direction(calm[begin:end])
    steady_from = _steady_begin(calm, begin) if is_long else None
    slower = [
        old for _, _, old in segments[:-1] if old > level and relative_gap(old, level) > TOLERANCE
    ]
    faster = [
        old for _, _, old in segments[:-1] if old < level and relative_gap(old, level) > TOLERANCE
    ]
    if steady_from is None:
        # A slope of the last segment counts as the way it goes on; without, the levels do.
        rising = slope > 0 if len(segments) == 1 else bool(faster) and not slower and slope >= 0
        return Steadiness("slowdown" if rising else "none", None, segments)
    if faster:
        return Steadiness("slowdown", steady_from, segments)
    return Steadiness("warmup" if slower else "flat", steady_from, segments)


def _steady_begin(calm: List[float], begin: int) -> Optional[int]:
    """Where the last segment has no slope any more: at its begin, or after its first quarters."""
    least = STEADY_SHARE * len(calm)
    for quarters in range(3):
        start = begin + quarters * (len(calm) - begin) // 4
        if len(calm) - start >= least and _direction(calm[start:]) == 0:
            return start
    return None


def _direction(values: Sequence[float]) -> int:
    """Return 1 or -1 for a series that clearly rises or falls, by more than the tolerance; else 0.

    The slope is Theil and Sen's: the median of the slopes of all pairs, here of up to 60 medians.
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
    error = Noise(points).long_run * math.sqrt(12.0 / count**3)
    rise = slope * count
    if abs(slope) <= _SLOPE * error or abs(rise) <= TOLERANCE * abs(median(points)):
        return 0
    return 1 if rise > 0 else -1


def _is_cycle(calm: List[float], blocks: List[float], cuts: List[int]) -> bool:
    """Whether values repeat after a fixed number of steps, or levels go up and down by turns."""
    if _repeats(calm, _SHORT_CYCLE):
        return True
    if len(blocks) < len(calm) and _repeats(blocks, len(blocks) // 3):
        return True
    is_long = cuts[-1] - cuts[-2] >= STEADY_SHARE * len(blocks)
    return not is_long and _alternates(blocks, cuts)


def _alternates(values: List[float], cuts: List[int]) -> bool:
    """Whether at least five segments go up and down between two sets of levels."""
    levels = [median(values[begin:end]) for begin, end in zip(cuts, cuts[1:])]
    if len(levels) < 5:
        return False
    one, other = levels[::2], levels[1::2]
    return min(one) > max(other) or min(other) > max(one)


def _repeats(values: Sequence[float], longest: int) -> bool:
    """Whether the autocorrelation falls and then rises clearly again within `longest` steps."""
    count = len(values)
    ordered = sorted(values)
    low, high = ordered[count // 20], ordered[-1 - count // 20]  # two bursts are no cycle
    inner = [min(max(value, low), high) for value in values]
    middle = sum(inner) / count
    parts = [value - middle for value in inner]
    power = sum(map(mul, parts, parts))
    if not power or math.sqrt(power / count) < TOLERANCE / 2 * abs(middle):
        return False  # what may repeat is below the tolerance
    lowest = 1.0
    limit = _CYCLE / math.sqrt(count)
    for lag in range(1, min(longest, count // 3) + 1):
        share = sum(map(mul, parts, parts[lag:])) / power
        if share > limit and share - lowest > 1.5 * limit:
            return True
        lowest = min(lowest, share)
    return False
