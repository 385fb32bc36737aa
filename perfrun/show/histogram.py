"""A histogram of a trial's steps as lines of text: blocks, or ASCII where they cannot be shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfrun.text import duration, rounded, scale_of

_MOST_BINS = 8
_FEWEST = 5  # times; fewer are shown one by one
_FENCE = 3.0  # interquartile ranges above the upper quartile: Tukey's outer fence
_BLOCKS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"  # eighths of a character


@dataclass(frozen=True, kw_only=True)
class Bin:
    """The times from `low` to `high` seconds. The last one may hold all that are longer."""

    low: float
    high: float
    count: int
    is_open: bool = False  # `high` is the longest time, far from the others


def histogram(times: Sequence[float]) -> tuple[Bin, ...]:
    """Sort times into bins of equal width; none for fewer than five times, or without a spread.

    A few times that are much longer than the others get a bin of their own: otherwise all others
    would be in the first one.
    """
    ordered = sorted(times)
    if len(ordered) < _FEWEST or ordered[0] == ordered[-1]:
        return ()
    lower, upper = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    fence = upper + _FENCE * max(upper - lower, 0.01 * upper)
    inside = [one for one in ordered if one <= fence]
    beyond = len(ordered) - len(inside)
    low, high = inside[0], inside[-1]
    wanted = min(_MOST_BINS - bool(beyond), 1 + math.ceil(math.log2(len(inside))))
    width = (high - low) / wanted
    counts = [0] * wanted
    for one in inside:
        counts[min(wanted - 1, int((one - low) / width)) if width else 0] += 1
    if not width:  # all but the outliers are alike
        counts = [len(inside)]
    bins = [
        Bin(low=low + at * width, high=low + (at + 1) * width, count=count)
        for at, count in enumerate(counts)
    ]
    if beyond:
        bins.append(Bin(low=fence, high=ordered[-1], count=beyond, is_open=True))
    return tuple(bins)


def histogram_lines(bins: Sequence[Bin], width: int, *, blocks: bool) -> list[str]:
    """Return one line a bin: its times, a bar and the count, in at most `width` characters."""
    if not bins:
        return []
    scale, unit = scale_of(bins[0].high, "s")
    names = [_range(one, scale, unit) for one in bins]
    longest = max(map(len, names))
    digits = max(len(f"{one.count:,}") for one in bins)
    room = max(1, width - longest - digits - 3)
    most = max(one.count for one in bins)
    return [
        f"{name:>{longest}} {_bar(one.count / most * room, blocks=blocks):<{room}}"
        f"  {one.count:>{digits},}"
        for name, one in zip(names, bins, strict=True)
    ]


def _range(one: Bin, scale: float, unit: str) -> str:
    if one.is_open:
        return f"longer, to {duration(one.high, 3)}"
    return f"{rounded(one.low / scale)}..{rounded(one.high / scale)} {unit}"


def _bar(length: float, *, blocks: bool) -> str:
    """Return a bar of so many characters; what is not nothing is seen."""
    if not blocks:
        return "#" * (max(1, round(length)) if length else 0)
    whole, rest = divmod(max(1, round(8 * length)) if length else 0, 8)
    return "\u2588" * whole + (_BLOCKS[rest] if rest else "")
