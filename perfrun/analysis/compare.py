"""Two sets of trials of the same methods: ratios, intervals, verdicts. Numbers in, numbers out.

docs/comparing.md explains the rule; simulations/compare.py shows how often it is wrong.
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
MIN_EFFECT = 0.01  # a difference below this is none, however sure it is
# A comparison that could not have seen a change of less than this does not say "equivalent".
LARGEST_MARGIN = 0.10
# "Equivalent" means within what so many trials find in 19 of 20 cases: as rarely wrong as LEVEL.
MARGIN_POWER = 0.95
# From so many trials a side ranks decide. Below, no ranking is rare enough to survive the
# correction for many comparisons (five a side: p >= 0.008), and Welch's t on logarithms does.
FEWEST_FOR_RANKS = 8


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """What is to be compared: the trials' values of one metric of one method, both sets."""

    method: str
    metric: str
    direction: Direction
    base: tuple[float, ...]
    new: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What came out. Ratios are new over base."""

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
    """Compare all, and correct for their number (Benjamini and Hochberg).

    `slower` is worse by the metric's direction and `faster` better, whatever the metric counts.
    """
    raw = [_measured(pairing, min_effect) for pairing in pairings]
    known = [found.p_value for found in raw if found.p_value is not None]
    corrected = iter(benjamini_hochberg(known))
    return tuple(
        _judged(
            found if found.p_value is None else replace(found, p_value=next(corrected)), min_effect
        )
        for found in raw
    )


def _measured(pairing: Pairing, min_effect: float) -> Comparison:
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
    """Ranks from eight trials a side up; else Welch's t on logarithms, where it can be had."""
    if np.ptp(base) + np.ptp(new) == 0:  # the exact test of ranks; scipy's, with ties, is not
        return 1.0 if base[0] == new[0] else 2 / math.comb(len(base) + len(new), len(base))
    positive = min(base.min(), new.min()) > 0
    if min(len(base), len(new)) >= FEWEST_FOR_RANKS or not positive:
        return mann_whitney(new, base).p_value
    difference, error, freedom = _welch(base, new)
    return float(2 * special.stdtr(freedom, -abs(difference) / error))


def _welch(base: Floats, new: Floats) -> tuple[float, float, float]:
    """Difference of the mean logarithms, its standard error, and Welch's degrees of freedom.

    Welch, "The generalization of Student's problem", Biometrika 34, 1947.
    """
    logs = np.log(base), np.log(new)
    shares = [float(np.var(side, ddof=1)) / len(side) for side in logs]
    total = sum(shares)
    weights = sum(s**2 / (len(side) - 1) for s, side in zip(shares, logs, strict=True))
    difference = float(np.mean(logs[1]) - np.mean(logs[0]))
    return difference, math.sqrt(total), total**2 / weights


def _interval(base: Floats, new: Floats) -> ConfidenceInterval | None:
    """95 % interval of the ratio of medians: the bootstrap's, of few trials Welch's."""
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
    # It is the interval of the ratio of geometric means; the medians' is made to lie in it.
    low, high = math.exp(difference - reach), math.exp(min(difference + reach, 700.0))
    return ConfidenceInterval(low=min(low, ratio), high=max(high, ratio), confidence=1 - LEVEL)


def _detectable(base: Floats, new: Floats, power: float) -> float | None:
    """The minimum detectable effect of both sides: their mean variance, harmonic mean size."""
    noises = [relative_noise(side) for side in (base, new)]
    known = [noise for noise in noises if noise is not None]
    if len(known) < 2:
        return None
    noise = math.sqrt(sum(noise**2 for noise in known) / 2)
    trials = 2 / (1 / len(base) + 1 / len(new))
    return minimum_detectable_effect(noise, max(2, int(trials)), power=power)


def _judged(found: Comparison, min_effect: float) -> Comparison:
    """Put the verdict in: a difference that is sure and matters, none that matters, or neither."""
    if found.ratio is None:
        return replace(found, reason="the base's median is not positive: there is no ratio")
    if found.interval is None or found.p_value is None:
        reason = "one trial on a side" if min(found.n_base, found.n_new) < 2 else "no interval"
        return replace(found, reason=reason)
    low, high = found.interval.low, found.interval.high
    sure = found.p_value <= LEVEL and not low <= 1 <= high
    if sure and _matters(found.ratio, min_effect):
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


def _matters(ratio: float, min_effect: float) -> bool:
    return ratio > 0 and abs(math.log(ratio)) >= math.log1p(min_effect)
