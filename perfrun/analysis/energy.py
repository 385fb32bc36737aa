"""Whether two groups of nights are drawn alike, by the energy statistic on ranks.

The statistic of E-divisive (Matteson and James, JASA 109, 2014) is the energy distance between the
nights before a split and those after it. Taken on ranks it is the criterion of Cramer and von Mises
(Anderson, Annals of Mathematical Statistics 33, 1962): no outlier and no tail moves it, and its
distribution without a change is the same for every series, so that it need not be permuted anew.
The memory of the noise is taken out first, as permutations know of none.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DRAWS = 4000  # permutations that a table rests on
_AT_ONCE = 250  # what is in work fits into a processor's cache
_NIGHTS = 60  # before the split, of the tables; once moments are matched it hardly matters
_TAIL = 0.01  # probability below which the tail is taken as exponential, as it is in the limit


def whitened(nights: Floats, memory: float | Floats) -> Floats:
    """What is new in each night of an AR(1) process, as wide as the nights themselves.

    Nights are the last axis; `memory` is one, or has 1 there.
    """
    news = nights.copy()
    news[..., 1:] -= memory * nights[..., :-1]
    news[..., 1:] /= np.sqrt(1 - np.square(memory))
    return news


def energy_p_values(rows: Floats, split: int, memory: Floats) -> Floats:
    """Probability of nights from `split` on lying so far from those before, if nothing changed.

    A row is a series of nights, and has a memory of its own.
    """
    count = rows.shape[1]
    after = count - split
    order = np.argsort(whitened(rows, memory[:, None]), axis=1, kind="stable")
    values = _standardised(order >= split, after)
    table = _table(after)
    shares = (len(table) - np.searchsorted(table, values - 1e-9)) / len(table)
    begin, end = table[-1 - round(_TAIL * _DRAWS)], table[-1 - round(_TAIL * _DRAWS / 10)]
    slope = math.log(10) / max(float(end - begin), 1e-9)
    least = 1 / math.comb(count, after)  # no permutation test can say less
    tails = np.maximum(_TAIL * np.exp(-slope * np.maximum(values - begin, 0)), least)
    p_values: Floats = np.where(values <= begin, shares, tails)
    return p_values


@lru_cache(maxsize=64)
def _table(after: int) -> Floats:
    """The statistic of permutations, in ascending order; the seed is fixed."""
    generator = np.random.default_rng([20261121, after])
    found = []
    for _ in range(_DRAWS // _AT_ONCE):
        shuffled = np.argsort(generator.random((_AT_ONCE, _NIGHTS + after)), axis=1) >= _NIGHTS
        found.append(_standardised(shuffled, after))
    return np.sort(np.concatenate(found))


def _standardised(is_after: NDArray[np.bool_], after: int) -> Floats:
    """The criterion of rows of nights in the order of their values, by its mean and spread."""
    count = is_after.shape[1]
    before = count - after
    # The gap between the two shares, times both groups: whole numbers, so nothing is rounded.
    gaps = np.cumsum(is_after, axis=1, dtype=np.float64)
    gaps *= count
    gaps -= after * np.arange(1, count + 1)
    product = float(before * after)
    criterion = np.einsum("ij,ij->i", gaps, gaps) / (product * count**2)
    mean = (1 + 1 / count) / 6
    unequal = 3 * (before**2 + after**2) / (4 * product)
    variance = (count + 1) / (45 * count**2) * (count - unequal - 0.5)
    values: Floats = (criterion - mean) / math.sqrt(variance)
    return values
