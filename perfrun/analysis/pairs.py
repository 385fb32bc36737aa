"""Judge pairs of trials by a sequential signed-rank test, which may stop early.

Each pair gives one logarithm of a ratio. Interim analyses are made at fixed numbers of pairs, and
each uses up some of the 5 % of false alarms: all have the same level, Pocock's (Biometrika 64,
1977), so that a comparison of identical code that may stop at any of them is wrong in 5 of 100
cases at most. simulations/ab.py measures that, with drift too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from perfrun.analysis.directions import Direction
from perfrun.analysis.stats import ConfidenceInterval, Floats, numbers_of

Verdict = Literal["faster", "slower", "equivalent", "undecided"]

FALSE_ALARMS = 0.05  # over all interim analyses
FEWEST_PAIRS = 6  # with fewer, no arrangement of ranks is rarer than 5 %
MIN_EFFECT = 0.02  # a change that is surely smaller is not relevant
MAX_PAIRS = 30
FIRST_ANALYSIS = 8  # pairs; with fewer no arrangement of ranks passes Pocock's level
_GROWTH = 1.25
# Two-sided nominal levels for 1, 2, ... equally spaced analyses: Jennison and Turnbull, Group
# Sequential Methods, 2000, table 2.1.
_POCOCK = (
    *(0.05, 0.0294, 0.0221, 0.0182, 0.0158, 0.0142, 0.0130, 0.0120, 0.0112, 0.0106),
    *(0.0101, 0.0097, 0.0093, 0.0090, 0.0086, 0.0084, 0.0081, 0.0079, 0.0077, 0.0075),
)
# Pocock's analyses are equally spaced. Ours grow further apart, so each uses up more: with this
# share of his levels, false alarms are 3 to 5 % from 8 to 100 pairs.
_SPACING = 0.85


@dataclass(frozen=True, kw_only=True)
class PairRule:
    """The limits of the test of one method."""

    max_pairs: int = MAX_PAIRS
    min_effect: float = MIN_EFFECT  # relative: 0.02 for 2 %
    methods: int = 1  # methods or figures that are judged together and share the 5 %


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict of the pairs so far. Ratios are b over a."""

    verdict: Verdict
    pairs: int
    ratio: float | None  # estimate of Hodges and Lehmann; None without pairs
    interval: ConfidenceInterval | None  # 95 % over all analyses together; None with too few pairs
    p_value: float | None  # of the signed-rank test, not corrected for interim analyses


def interim_analyses(max_pairs: int) -> tuple[int, ...]:
    """Return the numbers of pairs after which to judge: 8, 10, 13, ... and the last one."""
    found = []
    at = FIRST_ANALYSIS
    while at < max_pairs:
        found.append(at)
        at = math.ceil(at * _GROWTH)
    # A last analysis right after another one would cost more than it gains.
    if found and max_pairs < found[-1] * 1.1:
        found.pop()
    return (*found, max_pairs)


def level(max_pairs: int, methods: int = 1) -> float:
    """Return the level of each analysis of one of so many methods (Bonferroni's correction)."""
    count = len(interim_analyses(max_pairs))
    if count == 1:
        return FALSE_ALARMS / methods
    if count > len(_POCOCK):
        return FALSE_ALARMS / count / methods
    return _SPACING * _POCOCK[count - 1] / methods


def can_decide(rule: PairRule) -> bool:
    """True when pairs that all go in one direction would decide at the last analysis."""
    return rank_depth(rule.max_pairs, level(rule.max_pairs, rule.methods)) > 0


def judge(
    log_ratios: Sequence[float] | Floats,
    direction: Direction,
    rule: PairRule,
    analysis_level: float | None = None,
) -> Judgement:
    """Judge the pairs so far. Call it at `interim_analyses`, and once when the pairs end early.

    `analysis_level` is for callers with a schedule of their own.
    """
    if len(log_ratios) == 0:
        return Judgement(verdict="undecided", pairs=0, ratio=None, interval=None, p_value=None)
    numbers = numbers_of(log_ratios)
    walsh = walsh_averages(numbers)
    if analysis_level is None:
        analysis_level = level(rule.max_pairs, rule.methods)
    depth = rank_depth(len(numbers), analysis_level)
    interval = None
    if depth:
        low, high = math.exp(walsh[depth - 1]), math.exp(walsh[-depth])
        interval = ConfidenceInterval(low=low, high=high, confidence=1 - FALSE_ALARMS)
    return Judgement(
        verdict=_verdict(interval, direction, rule.min_effect),
        pairs=len(numbers),
        ratio=math.exp(float(np.median(walsh))),
        interval=interval,
        p_value=_p_value(numbers),
    )


def _verdict(
    interval: ConfidenceInterval | None, direction: Direction, min_effect: float
) -> Verdict:
    if interval is None:
        return "undecided"
    if 1 / (1 + min_effect) <= interval.low and interval.high <= 1 + min_effect:
        return "equivalent"
    if interval.low <= 1 <= interval.high or direction == "none":
        return "undecided"
    return "slower" if (interval.low > 1) == (direction == "lower") else "faster"


def walsh_averages(numbers: Floats) -> Floats:
    """Return the means of all pairs of the values, each with itself too, sorted.

    Their median is Hodges and Lehmann's estimate, their order statistics the interval that goes
    with Wilcoxon's test (Hollander and Wolfe, Nonparametric Statistical Methods, 3.2 and 3.3).
    """
    rows, columns = np.triu_indices(len(numbers))
    return np.sort((numbers[rows] + numbers[columns]) / 2)


@lru_cache(maxsize=1024)
def rank_depth(pairs: int, level: float) -> int:
    """Return which Walsh average from either end bounds the interval; 0 when there is none."""
    # Sums below it have at most half of the level, and those above have the other half.
    return int(np.searchsorted(np.cumsum(_rank_sums(pairs)), level / 2, side="right"))


@lru_cache(maxsize=256)
def _rank_sums(pairs: int) -> Floats:
    """Return the probability of each sum of positive ranks when both signs are equally likely."""
    counts = np.ones(1)
    for rank in range(1, pairs + 1):
        grown = np.zeros(len(counts) + rank)
        grown[: len(counts)] += counts / 2
        grown[rank:] += counts / 2
        counts = grown
    return counts


def _p_value(numbers: Floats) -> float:
    from perfrun.analysis.two_samples import wilcoxon

    return wilcoxon(numbers, np.zeros(len(numbers))).p_value
