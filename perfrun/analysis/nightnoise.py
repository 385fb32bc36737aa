"""Level and noise of the nights before a change, estimated so that outliers hardly move them.

* The level is an M-estimate (Huber, Annals of Mathematical Statistics 35, 1964).
* A night far out counts as two standard deviations; as three where nights resemble those before
  them, because such a series tells little else, and no night was ever that far.
* Nights are taken as AR(1). Their memory is taken larger than it looks, because in short series it
  looks too small.

The constants are chosen by `simulations/detect.py`; docs/detecting.md has its table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BEFORE = 60  # nights that say what was before, at most
_REACH = 2.1  # standard deviations; what is farther out counts as this
_MOST_REACH = 3.0  # the same where nights have a memory and none was farther out than `_TELLING`
_TELLING = 3.2
_RARE, _COMMON = 0.017, 0.03  # shares of such nights from which on reach is the largest, the least
_WEAK, _STRONG = 0.15, 0.35  # memory from which on reach is the least, the largest
_FAR = 4.0  # standard deviations from which a night is an outlier
_MEMORY_MARGIN = 6.0  # by which the memory is taken larger, over the number of nights
_MOST_MARGIN = 0.25
_MOST_MEMORY = 0.8
FLOOR = 5e-4  # relative; clocks make noise look smaller than it is
TO_SIGMA = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
_INNER = 0.6  # weight of the bulk in the spread


class Past(NamedTuple):
    """For each end (exclusive) of the nights before: their level and noise."""

    level: Floats
    scale: Floats  # standard deviation of the bulk of single nights
    spread: Floats  # standard deviation of nights that are cut off at `_REACH`, in scales
    memory: Floats
    fresh: Floats  # variance of what is new in a night, in variances of a night
    nights: Floats  # that the level rests on
    noise_nights: Floats  # that the noise rests on
    reach: Floats  # in scales; what is farther out counts as this
    likely_memory: Floats  # the memory not taken larger


def past_of(logs: Floats, levels: Floats, ends: Integers, start: int) -> Past:
    """Level of the nights from `start` on before each end, and noise of those before `start` too.

    `levels` says about which level the nights before `start` lie.
    """
    places = ends[:, None] - BEFORE + np.arange(BEFORE)[None, :]
    known, own = places >= 0, places >= start
    places = np.maximum(places, 0)
    values, others = logs[places], levels[places]
    count, noise_count = own.sum(axis=1), known.sum(axis=1)
    level = _row_medians(np.where(own, values, np.inf), count)
    for _ in range(2):  # the second time about the better level
        residuals = values - np.where(own, level[:, None], others)
        sizes = np.where(known, np.abs(residuals), np.inf)
        scale = np.maximum(TO_SIGMA * _row_medians(sizes, noise_count), FLOOR)
        scores = np.where(known, residuals / scale[:, None], 0.0)
        bounded = np.clip(scores, -_REACH, _REACH)
        level = level + scale * np.where(own, bounded, 0.0).sum(axis=1) / count
    squares = np.maximum((bounded**2).sum(axis=1), 1e-12)
    memory = (bounded[:, 1:] * bounded[:, :-1]).sum(axis=1) / squares
    memory = memory + (1 + 3 * np.maximum(memory, 0)) / noise_count  # it looks too small by this
    likely = np.clip(memory, 0, _MOST_MEMORY)
    margin = np.minimum(_MEMORY_MARGIN / noise_count, _MOST_MARGIN)
    memory = np.minimum(likely + margin, _MOST_MEMORY)
    reach = _reach((np.abs(scores) > _TELLING).sum(axis=1), noise_count, likely)
    bounded = np.clip(scores, -reach[:, None], reach[:, None])
    squares = np.maximum((bounded**2).sum(axis=1), 1e-12)
    news = bounded[:, 1:] - memory[:, None] * bounded[:, :-1]
    news[~known[:, :-1]] = 0.0
    fresh = (news**2).sum(axis=1) / squares * noise_count / (noise_count - 1)
    return Past(
        level=level,
        scale=scale,
        spread=_spread(scores, bounded, known),
        memory=memory,
        fresh=np.maximum(fresh, 1 - memory**2),
        nights=count.astype(np.float64),
        noise_nights=noise_count.astype(np.float64),
        reach=reach,
        likely_memory=likely,
    )


def _reach(far: Integers, nights: Integers, memory: Floats) -> Floats:
    """How far a night counts: farther where a memory costs power and outliers are rare."""
    is_rare = np.interp((far + 1) / (nights + 1), (_RARE, _COMMON), (1.0, 0.0))
    is_strong = np.interp(memory, (_WEAK, _STRONG), (0.0, 1.0))
    reach: Floats = _REACH + (_MOST_REACH - _REACH) * is_rare * is_strong
    return reach


def _spread(scores: Floats, bounded: Floats, known: NDArray[np.bool_]) -> Floats:
    """Of nights cut off at `_REACH`; outliers count by half.

    They hardly tell anything about a small step, and much about a large one.
    """
    near = known & (np.abs(scores) <= _FAR)
    squares = bounded**2
    inner = np.where(near, squares, 0.0).sum(axis=1) / np.maximum(near.sum(axis=1) - 1, 1)
    whole = squares.sum(axis=1) / np.maximum(known.sum(axis=1) - 1, 1)
    spread: Floats = np.sqrt(np.maximum(_INNER * inner + (1 - _INNER) * whole, 0.25))
    return spread


def mean_variance(memory: Floats, count: Floats | int) -> Floats:
    """Variance of a mean of so many values of an AR(1) process, in variances of one value."""
    rest = 1 - memory
    whole = (1 + memory) / rest - 2 * memory * (1 - memory**count) / (count * rest**2)
    variance: Floats = whole / count
    return variance


def _row_medians(rows: Floats, counts: Integers) -> Floats:
    """Median of the `counts` smallest values of each row; the rest is infinite."""
    ordered = np.sort(rows, axis=1)
    low = np.take_along_axis(ordered, ((counts - 1) // 2)[:, None], axis=1)[:, 0]
    high = np.take_along_axis(ordered, (counts // 2)[:, None], axis=1)[:, 0]
    medians: Floats = (low + high) / 2
    return medians
