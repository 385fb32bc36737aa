"""Compare two sets of trials of the same methods: ratios, intervals, verdicts.

docs/guides/comparing.md explains the rule; simulations/compare.py shows how often it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special

from perfrun.analysis.directions import Direction
from perfrun.analysis.stats import (
    FEWEST_FOR_ORDER_STATISTICS,
    ConfidenceInterval,
    Floats,
    benjamini_hochberg,
    median,
    minimum_detectable_effect,
    numbers_of,
    relative_noise,
)
from perfrun.analysis.two_samples import cliffs_delta, mann_whitney, ratio_of_medians

Verdict = Literal["faster", "slower", "equivalent", "undecided"]

LEVEL = 0.05  # of false discoveries among all comparisons
MIN_EFFECT = 0.01  # smaller differences are not relevant, however sure they are
# A comparison that could not have found a change of this size does not say "equivalent".
LARGEST_MARGIN = 0.10
# "Equivalent" means within the change that so many trials find in 19 of 20 cases, so that the
# verdict is wrong as rarely as LEVEL.
MARGIN_POWER = 0.95
# From so many trials a side on, a rank test decides. Below, no ranking is rare enough to survive
# the correction for many comparisons (five a side: p >= 0.008), so Welch's t on logarithms decides.
FEWEST_FOR_RANKS = 8


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """The values of one metric of one method in both sets of trials."""

    method: str
    metric: str
    direction: Direction
    base: tuple[float, ...]
    new: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result for one metric of one method. Ratios are new over base."""

    method: str
    metric: str
    direction: Direction
    ratio: float | None  # of medians; None where the base's median is not positive
    interval: ConfidenceInterval | None  # 95 %; None with one trial on a side
    verdict: Verdict
    reason: str | None  # why undecided
    n_base: int
    n_new: int
    base_median: float | None  # None without a trial that has a figure
    new_median: float | None
    cliffs_delta: float | None
    p_value: float | None  # corrected for all comparisons
    detectable_effect: float | None  # smallest change that so many trials find in four of five
    margin: float | None  # what "equivalent" means here


def compare(
    pairings: Sequence[Pairing], *, min_effect: float = MIN_EFFECT
) -> tuple[Comparison, ...]:
    """Compare all pairings, and correct the p-values for their number (Benjamini and Hochberg).

    `slower` is worse by the metric's direction and `faster` better, whatever the metric counts.
    """
    raw = [_compared(pairing, min_effect) for pairing in pairings]
    known = [found.p_value for found in raw if found.p_value is not None]
    corrected = iter(benjamini_hochberg(known))
    return tuple(
        _judged(
            found if found.p_value is None else replace(found, p_value=next(corrected)), min_effect
        )
        for found in raw
    )


def _compared(pairing: Pairing, min_effect: float) -> Comparison:
    base, new = numbers_of(pairing.base), numbers_of(pairing.new)
    middle, over = median(base), median(new)
    several = min(len(base), len(new)) >= 2
    delta = cliffs_delta(new, base) if several else None
    effect = _detectable(base, new, 0.8) if several else None
    margin = _detectable(base, new, MARGIN_POWER) if several else None
    return Comparison(
        method=pairing.method,
        metric=pairing.metric,
        direction=pairing.direction,
        ratio=over / middle if middle > 0 else None,
        interval=_interval(base, new) if several else None,
        verdict="undecided",
        reason=None,
        n_base=len(base),
        n_new=len(new),
        base_median=middle,
        new_median=over,
        cliffs_delta=delta.estimate if delta else None,
        p_value=_p_value(base, new) if several else None,
        detectable_effect=effect,
        margin=None if margin is None else max(margin, min_effect),
    )


