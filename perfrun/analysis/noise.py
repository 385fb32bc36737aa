"""Estimate level and noise of the observations before a change; outliers hardly move them.

* The level is an M-estimate (Huber, Annals of Mathematical Statistics 35, 1964).
* An outlier is clipped at two standard deviations. The limit rises to three where the series is
  autocorrelated, because such a series carries little else, and has no outlier so far. It also
  does at a place that is known, where outliers are not searched for among many places.
* Observations are taken as AR(1) with the autocorrelation `memory`. It is estimated larger than
  the data show, because short series show too little.

The constants are chosen by `simulations/detect.py`; docs/research/detection.md has its table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_BEFORE = 60  # observations that a baseline rests on, at most
_REACH = 2.1  # standard deviations at which observations are clipped
_MOST_REACH = 3.0  # the same in autocorrelated series where none is farther out than `_TELLING`
_TELLING = 3.2
_RARE, _COMMON = 0.017, 0.03  # shares of such observations: reach is largest to the first, least
_COMMON_AT_PLACE = 0.12  # at a place that is known
_WEAK, _STRONG = 0.15, 0.35  # memory: reach is least to the first, largest from the second
_FAR = 4.0  # standard deviations from which on an observation is an outlier
_MEMORY_MARGIN = 6.0  # added to the memory, over the number of observations
_MOST_MARGIN = 0.25
_MOST_MEMORY = 0.8
LEAST_SCALE = 5e-4  # relative; the resolution of clocks makes noise look smaller than it is
TO_SIGMA = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
_INNER = 0.6  # weight of the bulk in the spread


class BaselineWindows(NamedTuple):
    """The observations before some ends, at most `MOST_BEFORE` for each: a row each, latest last.

    A row begins with places for what does not exist or is not at the level in question.
    `unknown` and `former` are these places, counted through all rows.
    """

    values: Floats
    level_count: Integers  # observations of each row that are at the level in question
    noise_count: Integers  # observations of each row that exist
    unknown: Integers
    former: Integers  # observations before the level in question began
    residuals: Floats  # of `former`, from the levels that they were at


class Baseline(NamedTuple):
    """Level and noise of the observations before each end (exclusive)."""

    level: Floats
    scale: Floats  # standard deviation of the bulk of single observations
    spread: Floats  # standard deviation of observations that are clipped at `_REACH`, in scales
    memory: Floats
    fresh: Floats  # variance of the innovations, in variances of an observation
    level_count: Floats  # observations that the level rests on
    noise_count: Floats  # observations that the noise rests on
    reach: Floats  # in scales; observations are clipped at it
    estimated_memory: Floats  # the memory without its margin


def windows_before(
    logs: Floats, levels: Floats, ends: Integers, first: Integers | int, start: Integers | int
) -> BaselineWindows:
    """Return the observations before each end.

    `first` is the first observation of the series, `start` that of the level; `levels` has the
    levels of the observations before `start`.
    """
    padded = np.concatenate([np.zeros(MOST_BEFORE), logs])
    values = sliding_window_view(padded, MOST_BEFORE)[ends]
    level_count = np.minimum(ends - start, MOST_BEFORE)
    noise_count = np.minimum(ends - first, MOST_BEFORE)
    short = np.flatnonzero(level_count < MOST_BEFORE)
    column = np.arange(MOST_BEFORE)
    is_unknown = column < (MOST_BEFORE - noise_count[short])[:, None]
    is_former = (column < (MOST_BEFORE - level_count[short])[:, None]) & ~is_unknown
    places = short[:, None] * MOST_BEFORE + column
    former = places[is_former]
    observation = ends[former // MOST_BEFORE] - MOST_BEFORE + former % MOST_BEFORE
    return BaselineWindows(
        values=values,
        level_count=level_count,
        noise_count=noise_count,
        unknown=places[is_unknown],
        former=former,
        residuals=logs[observation] - levels[observation],
    )


def estimated_baselines(known: BaselineWindows, *, known_place: bool = False) -> Baseline:
    """Estimate level and noise of the observations before each end.

    At a `known_place` few tests are made, so outliers that raise no alarm there may weigh more.
    """
    values, count, noise_count = known.values, known.level_count, known.noise_count
    ordered = values.copy()
    ordered.put(known.unknown, np.inf)
    ordered.put(known.former, np.inf)
    ordered.sort(axis=1)
    level = _medians(ordered, count)
    # Arrays are used again, so that all of them fit into a processor's cache.
    sizes, scores, bounded = ordered, np.empty_like(values), np.empty_like(values)
    for _ in range(2):  # the second time about the better level
        np.subtract(values, level[:, None], out=scores)
        scores.put(known.former, known.residuals)
        np.abs(scores, out=sizes)
        sizes.put(known.unknown, np.inf)
        sizes.sort(axis=1)
        scale = np.maximum(TO_SIGMA * _medians(sizes, noise_count), LEAST_SCALE)
        scores /= scale[:, None]
        scores.put(known.unknown, 0.0)
        np.clip(scores, -_REACH, _REACH, out=bounded)
        moves = bounded.copy() if len(known.former) else bounded
        moves.put(known.former, 0.0)
        level = level + scale * np.einsum("ij->i", moves) / count
    squares, pairs = _row_products(bounded, bounded), _row_products(bounded[:, 1:], bounded[:, :-1])
    memory = pairs / np.maximum(squares, 1e-12)
    memory = memory + (1 + 3 * np.maximum(memory, 0)) / noise_count  # the estimate's bias
    estimated = np.clip(memory, 0, _MOST_MEMORY)
    margin = np.minimum(_MEMORY_MARGIN / noise_count, _MOST_MARGIN)
    memory = np.minimum(estimated + margin, _MOST_MEMORY)
    # Only the few rows with an outlier are counted, and only those with a larger reach redone.
    largest = sizes[np.arange(len(sizes)), noise_count - 1] / scale
    telling = _count_beyond(_TELLING, scores, largest)
    reach = _reach(telling, noise_count, estimated, known_place=known_place)
    wide = np.flatnonzero(reach > _REACH)
    some = np.clip(scores[wide], -reach[wide, None], reach[wide, None])
    bounded[wide] = some
    squares[wide] = _row_products(some, some)
    pairs[wide] = _row_products(some[:, 1:], some[:, :-1])
    # The sum of squares of the innovations of all observations but the first.
    first = bounded[np.arange(len(bounded)), MOST_BEFORE - noise_count]
    news = squares - first**2 - 2 * memory * pairs + memory**2 * (squares - bounded[:, -1] ** 2)
    fresh = news / np.maximum(squares, 1e-12) * noise_count / (noise_count - 1)
    far = _count_beyond(_FAR, scores, largest)
    return Baseline(
        level=level,
        scale=scale,
        spread=_spread(squares, far * reach**2, far, noise_count),
        memory=memory,
        fresh=np.maximum(fresh, 1 - memory**2),
        level_count=count.astype(np.float64),
        noise_count=noise_count.astype(np.float64),
        reach=reach,
        estimated_memory=estimated,
    )


def _reach(far: Integers, count: Integers, memory: Floats, *, known_place: bool = False) -> Floats:
    """Return the clipping limit: larger where autocorrelation costs power and outliers are rare."""
    common = _COMMON_AT_PLACE if known_place else _COMMON
    is_rare = np.interp((far + 1) / (count + 1), (_RARE, common), (1.0, 0.0))
    is_strong = 1.0 if known_place else np.interp(memory, (_WEAK, _STRONG), (0.0, 1.0))
    reach: Floats = _REACH + (_MOST_REACH - _REACH) * is_rare * is_strong
    return reach


def _spread(squares: Floats, of_far: Floats, far: Integers, count: Integers) -> Floats:
    """Return the standard deviation of clipped observations.

    `squares` is their sum of squares, `of_far` that of the `far` outliers among them. Outliers
    count by half: they matter little for a small step, and much for a large one.
    """
    inner = (squares - of_far) / np.maximum(count - far - 1, 1)
    whole = squares / np.maximum(count - 1, 1)
    spread: Floats = np.sqrt(np.maximum(_INNER * inner + (1 - _INNER) * whole, 0.25))
    return spread


def mean_variance(memory: Floats, count: Floats | int) -> Floats:
    """Return the variance of a mean of AR(1) values, in variances of one value."""
    rest = 1 - memory
    whole = (1 + memory) / rest - 2 * memory * (1 - memory**count) / (count * rest**2)
    variance: Floats = whole / count
    return variance


def _count_beyond(limit: float, scores: Floats, largest: Floats) -> Integers:
    """Count the scores of each row beyond the limit; `largest` has the largest size of each."""
    counts = np.zeros(len(scores), dtype=np.int64)
    rows = np.flatnonzero(largest > limit)
    counts[rows] = (np.abs(scores[rows]) > limit).sum(axis=1)
    return counts


def _medians(ordered: Floats, counts: Integers) -> Floats:
    """Return the medians of the first `counts` values of rows in ascending order."""
    each = np.arange(len(ordered))
    medians: Floats = (ordered[each, (counts - 1) // 2] + ordered[each, counts // 2]) / 2
    return medians


def _row_products(left: Floats, right: Floats) -> Floats:
    sums: Floats = np.einsum("ij,ij->i", left, right)
    return sums
