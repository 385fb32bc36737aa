"""The order in which a data set is read, without end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np


def endless(
    count: int, *, shuffle: bool, seed: int, rank: int = 0, ranks: int = 1
) -> Iterator[int]:
    """The numbers 0 to `count` - 1 over and over, in order or shuffled anew in each epoch.

    Of several ranks each takes every `ranks`-th number of the same series.
    """
    return itertools.islice(_all(count, shuffle, seed), rank, None, ranks)


def _all(count: int, shuffle: bool, seed: int) -> Iterator[int]:
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.permutation(count).tolist() if shuffle else range(count)