def _p_value(base: Floats, new: Floats) -> float:
    """Return the p-value of a rank test from eight trials a side up, else of Welch's t test.

    Welch's test is on logarithms, so values that are not positive are always tested by ranks.
    """
    if np.ptp(base) + np.ptp(new) == 0:  # the exact rank test; scipy's is not exact with ties
        return 1.0 if base[0] == new[0] else 2 / math.comb(len(base) + len(new), len(base))
    positive = min(base.min(), new.min()) > 0
    if min(len(base), len(new)) >= FEWEST_FOR_RANKS or not positive:
        return mann_whitney(new, base).p_value
    difference, error, freedom = _welch(base, new)
    return float(2 * special.stdtr(freedom, -abs(difference) / error))


def _welch(base: Floats, new: Floats) -> tuple[float, float, float]:
    """Return the difference of the mean logarithms, its standard error and degrees of freedom.

    Welch, "The generalization of Student's problem", Biometrika 34, 1947.
    """
    logs = np.log(base), np.log(new)
    shares = [float(np.var(side, ddof=1)) / len(side) for side in logs]
    total = sum(shares)
    weights = sum(s**2 / (len(side) - 1) for s, side in zip(shares, logs, strict=True))
    difference = float(np.mean(logs[1]) - np.mean(logs[0]))
    return difference, math.sqrt(total), total**2 / weights


def _interval(base: Floats, new: Floats) -> ConfidenceInterval | None:
    """Return the 95 % interval of the ratio of medians: a bootstrap, of few trials Welch's."""
    if min(len(base), len(new)) >= FEWEST_FOR_ORDER_STATISTICS:
        found = ratio_of_medians(new, base)
        return found.interval if found else None
    if min(base.min(), new.min()) <= 0:
        return None
    ratio = median(new) / median(base)
    if np.ptp(base) + np.ptp(new) == 0:
        return ConfidenceInterval(low=ratio, high=ratio, confidence=1 - LEVEL)
    difference, error, freedom = _welch(base, new)
    reach = float(special.stdtrit(freedom, 1 - LEVEL / 2)) * error
    # This is the interval of the ratio of geometric means; it is widened to hold that of medians.
    low, high = math.exp(difference - reach), math.exp(min(difference + reach, 700.0))
    return ConfidenceInterval(low=min(low, ratio), high=max(high, ratio), confidence=1 - LEVEL)


def _detectable(base: Floats, new: Floats, power: float) -> float | None:
    """Return the minimum detectable effect, from the mean variance and harmonic mean size."""
    noises = [relative_noise(side) for side in (base, new)]
    known = [noise for noise in noises if noise is not None]
    if len(known) < 2:
        return None
    noise = math.sqrt(sum(noise**2 for noise in known) / 2)
    trials = 2 / (1 / len(base) + 1 / len(new))
    return minimum_detectable_effect(noise, max(2, int(trials)), power=power)


def _judged(found: Comparison, min_effect: float) -> Comparison:
    """Return the comparison with its verdict, or with the reason why it is undecided."""
    if found.ratio is None:
        return replace(found, reason="the base's median is not positive: there is no ratio")
    if found.interval is None or found.p_value is None:
        reason = "one trial on a side" if min(found.n_base, found.n_new) < 2 else "no interval"
        return replace(found, reason=reason)
    low, high = found.interval.low, found.interval.high
    sure = found.p_value <= LEVEL and not low <= 1 <= high
    if sure and _is_relevant(found.ratio, min_effect):
        if found.direction == "none":
            return replace(found, reason="it differs, and which way is better is not known")
        worse = (found.ratio > 1) == (found.direction == "lower")
        return replace(found, verdict="slower" if worse else "faster")
    margin = found.margin if found.margin is not None else min_effect
    if margin > max(LARGEST_MARGIN, min_effect):
        return replace(found, reason="too noisy for so few trials")
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return replace(found, verdict="equivalent")
    return replace(found, reason="the interval leaves it open")


def _is_relevant(ratio: float, min_effect: float) -> bool:
    return ratio > 0 and abs(math.log(ratio)) >= math.log1p(min_effect)
