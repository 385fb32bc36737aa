"""The order in which a data set is read, without end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def endless(count: int, *, shuffle: bool, seed: int) -> Iterator[int]:
    """The numbers 0 to `count` - 1 over and over, in order or shuffled anew in each epoch."""
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.permutation(count).tolist() if shuffle else range(count)
