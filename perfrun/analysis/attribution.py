"""Attribute a difference of two versions to the rows of their profiles.

Profiles of both versions are taken in turns. A row is named when its interval excludes zero after
Bonferroni's correction for all rows that are tested, and when its difference is relevant. What
moves all rows alike (the machine in that minute, an interpreter that is slower throughout) is
estimated first, by the median over the larger rows, and is a finding of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

from perfrun.analysis.stats import ConfidenceInterval, Floats

FALSE_NAMES = 0.01  # chance that any row of an explanation is named when both sides are equal
FEWEST_TURNS = 4
TESTED_SHARE = 0.005  # of the base's total that a row takes on one side, at least
RELEVANT_SHARE = 0.01  # of the base's total by which a row differs, at least
OF_LARGEST = 0.05  # and this share of the largest difference of a row
_COMMON_SHARE = 0.01  # of the total: a row that counts for what all have in common
_FEWEST_COMMON = 5
_CLIP = 3.0  # standard deviations above the median of a side's profiles
_SIGMA_OF_MAD = 1.4826
_LARGEST_LOG = 50.0  # of a ratio: its exponential is a number

Row = TypeVar("Row", bound=Hashable)
Mask = npt.NDArray[np.bool_]
Profile = Mapping[Row, float]  # the value of each row, such as seconds a step


@dataclass(frozen=True, kw_only=True)
class Change:
    """A value on both sides, and their difference with its interval."""

    base: float
    new: float
    difference: float
    interval: ConfidenceInterval | None  # None for fewer than two turns

    @property
    def is_sure(self) -> bool:
        """True when the interval excludes zero."""
        return self.interval is not None and not self.interval.low <= 0 <= self.interval.high


@dataclass(frozen=True, kw_only=True)
class Attributed(Generic[Row]):
    """A row of the profiles."""

    row: Row
    change: Change  # beyond what all rows have in common
    named: bool


@dataclass(frozen=True, kw_only=True)
class Attribution(Generic[Row]):
    """The rows of profiles of one kind, the largest difference first."""

    rows: tuple[Attributed[Row], ...]
    total: Change  # of all rows together, as they were recorded
    common: Change | None  # ratio of new to base that all rows share; None with too few rows
    common_is_named: bool


def rows_to_test(base: Sequence[Profile[Row]], new: Sequence[Profile[Row]]) -> tuple[Row, ...]:
    """Return the rows that are large enough on one side to be relevant.

    Only the size decides, so that the choice does not favour differences.
    """
    sides = [_means(base), _means(new)]
    least = TESTED_SHARE * sum(abs(value) for value in sides[0].values())
    found = {row for side in sides for row, value in side.items() if abs(value) >= least > 0}
    return tuple(row for row in dict.fromkeys([*sides[0], *sides[1]]) if row in found)


def attribute(
    base: Sequence[Profile[Row]],
    new: Sequence[Profile[Row]],
    *,
    tests: int,
    has_common: bool,
) -> Attribution[Row]:
    """Attribute the difference; `base` and `new` have a profile of each turn.

    `tests` is the number of all intervals that share `FALSE_NAMES`. With `has_common` the rows are
    times, which a busy machine moves together.
    """
    rows = rows_to_test(base, new)
    level = FALSE_NAMES / max(1, tests)
    ours, theirs = _matrix(base, rows), _matrix(new, rows)
    sums = [np.array([sum(one.values()) for one in side]) for side in (base, new)]
    total = change_of(sums[0], sums[1], FALSE_NAMES)
    if not has_common:
        found = _judged(rows, ours, theirs, level, total, change_of)
        return Attribution(rows=found, total=total, common=None, common_is_named=False)
    named: set[Row] = set()
    # Rows that are named say nothing of what all share, so they are left out of it at the end.
    for _ in range(2):
        kept = np.array([row not in named for row in rows], dtype=bool)
        common = _common(ours, theirs, kept)
        sides = ours, theirs
        change = None
        if common is not None:
            sides = ours / np.exp(common[0])[:, None], theirs / np.exp(common[1])[:, None]
            change = _ratio(common[1] - common[0], level)
        found = _judged(rows, *sides, level, total, _change_of_times)
        named = {one.row for one in found if one.named}
    return Attribution(
        rows=found,
        total=total,
        common=change,
        common_is_named=change is not None
        and change.is_sure
        and abs(change.difference) >= RELEVANT_SHARE,
    )


def _judged(
    rows: Sequence[Row],
    base: Floats,
    new: Floats,
    level: float,
    total: Change,
    judge: Callable[[Floats, Floats, float], Change],
) -> tuple[Attributed[Row], ...]:
    """Return the rows, the largest difference first."""
    found = [(row, judge(base[:, at], new[:, at], level)) for at, row in enumerate(rows)]
    found.sort(key=lambda one: -abs(one[1].difference))
    largest = max((abs(change.difference) for _, change in found), default=0.0)
    least = max(RELEVANT_SHARE * abs(total.base), OF_LARGEST * largest)
    return tuple(
        Attributed(row=row, change=one, named=one.is_sure and abs(one.difference) >= least > 0)
        for row, one in found
    )


def change_of(base: Floats, new: Floats, level: float) -> Change:
    """Return the mean difference of pairs with Student's interval at a level."""
    apart = new - base
    interval = None
    if len(apart) > 1:
        quantile = float(special.stdtrit(len(apart) - 1, 1 - level / 2))
        reach = quantile * float(apart.std(ddof=1)) / math.sqrt(len(apart))
        middle = float(apart.mean())
        interval = ConfidenceInterval(low=middle - reach, high=middle + reach, confidence=1 - level)
    return Change(
        base=float(base.mean()) if len(base) else 0.0,
        new=float(new.mean()) if len(new) else 0.0,
        difference=float(apart.mean()) if len(apart) else 0.0,
        interval=interval,
    )


