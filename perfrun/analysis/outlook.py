"""Say what a history shows before the rules of `detection` decide, and what they could see in it.

* A shift that is not sure yet: the best split of the last observations whose evidence is within a
  factor of what the rules ask for. How many more observations they need is tried: the history is
  continued at the new level with its own noise, and the same rules judge the continuation.
* The smallest change that would be seen: so many standard deviations of the noise, by the number
  of observations (`SEEN`, which `simulations/outlook.py` computes with the rules), times the noise
  of this history, which so few observations know only roughly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perfrun.analysis.changepoint import ALARM, SeriesWatch
from perfrun.analysis.detection import FALSE_DISCOVERIES, MIN_EFFECT, History
from perfrun.analysis.noise import LEAST_SCALE
from perfrun.analysis.scan import (
    MOST_AFTER,
    SEPARATION_AFTER,
    SEPARATION_BEFORE,
    YOUNG_BEFORE,
)

Floats = NDArray[np.float64]

_VISIBLE = 10.0  # times the p-value that the rules ask for
_GAP = 2.0  # between two groups that lie apart, in ranges of the wider one
_FEWEST_APART = 3  # observations of the group after, so that chance rarely makes such a gap
_DRAWS = 60  # continuations of a history
_SEED = 20261122
_STALE = 14  # nights without an observation, after which a history has ended
_CONFIDENCE = 0.9  # of the noise's interval
FEWEST_FOR_NOISE = 3  # observations from which on anything is said about noise
SEEN_WITHIN = 14  # observations after a change
SEEN_SHARE = 0.9  # of changes of that size, at least
# Observations before a change, and the least change in standard deviations that is seen, where the
# p-value has to be at most that of `_NEEDED`: the latter falls with the number of series.
SEEN = (
    (6, (10.0, 10.0, 10.0)),
    (12, (11.0, 12.0, 12.0)),
    (16, (10.0, 11.0, 11.5)),
    (20, (9.0, 11.0, 11.5)),
    (25, (6.0, 10.0, 11.5)),
    (30, (3.5, 8.5, 11.0)),
    (35, (2.5, 6.5, 10.0)),
    (40, (2.1, 3.0, 7.5)),
    (50, (1.8, 2.5, 3.4)),
    (60, (1.8, 2.3, 2.8)),
)
NEEDED = (ALARM, ALARM / 10, ALARM / 100)


@dataclass(frozen=True, kw_only=True)
class UnsureShift:
    """A shift of level that the rules do not call yet; indices as in `detection.Detected`."""

    series: int
    first_after: int
    after: int  # observations at the new level
    ratio: float  # after over before
    needed: int | None  # more observations, if the shift goes on; None: more than `MOST_AFTER`
    needed_low: int | None  # the same in a tenth of the continuations
    needed_high: int | None  # and in nine tenths of them


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The changes that the rules would see in a history, as ratios less one."""

    nights: int  # observations so far
    noise: float  # standard deviation between them
    noise_low: float  # its 90 % interval
    noise_high: float
    wait: int  # observations until a change can begin that is seen at all
    seen: float  # lasting change that is then seen in nine of ten cases, for the largest noise
    wanted: float  # a smaller one
    more: int | None  # observations until that is seen, for the noise so far; None: it never is


def needed_p_value(series: int) -> float:
    """Return the p-value with which a change is called, if no other is in that night."""
    return min(ALARM, FALSE_DISCOVERIES / max(series, 1))


def unsure_shifts(
    histories: Sequence[History], watches: Sequence[SeriesWatch], most: int
) -> tuple[UnsureShift, ...]:
    """Return the shifts that the rules do not call yet, largest first.

    `watches` are those of the histories, with all changes that were called.
    """
    newest = max((history.nights[-1] for history in histories if len(history.nights)), default=0)
    needed = needed_p_value(len(histories))
    found = []
    for number, (history, watch) in enumerate(zip(histories, watches, strict=True)):
        if len(watch) and history.nights[-1] >= newest - _STALE:
            split = _visible_split(watch, needed)
            if split is not None:
                shift = _shift(watch, split)
                if abs(shift) >= math.log1p(MIN_EFFECT):
                    found.append((abs(shift), number, split, shift))
    found.sort(reverse=True)
    return tuple(
        _unsure(number, split, shift, watches[number], needed)
        for _, number, split, shift in found[:most]
    )


def _unsure(
    number: int, split: int, shift: float, watch: SeriesWatch, needed: float
) -> UnsureShift:
    low, middle, high = _more_needed(watch, split, needed)
    return UnsureShift(
        series=number,
        first_after=split,
        after=len(watch) - split,
        ratio=math.exp(shift),
        needed=middle,
        needed_low=low,
        needed_high=high,
    )


