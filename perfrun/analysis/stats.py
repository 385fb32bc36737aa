"""Statistics of one sample of trials.

Intervals are two-sided. Unknown results (too few values, nothing to compare) are None. The module
imports numpy and scipy.special, but not scipy.stats, which takes three times as long. Figures that
back the choices here are in docs/research/measurement.md, made by simulations/stop_rule.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

# Makes the MAD of Gaussian values estimate their standard deviation.
MAD_TO_SD = 1.482602218505602
# Correction of MAD_TO_SD for small samples: Croux and Rousseeuw, "Time-efficient algorithms for two
# highly robust estimators of scale", COMPSTAT 1992; beyond nine values n / (n - 0.8).
_SMALL_SAMPLE = {5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
# Efficiency of a rank test relative to the t test under Gaussian noise (Hodges and Lehmann, Annals
# of Mathematical Statistics 27, 1956); with outliers rank tests are the better ones.
RANK_EFFICIENCY = 3 / math.pi
# Fewer values than this cannot give a distribution-free interval of about 95 %.
FEWEST_FOR_ORDER_STATISTICS = 5


@dataclass(frozen=True, kw_only=True)
class ConfidenceInterval:
    """An interval and its nominal confidence."""

    low: float
    high: float
    confidence: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def median(values: Sequence[float] | Floats) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    return float(np.median(numbers_of(values)))


def mad(values: Sequence[float] | Floats) -> float:
    """Return the median absolute deviation from the median, unscaled (Hampel, JASA 69, 1974)."""
    numbers = numbers_of(values)
    return float(np.median(np.abs(numbers - np.median(numbers))))


def robust_sd(values: Sequence[float] | Floats) -> float | None:
    """Return the standard deviation estimated by the MAD, corrected for small samples.

    Below five values it is the plain standard deviation: the median of so few deviations is often
    close to 0 and underestimates the spread. Where more than half of the values are equal the MAD
    is 0, and the mean absolute deviation takes its place (Iglewicz and Hoaglin, "How to detect and
    handle outliers", 1993). None below two values.
    """
    numbers = numbers_of(values)
    size = len(numbers)
    if size < 2:
        return None
    if size < FEWEST_FOR_ORDER_STATISTICS:
        return float(np.std(numbers, ddof=1))
    scale = mad(numbers) * MAD_TO_SD * _SMALL_SAMPLE.get(size, size / (size - 0.8))
    if scale > 0:
        return scale
    return float(np.mean(np.abs(numbers - np.median(numbers)))) * math.sqrt(math.pi / 2)


def relative_noise(values: Sequence[float] | Floats) -> float | None:
    """Return `robust_sd` over the median; None below two values or without a positive median."""
    scale = robust_sd(values)
    middle = median(values)
    return scale / middle if scale is not None and middle > 0 else None


def exact_median_interval(
    values: Sequence[float] | Floats, confidence: float = 0.95
) -> ConfidenceInterval | None:
    """Return the narrowest symmetric pair of order statistics with at least this confidence.

    Distribution-free and conservative: David and Nagaraja, Order Statistics, 3rd ed., 7.1. None
    when even the whole range has less (below six values at 95 %).
    """
    numbers = np.sort(numbers_of(values))
    depth = _exact_depth(len(numbers), confidence)
    if depth == 0:
        return None
    low, high = float(numbers[depth - 1]), float(numbers[-depth])
    return ConfidenceInterval(low=low, high=high, confidence=confidence)


def median_interval(
    values: Sequence[float] | Floats, confidence: float = 0.95
) -> ConfidenceInterval | None:
    """Return an interval of the median that keeps its level from two values up; None for one.

    Five values and more: order statistics, interpolated between two depths so that coverage is the
    level asked for and not the next discrete one (Hettmansperger and Sheather, Statistics &
    Probability Letters 4, 1986); where the range of all values covers less (93.75 % for five), it
    is the range. Fewer: Student's t on logarithms, which supposes about log-normal noise.
    """
    numbers = np.sort(numbers_of(values))
    size = len(numbers)
    if size < 2:
        return None
    if size < FEWEST_FOR_ORDER_STATISTICS:
        return _t_interval(numbers, confidence)
    depth, weight = interpolated_depth(size, confidence)
    # This form of interpolation gives equal values back as they are.
    low = numbers[depth - 1] + weight * (numbers[depth] - numbers[depth - 1])
    high = numbers[-depth] - weight * (numbers[-depth] - numbers[-depth - 1])
    return ConfidenceInterval(low=float(low), high=float(high), confidence=confidence)


@lru_cache(maxsize=4096)
def interpolated_depth(size: int, confidence: float) -> tuple[int, float]:
    """Return depth d, and the weight of depth d + 1, of the interpolated interval."""
    depth = max(1, _exact_depth(size, confidence))
    outer = _depth_coverage(size, depth)
    if outer <= confidence or 2 * depth >= size:
        return depth, 0.0
    inner = _depth_coverage(size, depth + 1)
    share = (outer - confidence) / (outer - inner)
    return depth, (size - depth) * share / (depth + (size - 2 * depth) * share)


def _exact_depth(size: int, confidence: float) -> int:
    depth = 0
    while 2 * (depth + 1) <= size and _depth_coverage(size, depth + 1) >= confidence:
        depth += 1
    return depth


def _depth_coverage(size: int, depth: int) -> float:
    """Return the probability that the median lies between the order statistics of this depth."""
    return max(0.0, float(1 - 2 * special.bdtr(depth - 1, size, 0.5)))


def _t_interval(numbers: Floats, confidence: float) -> ConfidenceInterval:
    logs = np.log(numbers) if numbers[0] > 0 else numbers
    quantile = float(special.stdtrit(len(logs) - 1, 0.5 + confidence / 2))
    reach = quantile * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    low, high = float(np.mean(logs)) - reach, float(np.mean(logs)) + reach
    if numbers[0] > 0:
        low, high = math.exp(low), math.exp(min(high, 700.0))
    return ConfidenceInterval(low=low, high=high, confidence=confidence)


def benjamini_hochberg(p_values: Sequence[float] | Floats) -> tuple[float, ...]:
    """Return adjusted p-values: of those at or below q, at most a share q is false.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 1995. scipy.stats has it
    too, but its import takes as long as the analysis of a thousand nights.
    """
    found = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(found)
    scaled = found[order] * (len(found) / np.arange(1, len(found) + 1))
    adjusted = np.empty_like(found)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return tuple(adjusted.tolist())


def minimum_detectable_effect(
    noise: float, trials: int, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Return the smallest relative change that a comparison with as many trials again would find.

    `noise` is relative (see `relative_noise`); the comparison is Mann and Whitney's. The power is
    that of the t test of logarithms by the noncentral t (Cohen, Statistical Power Analysis, 2nd
    ed. 1988, chapter 2), corrected by the efficiency of ranks. None below two trials.
    """
    if trials < 2:
        return None
    effect = _standard_effect(trials, alpha, power) / math.sqrt(RANK_EFFICIENCY)
    return math.expm1(min(effect * noise, 700.0))


@lru_cache(maxsize=1024)
def _standard_effect(trials: int, alpha: float, power: float) -> float:
    """Return the difference, in standard deviations, that samples of this size find so often."""
    freedom = 2 * trials - 2
    critical = float(special.stdtrit(freedom, 1 - alpha / 2))
    # nctdtrinc solves nctdtr(freedom, centre, critical) = 1 - power for the centre.
    centre = float(special.nctdtrinc(freedom, 1 - power, critical))
    return centre * math.sqrt(2 / trials)


def numbers_of(values: Sequence[float] | Floats) -> Floats:
    """Return the values as an array. Raises ValueError when there are none or one is not finite."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size == 0 or not np.isfinite(numbers).all():
        raise ValueError("statistics need at least one value, and finite ones only")
    return numbers
