"""Where the level of a series of nights changed, judged as a nightly job has to: from the past.

The verdict of each night rests on that night and those before it. So a change that was reported is
reported again tomorrow, and the false alarms that are counted are those of all nights' looks.

Every night is compared, for each number of last nights that may lie after a change, with the
nights before those, in logarithms:

* against an M-estimate of the level before (Huber, Annals of Mathematical Statistics 35, 1964); a
  night far out counts as two standard deviations, so no single night raises an alarm unless
  others have all but raised it;
* by the series' own noise, its memory included: nights are taken as AR(1) and compared by
  generalised least squares, in which the night of the step itself weighs most. The memory is taken
  larger than it looks, because in short series it looks too small.

The constants are chosen by `simulations/detect.py`; docs/detecting.md has its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FEWEST_BEFORE = 12  # nights of a series before its first verdict
FEWEST_AFTER = 2  # nights at the new level
MOST_AFTER = 21
ALARM = 0.005  # the p-value of a night, for all numbers of nights after together
_FEWEST_LEVEL = 4  # nights from which the level after a change is known well enough for the next
_BEFORE = 60  # nights that say what was before, at most
_REACH = 2.1  # standard deviations; what is farther out counts as this
_FAR = 4.0  # standard deviations from which a night is an outlier
_MEMORY_MARGIN = 6.0  # by which the memory is taken larger, over the number of nights
_MOST_MEMORY = 0.8
_FLOOR = 5e-4  # relative; clocks make noise look smaller than it is
_TO_SIGMA = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
_INNER = 0.6  # weight of the bulk in the spread
_LOOKS = 5.0  # independent tests that all the numbers of nights after amount to
_OF_MEDIANS = 1.2533  # standard error of a median, in those of a mean
_CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of level. Indices count the observations given; levels are logarithms."""

    first_after: int  # first observation at the new level
    alarm: int  # observation with which the evidence was enough
    p_value: float
    shift: float  # level after less level before: of up to 60 nights before, 21 after
    reach: float  # half the width of its 95 % interval


class _Past(NamedTuple):
    """For each end (exclusive) of the nights before: their level and noise."""

    level: Floats
    scale: Floats  # standard deviation of the bulk of single nights
    spread: Floats  # standard deviation of nights that are cut off at `_REACH`, in scales
    memory: Floats
    fresh: Floats  # variance of what is new in a night, in variances of a night
    nights: Floats  # that the level rests on
    noise_nights: Floats  # that the noise rests on


