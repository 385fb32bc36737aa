"""Two samples compared: tests, effect sizes and their intervals. Numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from perfrun.analysis.stats import (
    FEWEST_FOR_ORDER_STATISTICS,
    Floats,
    Interval,
    median,
    numbers_of,
)


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A test's statistic and its two-sided p-value."""

    statistic: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An estimate with its interval."""

    estimate: float
    interval: Interval


def ratio_of_medians(
    values: Sequence[float] | Floats,
    base: Sequence[float] | Floats,
    *,
    confidence: float = 0.95,
    resamples: int = 2999,
    seed: int = 0,
) -> Effect | None:
    """Median of `values` over median of `base`, independent samples, percentile bootstrap.

    Efron and Tibshirani 1993, chapter 13. Covers 94 to 96.5 % at 95 % from five values a side up;
    the acceleration of BCa is not defined for a median, so percentile it is. None below five
    values a side or when the base's median is not positive.
    """
    top, bottom = numbers_of(values), numbers_of(base)
    if min(len(top), len(bottom)) < FEWEST_FOR_ORDER_STATISTICS or np.median(bottom) <= 0:
        return None
    generator = np.random.default_rng(seed)
    over = _resampled_medians(top, resamples, generator)
    under = _resampled_medians(bottom, resamples, generator)
    tail = (1 - confidence) / 2
    low, high = np.quantile(over / under, [tail, 1 - tail])
    return Effect(
        estimate=median(top) / median(bottom),
        interval=Interval(low=float(low), high=float(high), confidence=confidence),
    )


def _resampled_medians(numbers: Floats, resamples: int, generator: np.random.Generator) -> Floats:
    # An even number is drawn: the median of an odd one is always one of the few values, which
    # makes intervals too wide (97 % and more instead of 95).
    size = len(numbers) + len(numbers) % 2
    picks = generator.integers(0, len(numbers), (resamples, size))
    medians: Floats = np.median(numbers[picks], axis=1)
    return medians


def mann_whitney(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> Tested:
    """Two independent samples (Mann and Whitney, Annals of Mathematical Statistics 18, 1947).

    Exact without ties up to eight values in the smaller sample, else normal with corrections.
    """
    from scipy import stats

    found = stats.mannwhitneyu(numbers_of(one), numbers_of(other), alternative="two-sided")
    return Tested(statistic=float(found.statistic), p_value=float(found.pvalue))


def wilcoxon(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> Tested:
    """Pairs: the signed-rank test (Wilcoxon, Biometrics Bulletin 1, 1945) of `one - other`.

    For ratios give logarithms. Pairs without any difference are no evidence: p is then 1.
    """
    from scipy import stats

    first, second = numbers_of(one), numbers_of(other)
    if len(first) == len(second) and np.array_equal(first, second):
        return Tested(statistic=0.0, p_value=1.0)
    found = stats.wilcoxon(first, second)
    return Tested(statistic=float(found.statistic), p_value=float(found.pvalue))


def cliffs_delta(
    one: Sequence[float] | Floats, other: Sequence[float] | Floats, confidence: float = 0.95
) -> Effect | None:
    """P(one > other) - P(one < other), with its asymmetric interval; None below two values a side.

    Cliff, "Dominance statistics", Psychological Bulletin 114, 1993; interval as in Feng and Cliff,
    Journal of Modern Applied Statistical Methods 3, 2004, but with Student's t for the normal
    quantile, which covered 92.6 % of 95 % at ten values a side.
    """
    first, second = numbers_of(one), numbers_of(other)
    rows, columns = len(first), len(second)
    if min(rows, columns) < 2:
        return None
    signs = np.sign(first[:, None] - second[None, :])
    delta = float(signs.mean())
    by_row = float(((signs.mean(axis=1) - delta) ** 2).sum())
    by_column = float(((signs.mean(axis=0) - delta) ** 2).sum())
    whole = float(((signs - delta) ** 2).sum())
    variance = (columns**2 * by_row + rows**2 * by_column - whole) / (
        rows * columns * (rows - 1) * (columns - 1)
    )
    variance = max(variance, (1 - delta**2) / (rows * columns - 1))
    z = float(special.stdtrit(rows + columns - 2, 0.5 + confidence / 2))
    below = 1 - delta**2 + z**2 * variance
    if below == 0:  # every value of one side is larger: the sample holds no sign of doubt
        return Effect(
            estimate=delta, interval=Interval(low=delta, high=delta, confidence=confidence)
        )
    reach = z * math.sqrt(variance) * math.sqrt((1 - delta**2) ** 2 + z**2 * variance)
    low, high = (delta - delta**3 - reach) / below, (delta - delta**3 + reach) / below
    return Effect(
        estimate=delta,
        interval=Interval(low=max(-1.0, low), high=min(1.0, high), confidence=confidence),
    )


def hodges_lehmann(
    one: Sequence[float] | Floats, other: Sequence[float] | Floats, confidence: float = 0.95
) -> Effect | None:
    """Shift between two samples: the median of all differences, with Moses's interval.

    Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963; Hollander and Wolfe,
    Nonparametric Statistical Methods, 4.2 and 4.3. Give logarithms, and `exp` makes a ratio. None
    where the samples are too small for the confidence (three a side at 95 %).
    """
    first, second = numbers_of(one), numbers_of(other)
    differences = np.sort((first[:, None] - second[None, :]).ravel())
    depth = _rank_sum_depth(len(first), len(second), confidence)
    if depth < 1:
        return None
    low, high = float(differences[depth - 1]), float(differences[-depth])
    return Effect(
        estimate=float(np.median(differences)),
        interval=Interval(low=low, high=high, confidence=confidence),
    )


@lru_cache(maxsize=256)
def _rank_sum_depth(rows: int, columns: int, confidence: float) -> int:
    """How many values of Mann and Whitney's U lie in one tail: exact up to 50 x 50, else normal."""
    tail = (1 - confidence) / 2
    if max(rows, columns) > 50:
        spread = math.sqrt(rows * columns * (rows + columns + 1) / 12)
        return math.floor(rows * columns / 2 - float(special.ndtri(1 - tail)) * spread)
    counts = np.ones(1)
    for k in range(1, columns + 1):  # the Gaussian binomial coefficient, one factor at a time
        counts = np.convolve(counts, _one_minus_power(rows + k))
        counts = _divided(counts, k)
    return int(np.searchsorted(np.cumsum(counts) / counts.sum(), tail, side="right"))


def _one_minus_power(power: int) -> Floats:
    factor = np.zeros(power + 1)
    factor[0], factor[-1] = 1.0, -1.0
    return factor


def _divided(counts: Floats, power: int) -> Floats:
    """Divide a polynomial by 1 - q^power, which goes without rest."""
    quotient = counts.copy()
    for at in range(power, len(quotient)):
        quotient[at] += quotient[at - power]
    return quotient[: len(quotient) - power]
