"""The interval in which one more trial is expected, from the trials of today."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from perfrun.analysis.stats import ConfidenceInterval, numbers_of

CONFIDENCE = 0.95
FEWEST = 3  # trials; the interval of two is 25 standard deviations wide


def prediction_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> ConfidenceInterval:
    """Return the interval that holds one further trial with this confidence.

    Student's t on logarithms, which supposes about log-normal noise; on the values themselves
    where one is not above zero. It is wider than the confidence interval of the mean by the noise
    of the further trial: Hahn and Meeker, Statistical Intervals, 1991, 4.2. Raises ValueError
    below two values.
    """
    numbers = numbers_of(values)
    size = len(numbers)
    if size < 2:
        raise ValueError("one value has no prediction interval")
    is_positive = bool(numbers.min() > 0)
    scaled = np.log(numbers) if is_positive else numbers
    centre = float(np.mean(scaled))
    quantile = float(special.stdtrit(size - 1, 0.5 + confidence / 2))
    reach = quantile * float(np.std(scaled, ddof=1)) * math.sqrt(1 + 1 / size)
    low, high = centre - reach, centre + reach
    if is_positive:
        low, high = math.exp(max(low, -700.0)), math.exp(min(high, 700.0))
    if float(np.ptp(numbers)) == 0:  # a counter that is always the same: no rounding of logarithms
        low = high = float(numbers[0])
    return ConfidenceInterval(low=low, high=high, confidence=confidence)