class Watch:
    """One series, looked at night by night; `cut` accepts an alarm, and what follows is new."""

    def __init__(self, values: Sequence[float] | Floats) -> None:
        """Values must be positive and finite (ValueError), in the order of their time."""
        numbers = np.asarray(values, dtype=np.float64)
        if not (np.isfinite(numbers).all() and (numbers > 0).all()):
            raise ValueError("a change of level is looked for in positive, finite values")
        self._logs = np.log(numbers)
        self._starts = [0]
        self._levels = np.zeros(len(numbers))  # of nights before the last start
        self._cuts: list[tuple[int, float, _Past]] = []
        self.p_values = np.ones(len(numbers))
        self._splits = np.zeros(len(numbers), dtype=np.int64)
        self._look(0)

    def __len__(self) -> int:
        return len(self._logs)

    def shift(self, alarm: int) -> float:
        """By how much, as a logarithm, the nights up to this alarm differ from those before."""
        split = int(self._splits[alarm])
        begin = max(self._starts[-1], split - _BEFORE)
        after = self._logs[split : alarm + 1]
        return float(np.median(after) - np.median(self._logs[begin:split]))

    def cut(self, alarm: int) -> None:
        """Accept the alarm of this observation: from its change on, the level is a new one."""
        start, split = self._starts[-1], int(self._splits[alarm])
        past = _past(self._logs, self._levels, np.array([split]), start)
        split = _place(self._logs[: alarm + 1], split, float(past.level[0]), start + 1)
        self._cuts.append((alarm, float(self.p_values[alarm]), past))
        self._levels[start:split] = past.level[0]
        self._starts.append(split)
        self._look(alarm + 1)

    def changes(self) -> tuple[Change, ...]:
        """All that was accepted, in its order; sizes rest on all nights that are known by now."""
        ends = [*self._starts[2:], len(self)]
        rows = zip(self._starts, self._starts[1:], ends, self._cuts, strict=False)
        return tuple(self._change(*row) for row in rows)

    def moved(self, since: int, first_after: int, last_after: int) -> tuple[float, float]:
        """One question, asked once: shift and p-value of these nights against those since `since`.

        (0, 1) where too few nights are known.
        """
        begin = max(s for s in self._starts if s <= max(first_after - _FEWEST_LEVEL, 0))
        start = max(begin, since)
        after = min(last_after - first_after + 1, MOST_AFTER)
        if first_after - start < _FEWEST_LEVEL or first_after < FEWEST_BEFORE or after < 1:
            return 0.0, 1.0
        levels = self._levels.copy()
        if start > begin:
            levels[begin:start] = np.median(self._logs[begin:start])
        ends = np.array([first_after])
        past = _past(self._logs, levels, ends, start)
        score = _scores(self._logs, past, ends)[0, after - 1]
        p_value = 2 * special.stdtr(float(past.noise_nights[0]) - 2, -score)
        rows = self._logs[first_after : first_after + after]
        return float(np.median(rows) - past.level[0]), float(p_value)

    def _look(self, since: int) -> None:
        """Bring the p-values from `since` on up to date with the last start."""
        self.p_values[since:] = 1.0
        start = self._starts[-1]
        fewest = FEWEST_BEFORE if start == 0 else _FEWEST_LEVEL
        ends = np.arange(start + fewest, len(self) - FEWEST_AFTER + 1)
        if not len(ends):
            return
        past = _past(self._logs, self._levels, ends, start)
        scores = _scores(self._logs, past, ends)
        best, freedom = np.zeros(len(self)), np.ones(len(self))
        for after in range(FEWEST_AFTER, min(MOST_AFTER, len(self) - int(ends[0])) + 1):
            first = int(ends[0]) + after - 1  # the night that is the last of `after`
            column = scores[: len(self) - first, after - 1]
            better = np.flatnonzero(column > best[first:])
            best[first + better] = column[better]
            freedom[first + better] = past.noise_nights[better] - 2
            new = better[first + better >= since]
            self._splits[first + new] = ends[new]
        tails = 2 * special.stdtr(freedom[since:], -best[since:])
        self.p_values[since:] = np.minimum(_LOOKS * tails, 1.0)

    def _change(self, start: int, split: int, end: int, cut: tuple[int, float, _Past]) -> Change:
        alarm, p_value, past = cut
        before = self._logs[max(start, split - _BEFORE) : split]
        after = self._logs[split : min(end, split + MOST_AFTER)]
        variance = _mean_variance(past.memory, len(before))
        variance = variance + _mean_variance(past.memory, len(after))
        error = _OF_MEDIANS * float((past.scale * past.spread * np.sqrt(variance))[0])
        quantile = special.stdtrit(max(float(past.noise_nights[0]) - 2, 1), (1 + _CONFIDENCE) / 2)
        return Change(
            first_after=split,
            alarm=alarm,
            p_value=p_value,
            shift=float(np.median(after) - np.median(before)),
            reach=float(quantile) * error,
        )


