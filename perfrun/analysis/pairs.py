"""When pairs of trials have said enough: a sequential signed-rank test. Numbers in, numbers out.

Each pair gives one logarithm of a ratio. The test looks at the pairs at fixed numbers of them, and
every look costs some of the 5 %: all looks use the same level, Pocock's (Biometrika 64, 1977), so
that a comparison of identical code that may stop at any of them is wrong in 5 of 100 cases at most.
simulations/ab.py measures that, with drift too.
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

FALSE_ALARMS = 0.05  # over all looks
FEWEST_PAIRS = 6  # with fewer no order is rarer than 5 %
MIN_EFFECT = 0.02  # a change that is surely smaller is none
MAX_PAIRS = 30
_FIRST_LOOK = 8  # the first whose rarest order passes Pocock's level
_GROWTH = 1.25
# Two-sided nominal levels for 1, 2, ... equally spaced looks: Jennison and Turnbull, Group
# Sequential Methods, 2000, table 2.1.
_POCOCK = (
    *(0.05, 0.0294, 0.0221, 0.0182, 0.0158, 0.0142, 0.0130, 0.0120, 0.0112, 0.0106),
    *(0.0101, 0.0097, 0.0093, 0.0090, 0.0086, 0.0084, 0.0081, 0.0079, 0.0077, 0.0075),
)
# Pocock's looks are equally spaced. Ours grow further apart, which makes each cost more: with this
# share of his levels, false alarms are 3 to 5 % from 8 to 100 pairs.
_SPACING = 0.85


@dataclass(frozen=True, kw_only=True)
class PairRule:
    """What is asked of the pairs of a method."""

    max_pairs: int = MAX_PAIRS
    min_effect: float = MIN_EFFECT  # relative: 0.02 for 2 %
    methods: int = 1  # or figures: how many are judged together, which share the 5 %


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What pairs say. Ratios are b over a."""

    verdict: Verdict
    pairs: int
    ratio: float | None  # of Hodges and Lehmann; None without pairs
    interval: ConfidenceInterval | None  # 95 % over all looks together; None with too few pairs
    p_value: float | None  # of the signed-rank test, not corrected for the looks


def looks(max_pairs: int) -> tuple[int, ...]:
    """After how many pairs the verdict is asked for: 8, 10, 13, ... and at the end."""
    found = []
    at = _FIRST_LOOK
    while at < max_pairs:
        found.append(at)
        at = math.ceil(at * _GROWTH)
    # A last look right after another one would cost more than it tells.
    if found and max_pairs < found[-1] * 1.1:
        found.pop()
    return (*found, max_pairs)


def level(max_pairs: int, methods: int = 1) -> float:
    """The level of each look at one of so many methods (Bonferroni's correction for these)."""
    return _level(len(looks(max_pairs))) / methods


def can_decide(rule: PairRule) -> bool:
    """Whether all pairs in one direction would be rare enough at the last look."""
    return rank_depth(rule.max_pairs, level(rule.max_pairs, rule.methods)) > 0


def _level(count: int) -> float:
    if count == 1:
        return FALSE_ALARMS
    return _SPACING * _POCOCK[count - 1] if count <= len(_POCOCK) else FALSE_ALARMS / count


def judge(
    log_ratios: Sequence[float] | Floats,
    direction: Direction,
    rule: PairRule,
    level_of_look: float | None = None,
) -> Judgement:
    """Say what the pairs have shown so far. Ask at `looks`, and once when they end early.

    `level_of_look` is for whoever looks at other times than these.
    """
    if len(log_ratios) == 0:
        return Judgement(verdict="undecided", pairs=0, ratio=None, interval=None, p_value=None)
    numbers = numbers_of(log_ratios)
    walsh = walsh_averages(numbers)
    if level_of_look is None:
        level_of_look = level(rule.max_pairs, rule.methods)
    depth = rank_depth(len(numbers), level_of_look)
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
    """The means of all pairs of the values, each with itself too, sorted.

    Their median is Hodges and Lehmann's estimate, their order statistics the interval that goes
    with Wilcoxon's test (Hollander and Wolfe, Nonparametric Statistical Methods, 3.2 and 3.3).
    """
    rows, columns = np.triu_indices(len(numbers))
    return np.sort((numbers[rows] + numbers[columns]) / 2)


@lru_cache(maxsize=1024)
def rank_depth(pairs: int, level: float) -> int:
    """Which Walsh average from either end bounds the interval; 0 when there is none."""
    # Of the sums below it, which are as likely as those above: at most half of the level.
    return int(np.searchsorted(np.cumsum(_rank_sums(pairs)), level / 2, side="right"))


@lru_cache(maxsize=256)
def _rank_sums(pairs: int) -> Floats:
    """How likely each sum of positive ranks is when both signs are."""
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
