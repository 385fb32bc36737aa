"""Tell a drift from steps: a level that moved a little every night, or at once in one.

A search for steps sees a drift as one step or several, each in a night in which nothing special
happened. A run of changes in one direction is a drift when a level that holds, rises evenly and
holds again describes its nights much better than its steps do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEWEST_DAYS = 7  # that a drift lasts; what is shorter is a step that took its time
_MOST_BEFORE, _MOST_IN_ALL = 40, 240  # observations that are looked at
_MOST_RUNS = 8  # changes of a drift that are judged together
_NEAR = 3  # by which a place may be off
_PLACES = 48  # at most, that are tried for each end
_MARGIN = 10.0  # in units of the Bayesian information criterion: odds of 150 to 1
_LEAST_NOISE = 1e-4  # what is more even than that is not told apart
_OUTLIER = 3.0  # robust standard deviations

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A level that moved evenly between two observations."""

    first: int  # the last one at the level before
    last: int  # the first one at the level after; the newest one while it goes on
    change: float  # of the logarithm, in all


def drifts_of(
    logs: Sequence[float], days: Sequence[float], steps: Sequence[tuple[int, int]]
) -> list[Drift | None]:
    """Return the drift that each change is part of, and None for those that are steps.

    `steps` are all changes of a series: the place of the first observation at the new level, and 1
    or -1 for up or down. The longest runs in one direction are tried first.
    """
    values, times = np.asarray(logs, dtype=np.float64), np.asarray(days, dtype=np.float64)
    found: list[Drift | None] = [None] * len(steps)
    is_free = [True] * len(steps)
    for length in range(min(len(steps), _MOST_RUNS), 0, -1):
        for at in range(len(steps) - length + 1):
            run = range(at, at + length)
            if not all(is_free[i] for i in run) or len({steps[i][1] for i in run}) > 1:
                continue
            first = steps[at - 1][0] if at else 0
            last = steps[at + length][0] if at + length < len(steps) else len(values)
            first = max(first, steps[at][0] - _MOST_BEFORE)
            last = min(last, first + _MOST_IN_ALL)
            places = [steps[i][0] - first for i in run]
            one = _drift(values[first:last], times[first:last], places, steps[at][1])
            if one is None:
                continue
            moved = Drift(first=first + one.first, last=first + one.last, change=one.change)
            for i in run:
                found[i], is_free[i] = moved, False
    return found


def _drift(values: Floats, times: Floats, places: Sequence[int], sign: int) -> Drift | None:
    """Return the drift that these steps are; None where the steps describe the nights as well."""
    number = len(values)
    if number < 8 or not all(0 < place < number for place in places):
        return None
    noise = max(_LEAST_NOISE, _noise(values))
    clipped = _clipped(values, noise)
    stepped = clipped - _stepped(clipped, _placed(clipped, places))
    tried = np.unique(np.linspace(0, number - 1, min(number, _PLACES)).astype(np.int64))
    firsts, lasts = (grid.ravel() for grid in np.meshgrid(tried, tried))
    lengths = times[lasts] - times[firsts]
    is_long = lengths >= FEWEST_DAYS
    if not is_long.any():
        return None
    firsts, lasts, lengths = firsts[is_long], lasts[is_long], lengths[is_long]
    shapes = np.clip((times - times[firsts, None]) / lengths[:, None], 0.0, 1.0)
    shapes -= shapes.mean(axis=1, keepdims=True)
    about_mean = clipped - clipped.mean()
    spread = (shapes**2).sum(axis=1)
    slopes = (shapes @ about_mean) / np.where(spread > 0, spread, np.inf)
    left = (about_mean**2).sum() - slopes**2 * spread
    best = int(np.argmin(np.where(np.sign(slopes) == sign, left, np.inf)))
    if np.sign(slopes[best]) != sign:
        return None
    memory = _memory(about_mean - slopes[best] * shapes[best])
    independent = number * (1 - memory) / (1 + memory)
    floor = number * _LEAST_NOISE**2
    ratio = max(float((stepped**2).sum()), floor) / max(float(left[best]), floor)
    # A ramp has two levels and two ends; steps have a level more than places.
    more = 2 * len(places) + 1 - 4
    if independent * np.log(ratio) + more * np.log(independent) < _MARGIN:
        return None
    return Drift(first=int(firsts[best]), last=int(lasts[best]), change=float(slopes[best]))


def _noise(values: Floats) -> float:
    return float(1.4826 * np.median(np.abs(np.diff(values))) / np.sqrt(2.0))


def _clipped(values: Floats, noise: float) -> Floats:
    """Bring outliers near to the median of the five around them; a step stays a step."""
    padded = np.pad(values, 2, mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    return np.clip(values, middle - _OUTLIER * noise, middle + _OUTLIER * noise)


def _stepped(values: Floats, places: Sequence[int]) -> Floats:
    levels = np.empty_like(values)
    for first, last in zip((0, *places), (*places, len(values)), strict=True):
        levels[first:last] = values[first:last].mean()
    return levels


def _placed(values: Floats, places: Sequence[int]) -> list[int]:
    """Return the places that suit best near those that a search has found."""
    placed = list(places)
    for at, place in enumerate(places):
        first = placed[at - 1] if at else 0
        last = places[at + 1] if at + 1 < len(places) else len(values)
        near = range(max(first + 1, place - _NEAR), min(last - 1, place + _NEAR) + 1)
        own = values[first:last]
        placed[at] = min(near, key=lambda one: _around(own, one - first), default=place)
    return placed


def _around(values: Floats, place: int) -> float:
    return float(values[:place].var() * place + values[place:].var() * (len(values) - place))


def _memory(left: Floats) -> float:
    """Return the correlation of neighbours in what a description leaves, up to 0.8."""
    square = float((left**2).sum())
    if square <= 0:
        return 0.0
    return float(np.clip((left[1:] * left[:-1]).sum() / square, 0.0, 0.8))
