"""A history as one word: a block for each night, as high as its figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TextIO

from perfrun.shown import as_is

_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_GAP = "\u00b7"
_LEAST_HEIGHT = 0.05  # of the median to either side: noise shall not look like steps


def sparkline(history: Sequence[float | None]) -> str:
    """Return a block for each night, as high as its figure, and a dot for each gap.

    The height spans at least five percent to either side of the median, so that noise stays flat.
    """
    known = sorted(value for value in history if value is not None)
    if not known:
        return ""
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    reach = _LEAST_HEIGHT * abs(middle)
    low, high = min(known[0], middle - reach), max(known[-1], middle + reach)
    return "".join(_GAP if value is None else _block(value, low, high) for value in history)


def shortened(values: Sequence[float], most: int) -> list[float]:
    """Return at most so many values: medians of neighbours where there are more."""
    if len(values) <= most:
        return list(values)
    ends = [len(values) * place // most for place in range(most + 1)]
    return [median(values[begin:end]) for begin, end in pairwise(ends)]


def can_show_blocks(stream: TextIO) -> bool:
    """Return True when the encoding of a stream has blocks, and the dots of Braille."""
    try:
        "\u2588\u258f\u2801".encode(as_is(stream).encoding or "ascii")
    except (LookupError, UnicodeError):
        return False
    return True


def _block(value: float, low: float, high: float) -> str:
    height = high - low
    if not 0 < height < math.inf:
        return _BLOCKS[len(_BLOCKS) // 2]
    return _BLOCKS[min(int((value - low) / height * len(_BLOCKS)), len(_BLOCKS) - 1)]