def _past(logs: Floats, levels: Floats, ends: Integers, start: int) -> _Past:
    """Level of the nights from `start` on before each end, and noise of those before `start` too.

    `levels` says about which level the nights before `start` lie.
    """
    places = ends[:, None] - _BEFORE + np.arange(_BEFORE)[None, :]
    known, own = places >= 0, places >= start
    places = np.maximum(places, 0)
    values, others = logs[places], levels[places]
    count, noise_count = own.sum(axis=1), known.sum(axis=1)
    level = _row_medians(np.where(own, values, np.inf), count)
    for _ in range(2):  # the second time about the better level
        residuals = values - np.where(own, level[:, None], others)
        sizes = np.where(known, np.abs(residuals), np.inf)
        scale = np.maximum(_TO_SIGMA * _row_medians(sizes, noise_count), _FLOOR)
        scores = np.where(known, residuals / scale[:, None], 0.0)
        bounded = np.clip(scores, -_REACH, _REACH)
        level = level + scale * np.where(own, bounded, 0.0).sum(axis=1) / count
    squares = np.maximum((bounded**2).sum(axis=1), 1e-12)
    memory = (bounded[:, 1:] * bounded[:, :-1]).sum(axis=1) / squares
    memory = memory + (1 + 3 * np.maximum(memory, 0)) / noise_count  # it looks too small by this
    memory = np.clip(np.maximum(memory, 0) + _MEMORY_MARGIN / noise_count, 0, _MOST_MEMORY)
    news = bounded[:, 1:] - memory[:, None] * bounded[:, :-1]
    news[~known[:, :-1]] = 0.0
    fresh = (news**2).sum(axis=1) / squares * noise_count / (noise_count - 1)
    return _Past(
        level=level,
        scale=scale,
        spread=_spread(scores, bounded, known),
        memory=memory,
        fresh=np.maximum(fresh, 1 - memory**2),
        nights=count.astype(np.float64),
        noise_nights=noise_count.astype(np.float64),
    )


def _spread(scores: Floats, bounded: Floats, known: NDArray[np.bool_]) -> Floats:
    """Of nights cut off at `_REACH`; outliers count by half.

    They hardly tell anything about a small step, and much about a large one.
    """
    near = known & (np.abs(scores) <= _FAR)
    squares = bounded**2
    inner = np.where(near, squares, 0.0).sum(axis=1) / np.maximum(near.sum(axis=1) - 1, 1)
    whole = squares.sum(axis=1) / np.maximum(known.sum(axis=1) - 1, 1)
    spread: Floats = np.sqrt(np.maximum(_INNER * inner + (1 - _INNER) * whole, 0.25))
    return spread


def _scores(logs: Floats, past: _Past, begins: Integers) -> Floats:
    """How many standard errors 1, 2, ... `MOST_AFTER` nights from each begin lie from those before.

    What would go beyond the last night is without meaning.
    """
    padded = np.concatenate([logs, np.full(MOST_AFTER, logs[-1])])
    windows = sliding_window_view(padded, MOST_AFTER + 1)[begins - 1]  # with the night before
    nights = (windows - past.level[:, None]) / past.scale[:, None]
    np.clip(nights, -_REACH, _REACH, out=nights)
    memory = past.memory[:, None]
    news = nights[:, 1:] - memory * nights[:, :-1]
    news[:, 1:] *= 1 - memory  # weights of generalised least squares: the first night has 1
    weight = 1 + np.arange(MOST_AFTER) * (1 - memory) ** 2
    variance = past.fresh[:, None] / weight + _mean_variance(past.memory, past.nights)[:, None]
    moved = np.abs(np.cumsum(news, axis=1)) / weight
    scores: Floats = moved / (past.spread[:, None] * np.sqrt(variance))
    return scores


def _place(logs: Floats, split: int, level: float, first: int) -> int:
    """The night from which on nights lie nearer to the level after than to the one before.

    The score that raised the alarm says that there is a change; cut off as it is, it is not sharp
    about where a large one began. Sums of absolute deviations are, and outliers hardly move them.
    """
    after = float(np.median(logs[split:]))
    begin = max(first, split - FEWEST_BEFORE)
    nearer = np.abs(logs[begin:] - level) - np.abs(logs[begin:] - after)
    sums = np.cumsum(nearer[::-1])[::-1]
    return begin + int(np.argmax(sums[: len(sums) - FEWEST_AFTER + 1]))


def _mean_variance(memory: Floats, count: Floats | int) -> Floats:
    """Variance of a mean of so many values of an AR(1) process, in variances of one value."""
    rest = 1 - memory
    whole = (1 + memory) / rest - 2 * memory * (1 - memory**count) / (count * rest**2)
    variance: Floats = whole / count
    return variance


def _row_medians(rows: Floats, counts: Integers) -> Floats:
    """Median of the `counts` smallest values of each row; the rest is infinite."""
    ordered = np.sort(rows, axis=1)
    low = np.take_along_axis(ordered, ((counts - 1) // 2)[:, None], axis=1)[:, 0]
    high = np.take_along_axis(ordered, (counts // 2)[:, None], axis=1)[:, 0]
    medians: Floats = (low + high) / 2
    return medians
