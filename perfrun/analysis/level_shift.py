"""Compare the levels of two short stretches of observations, before and after a known place.

The place is known beforehand, so this is one test and no search for a place (`scan` is that). Few
observations are to be judged, on either side: the levels are trimmed means, with the test of Yuen
(Biometrika 61, 1974), which is Welch's for them: the sides may differ in spread, and an outlier on
a side of five or more hardly moves it. Observations of neighbouring nights resemble each other, so
the variance of a mean is taken larger by the autocorrelation of both sides together, which a few
observations show too little of: it has the margin that `noise` has.

`simulations/cuts.py` has the coverage of the intervals; docs/research/detection.md has its table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perfrun.analysis.noise import LEAST_SCALE, mean_variance

FEWEST = 4  # observations on either side
MOST = 21  # observations of either side that are looked at
_TRIMMED = 0.2  # share of the observations that is left out at either end
_MARGIN, _MOST_MARGIN = 6.0, 0.25  # of the memory, over the number of observations
_MOST_MEMORY = 0.8
_LEAST_LEFT = 0.3  # of the variance that a memory may hide from a few observations

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LevelShift:
    """The level after less the level before, on logarithms, and how sure that is."""

    shift: float
    error: float  # standard error
    freedom: float  # degrees of freedom of the error

    @property
    def p_value(self) -> float:
        """The p-value of no shift, two-sided."""
        return float(2 * special.stdtr(self.freedom, -abs(self.shift) / self.error))

    def reach(self, confidence: float) -> float:
        """Return half the width of the interval, on logarithms."""
        return float(special.stdtrit(self.freedom, (1 + confidence) / 2)) * self.error

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval of the ratio."""
        reach = self.reach(confidence)
        return math.exp(self.shift - reach), math.exp(self.shift + reach)


def level_shift(before: Sequence[float] | Floats, after: Sequence[float] | Floats) -> LevelShift:
    """Compare positive values, `FEWEST` or more on either side, in the order of time."""
    sides = [np.log(np.asarray(side, dtype=np.float64)) for side in (before, after)]
    trimmed = [_trimmed(side) for side in sides]
    memory = _memory([bounded for _, bounded in trimmed])
    variances = [_variance_of_level(bounded, memory) for _, bounded in trimmed]
    total = sum(variances)
    freedoms = [len(side) - 2 * _cut(len(side)) - 1 for side in sides]
    weights = [v**2 / free for v, free in zip(variances, freedoms, strict=True)]
    return LevelShift(
        shift=trimmed[1][0] - trimmed[0][0],
        error=math.sqrt(total),
        freedom=total**2 / sum(weights),
    )


def added(shifts: Sequence[LevelShift]) -> LevelShift:
    """Return the sum of independent shifts."""
    total = sum(one.error**2 for one in shifts)
    weights = sum(one.error**4 / one.freedom for one in shifts)
    return LevelShift(
        shift=sum(one.shift for one in shifts), error=math.sqrt(total), freedom=total**2 / weights
    )


def trimmed_levels(rows: Floats) -> Floats:
    """Return the levels of many stretches of logarithms, a row each."""
    cut = _cut(rows.shape[1])
    levels: Floats = np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1)
    return levels


def _cut(count: int) -> int:
    return int(_TRIMMED * count)


def _trimmed(logs: Floats) -> tuple[float, Floats]:
    """Return the trimmed mean, and the deviations of the winsorised values, in order of time."""
    cut = _cut(len(logs))
    ordered = np.sort(logs)
    low, high = ordered[cut], ordered[len(logs) - 1 - cut]
    bounded = np.clip(logs, low, high)
    return float(ordered[cut : len(logs) - cut].mean()), bounded - bounded.mean()


def _memory(sides: Sequence[Floats]) -> float:
    """Return the autocorrelation of both sides, larger than the few observations show it."""
    count = sum(map(len, sides))
    squares = float(sum(np.dot(side, side) for side in sides))
    pairs = float(sum(np.dot(side[1:], side[:-1]) for side in sides))
    memory = pairs / max(squares, 1e-24)
    memory += len(sides) * (1 + 3 * max(memory, 0.0)) / count  # the estimate's bias
    return min(max(memory, 0.0) + min(_MARGIN / count, _MOST_MARGIN), _MOST_MEMORY)


def _variance_of_level(deviations: Floats, memory: float) -> float:
    """Return the variance of a trimmed mean from the winsorised values that it is made of."""
    count = len(deviations)
    kept = count - 2 * _cut(count)
    inflation = float(mean_variance(np.array(memory), count)) * count
    # Values that resemble each other lie closer to their own mean than to the level.
    left = max(1 - (inflation - 1) / (count - 1), _LEAST_LEFT)
    squares = float(np.dot(deviations, deviations)) / left
    return max(squares / (kept * (kept - 1)), LEAST_SCALE**2 / count) * inflation
