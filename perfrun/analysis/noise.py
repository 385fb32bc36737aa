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
from numpy.lib.stride_tricks import sliding_window_view
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


class Before(NamedTuple):
    """The nights before some ends, at most `BEFORE` for each: a row of them, the latest last.

    What is not there, or not about the level that is asked for, stands at the begin of a row;
    `unknown` and `former` are the places of these values, counted through all rows.
    """

    values: Floats
    nights: Integers  # of each row, that are at the level that is asked for
    noise_nights: Integers  # that are known
    unknown: Integers
    former: Integers  # known, and before the level that is asked for began
    residuals: Floats  # of `former`, about the levels that they were at


class Baseline(NamedTuple):
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


def before(
    logs: Floats, levels: Floats, ends: Integers, first: Integers | int, start: Integers | int
) -> Before:
    """The nights before each end. `first` is that of the series, `start` that of the level.

    `levels` says about which level the nights before `start` lie.
    """
    padded = np.concatenate([np.zeros(BEFORE), logs])
    values = sliding_window_view(padded, BEFORE)[ends]
    nights, noise_nights = np.minimum(ends - start, BEFORE), np.minimum(ends - first, BEFORE)
    short = np.flatnonzero(nights < BEFORE)
    column = np.arange(BEFORE)
    is_unknown = column < (BEFORE - noise_nights[short])[:, None]
    is_former = (column < (BEFORE - nights[short])[:, None]) & ~is_unknown
    places = short[:, None] * BEFORE + column
    former = places[is_former]
    night = ends[former // BEFORE] - BEFORE + former % BEFORE
    return Before(
        values=values,
        nights=nights,
        noise_nights=noise_nights,
        unknown=places[is_unknown],
        former=former,
        residuals=logs[night] - levels[night],
    )


def past_of(known: Before) -> Baseline:
    """Level and noise of the nights before each end."""
    values, count, noise_count = known.values, known.nights, known.noise_nights
    ordered = values.copy()
    ordered.put(known.unknown, np.inf)
    ordered.put(known.former, np.inf)
    ordered.sort(axis=1)
    level = _medians(ordered, count)
    # Each is used again: what is in work has to fit into a processor's cache.
    sizes, scores, bounded = ordered, np.empty_like(values), np.empty_like(values)
    for _ in range(2):  # the second time about the better level
        np.subtract(values, level[:, None], out=scores)
        scores.put(known.former, known.residuals)
        np.abs(scores, out=sizes)
        sizes.put(known.unknown, np.inf)
        sizes.sort(axis=1)
        scale = np.maximum(TO_SIGMA * _medians(sizes, noise_count), FLOOR)
        scores /= scale[:, None]
        scores.put(known.unknown, 0.0)
        np.clip(scores, -_REACH, _REACH, out=bounded)
        moves = bounded.copy() if len(known.former) else bounded
        moves.put(known.former, 0.0)
        level = level + scale * np.einsum("ij->i", moves) / count
    squares, pairs = _products(bounded, bounded), _products(bounded[:, 1:], bounded[:, :-1])
    memory = pairs / np.maximum(squares, 1e-12)
    memory = memory + (1 + 3 * np.maximum(memory, 0)) / noise_count  # it looks too small by this
    likely = np.clip(memory, 0, _MOST_MEMORY)
    margin = np.minimum(_MEMORY_MARGIN / noise_count, _MOST_MARGIN)
    memory = np.minimum(likely + margin, _MOST_MEMORY)
    # Few rows have a night that is far out, and in few a night counts as farther than `_REACH`.
    largest = sizes[np.arange(len(sizes)), noise_count - 1] / scale
    reach = _reach(_beyond(_TELLING, scores, largest), noise_count, likely)
    wide = np.flatnonzero(reach > _REACH)
    some = np.clip(scores[wide], -reach[wide, None], reach[wide, None])
    bounded[wide] = some
    squares[wide], pairs[wide] = _products(some, some), _products(some[:, 1:], some[:, :-1])
    # The sum of squares of what is new in each night but the first.
    first = bounded[np.arange(len(bounded)), BEFORE - noise_count]
    news = squares - first**2 - 2 * memory * pairs + memory**2 * (squares - bounded[:, -1] ** 2)
    fresh = news / np.maximum(squares, 1e-12) * noise_count / (noise_count - 1)
    far = _beyond(_FAR, scores, largest)
    return Baseline(
        level=level,
        scale=scale,
        spread=_spread(squares, far * reach**2, far, noise_count),
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


def _spread(squares: Floats, of_far: Floats, far: Integers, nights: Integers) -> Floats:
    """Of nights that are cut off, from their sum of squares, and that of those beyond `_FAR`.

    Outliers count by half: they hardly tell anything about a small step, and much about a large.
    """
    inner = (squares - of_far) / np.maximum(nights - far - 1, 1)
    whole = squares / np.maximum(nights - 1, 1)
    spread: Floats = np.sqrt(np.maximum(_INNER * inner + (1 - _INNER) * whole, 0.25))
    return spread


def mean_variance(memory: Floats, count: Floats | int) -> Floats:
    """Variance of a mean of so many values of an AR(1) process, in variances of one value."""
    rest = 1 - memory
    whole = (1 + memory) / rest - 2 * memory * (1 - memory**count) / (count * rest**2)
    variance: Floats = whole / count
    return variance


def _beyond(limit: float, scores: Floats, largest: Floats) -> Integers:
    """How many scores of each row are farther out, given the size of the largest one."""
    counts = np.zeros(len(scores), dtype=np.int64)
    rows = np.flatnonzero(largest > limit)
    counts[rows] = (np.abs(scores[rows]) > limit).sum(axis=1)
    return counts


def _medians(ordered: Floats, counts: Integers) -> Floats:
    """Median of the first `counts` values of rows in ascending order."""
    each = np.arange(len(ordered))
    medians: Floats = (ordered[each, (counts - 1) // 2] + ordered[each, counts // 2]) / 2
    return medians


def _products(left: Floats, right: Floats) -> Floats:
    """Sums of the products of rows."""
    sums: Floats = np.einsum("ij,ij->i", left, right)
    return sums