def _ratio(logs: Floats, level: float) -> Change:
    """Return the ratio whose logarithms these are; its difference is that from 1."""
    found = change_of(np.zeros(len(logs)), logs, level)
    interval = found.interval
    if interval is not None:
        low, high = math.expm1(interval.low), math.expm1(interval.high)
        interval = ConfidenceInterval(low=low, high=high, confidence=interval.confidence)
    ratio = math.exp(found.difference)
    return Change(base=1.0, new=ratio, difference=ratio - 1, interval=interval)


def _common(base: Floats, new: Floats, kept: Mask) -> tuple[Floats, Floats] | None:
    """Return the logarithm of what the kept rows of each profile share, of both sides.

    The reference is the median profile of base. None when too few rows are large on both sides.
    """
    middle = np.median(base, axis=0) if base.size else np.zeros(0)
    is_large = middle >= _COMMON_SHARE * middle.sum()
    both = kept & is_large & (base > 0).all(axis=0) & (new > 0).all(axis=0)
    if both.sum() < _FEWEST_COMMON:
        return None
    reference = np.median(np.log(base[:, both]), axis=0)
    found = [np.median(np.log(side[:, both]) - reference, axis=1) for side in (base, new)]
    return found[0], found[1]


def _change_of_times(base: Floats, new: Floats, level: float) -> Change:
    """Return the difference of times: the interval is that of their ratio.

    What disturbs a time multiplies it, more often by much than by little, so the logarithms are
    compared, and those far above the others of a side are clipped: a process that takes the
    processor for milliseconds makes one row of one profile longer. A row that one side lacks has
    no ratio.
    """
    if not ((base > 0).all() and (new > 0).all()):
        return change_of(base, new, level)
    logs = _clipped(np.log(base)), _clipped(np.log(new))
    found = change_of(*logs, level)
    before, after = math.exp(found.base), math.exp(found.new)
    interval = found.interval
    if interval is not None:
        low, high = (
            before * math.expm1(min(end, _LARGEST_LOG)) for end in (interval.low, interval.high)
        )
        interval = ConfidenceInterval(low=low, high=high, confidence=interval.confidence)
    return Change(base=before, new=after, difference=after - before, interval=interval)


def _clipped(values: Floats) -> Floats:
    middle = float(np.median(values))
    spread = _SIGMA_OF_MAD * float(np.median(np.abs(values - middle)))
    clipped: Floats = np.minimum(values, middle + _CLIP * spread)
    return clipped


def _means(side: Sequence[Profile[Row]]) -> dict[Row, float]:
    sums: dict[Row, float] = {}
    for one in side:
        for row, value in one.items():
            sums[row] = sums.get(row, 0.0) + value
    return {row: value / len(side) for row, value in sums.items()}


def _matrix(side: Sequence[Profile[Row]], rows: Sequence[Row]) -> Floats:
    return np.array([[one.get(row, 0.0) for row in rows] for one in side], dtype=float).reshape(
        len(side), len(rows)
    )