def _visible_split(watch: SeriesWatch, needed: float) -> int | None:
    """Return where the level of the last observations seems to begin; None where nothing is seen.

    The score's p-value tells most shifts. It tells none in a young history, where a large step
    looks like autocorrelation: there the last observations have to lie apart from those before.
    """
    apart = _split_apart(watch.logs[watch.start :])
    if apart is not None:
        return watch.start + apart
    if watch.score_p_values[-1] <= _VISIBLE * needed:
        return watch.split_now()
    return None


def _split_apart(logs: Floats) -> int | None:
    best, found = 0.0, None
    for after in range(_FEWEST_APART, SEPARATION_AFTER):
        split = len(logs) - after
        if split < YOUNG_BEFORE - 1:
            break
        before, new = logs[max(0, split - SEPARATION_BEFORE) : split], logs[split:]
        gap = max(new.min() - before.max(), before.min() - new.max())
        if gap <= 0:  # nearly always
            continue
        width = max(np.ptp(before), np.ptp(new), 2.5 * LEAST_SCALE)
        distance = abs(float(np.median(new) - np.median(before))) / width
        if distance > max(_GAP, best):
            best, found = distance, split
    return found


def _shift(watch: SeriesWatch, split: int) -> float:
    before, after = _around(watch, split)
    return float(np.median(after) - np.median(before))


def _around(watch: SeriesWatch, split: int) -> tuple[Floats, Floats]:
    return watch.logs[watch.start : split], watch.logs[split:]


def _more_needed(
    watch: SeriesWatch, split: int, needed: float
) -> tuple[int | None, int | None, int | None]:
    """Continue the history at its new level; return after how many observations it is called.

    The three are those of a tenth, half and nine tenths of the continuations.
    """
    before, after = _around(watch, split)
    level = float(np.median(after))
    noise = before - np.median(before)
    # Residuals from an own median are too small by this much.
    noise = noise * math.sqrt(len(noise) / max(len(noise) - 1, 1))
    generator = np.random.default_rng(_SEED)
    news = level + generator.choice(noise, size=(_DRAWS, MOST_AFTER))
    called = watch.continued(news) <= needed
    first = np.where(called.any(axis=1), called.argmax(axis=1) + 1, MOST_AFTER + 1)
    first.sort()
    low, middle, high = (int(first[round(share * (_DRAWS - 1))]) for share in (0.1, 0.5, 0.9))
    return _known(low), _known(middle), _known(high)


def _known(count: int) -> int | None:
    return count if count <= MOST_AFTER else None


def sensitivity(watch: SeriesWatch, series: int, wanted: float) -> Sensitivity | None:
    """Return the changes that would be seen in a history, which is one of so many series.

    None with too few observations at one level to say anything about noise. A shift that is not
    sure yet is no noise.
    """
    if len(watch) < FEWEST_FOR_NOISE:
        return None
    own = watch.logs[watch.start : _visible_split(watch, needed_p_value(series))]
    count, nights = len(own), len(watch)
    if count < FEWEST_FOR_NOISE:
        return None
    noise = max(float(np.std(own, ddof=1)), LEAST_SCALE)
    tail = (1 - _CONFIDENCE) / 2
    # chdtri takes the share above; the chi-squared distribution is that of the variance.
    low, high = (
        noise * math.sqrt((count - 1) / float(special.chdtri(count - 1, share)))
        for share in (tail, 1 - tail)
    )
    column = sum(needed_p_value(series) < 0.999 * limit for limit in NEEDED[:-1])
    size = math.log1p(wanted)
    enough = [before for before, sizes in SEEN if sizes[column] * noise <= size]
    later = [before for before in enough if before >= nights]
    more = 0 if _seen_from(nights, column) * noise <= size else min(later, default=0) - nights
    return Sensitivity(
        nights=nights,
        noise=math.expm1(noise),
        noise_low=math.expm1(low),
        noise_high=math.expm1(high),
        wait=max(YOUNG_BEFORE - nights, 0),
        seen=max(math.expm1(_seen_from(nights, column) * high), MIN_EFFECT),
        wanted=wanted,
        more=more if more >= 0 else None,
    )


def _seen_from(count: int, column: int) -> float:
    """Return the least change that is seen after so many observations, in standard deviations."""
    place = bisect_right([before for before, _ in SEEN], count) - 1
    return SEEN[max(place, 0)][1][column]
