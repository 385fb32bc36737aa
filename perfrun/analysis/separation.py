"""Steps so large that nothing need be known of the noise to see them.

The score and the energy statistic (`changepoint`) ask how much memory the noise has. A step itself
looks like memory, most of all in a young history: the longer it stays unreported the more it looks
like one, until it counts as noise for good. This member asks for no memory and for few nights: the
last ones lie apart from nearly all of those before them, by many times the spread within either.

Before twelve nights are known there is no judging how wide they lie. Then, from six nights on, the
gap is held against the whole width of either group instead: that of all nights, none left out.

Noise with a memory makes such gaps by itself, now and then. `LIMIT` and `WIDTHS` are chosen so that
it hardly ever does; `simulations/detect.py` and `simulations/oracle.py` have the figures.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from perfrun.analysis.nightnoise import FLOOR, TO_SIGMA

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BEFORE = 12  # nights
AFTER = 6  # nights after them
FIRST = BEFORE + AFTER - 1  # the first night of a series of which something can be said
LIMIT = 8.0  # robust standard deviations, the larger of the two windows', between their medians
_ASTRAY = 2  # nights of those before that may lie anywhere
P_VALUE = 2e-5  # share of the nights of AR(1) 0.5 in which this happens; of others, it is less
YOUNG = 6  # nights before, where there are fewer than `BEFORE`
WIDTHS = 2.0  # of the wider group, between their medians; a width is that of all its nights
YOUNG_P_VALUE = 5e-5  # as above, of the nights with so few before
_WIDTH_FLOOR = 2.5 * FLOOR  # of six nights, in their standard deviations


def separated(logs: Floats) -> NDArray[np.bool_]:
    """Whether the `AFTER` nights that end with each lie apart from the `BEFORE` before them.

    Nights are logarithms of one level, in their order; of the first ones nothing can be said.
    """
    apart = np.zeros(len(logs), dtype=np.bool_)
    if len(logs) <= FIRST:
        return apart
    rows = np.flatnonzero(_may_lie_above(logs) | _may_lie_above(-logs))
    after = np.sort(sliding_window_view(logs[BEFORE:], AFTER)[rows], axis=1)
    before = np.sort(sliding_window_view(logs[:-AFTER], BEFORE)[rows], axis=1)
    is_beside = (after[:, 0] > before[:, -1 - _ASTRAY]) | (after[:, -1] < before[:, _ASTRAY])
    (level, scale), (former, width) = _about(after), _about(before)
    least = LIMIT * np.maximum(np.maximum(scale, width), FLOOR)
    apart[FIRST + rows] = is_beside & (np.abs(level - former) > least)
    return apart


def separated_young(logs: Floats, starts: Integers, ends: Integers) -> Integers:
    """Of levels that begin at `starts`, and end before `ends`: the nights with which it is so.

    All `AFTER` nights lie on one side of all those before, of which there are fewer than `BEFORE`.
    """
    is_long = ends - starts >= YOUNG + AFTER
    starts, ends = starts[is_long], ends[is_long]
    # What lies beyond an end is not looked at. Columns are numbers of nights before, from `YOUNG`.
    nights = logs[np.minimum(starts[:, None] + np.arange(FIRST), ends[:, None] - 1)]
    after = sliding_window_view(nights[:, YOUNG:], AFTER, axis=1)
    lowest, highest = after.min(axis=2), after.max(axis=2)
    least = np.minimum.accumulate(nights[:, : BEFORE - 1], axis=1)[:, YOUNG - 1 :]
    most = np.maximum.accumulate(nights[:, : BEFORE - 1], axis=1)[:, YOUNG - 1 :]
    is_there = (ends - starts)[:, None] >= np.arange(YOUNG, BEFORE) + AFTER
    widths = np.maximum(np.maximum(most - least, highest - lowest), _WIDTH_FLOOR)
    found = []
    for row, column in np.argwhere(is_there & ((lowest > most) | (highest < least))).tolist():
        split = YOUNG + column
        gap = abs(np.median(after[row, column]) - np.median(nights[row, :split]))
        if gap > WIDTHS * widths[row, column]:
            found.append(starts[row] + split + AFTER - 1)
    return np.array(found, dtype=np.int64)


def _may_lie_above(logs: Floats) -> NDArray[np.bool_]:
    """Whether nights after may lie above all before them but `_ASTRAY`; dismisses nearly all.

    Then they lie above one at least of `_ASTRAY` + 1 neighbours, wherever these are.
    """
    several = _ASTRAY + 1
    count = len(logs) - FIRST
    lowest = _lowest(logs, several)
    most = [lowest[begin : begin + count] for begin in range(0, BEFORE - _ASTRAY, several)]
    may: NDArray[np.bool_] = _lowest(logs[BEFORE:], AFTER) > np.max(most, axis=0)
    return may


def _lowest(logs: Floats, nights: int) -> Floats:
    """Of as many nights in a row, the lowest."""
    count = len(logs) - nights + 1
    lowest: Floats = np.min([logs[begin : begin + count] for begin in range(nights)], axis=0)
    return lowest


def _about(ordered: Floats) -> tuple[Floats, Floats]:
    """Median of rows in ascending order, and median absolute deviation as a standard deviation."""
    level = _middle(ordered)
    return level, TO_SIGMA * _middle(np.sort(np.abs(ordered - level[:, None]), axis=1))


def _middle(ordered: Floats) -> Floats:
    count = ordered.shape[1]
    middle: Floats = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return middle
