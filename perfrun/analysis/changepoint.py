"""Where the level of a series of nights changed, judged as a nightly job has to: from the past.

The verdict of each night rests on that night and those before it. So a change that was reported is
reported again tomorrow, and the false alarms that are counted are those of all nights' looks.

Every night is compared, for each number of last nights that may lie after a change, with the
nights before those, in logarithms:

* by a score: generalised least squares by the series' own level and noise, memory included
  (`nightnoise`), in which the night of the step itself weighs most;
* by the energy statistic on ranks (`energy`), where the score has something to say: it is fooled
  neither by tails nor by outliers, which the score is by and by. The larger p-value counts;
* by `separation`: a gap so large that no memory is asked for, for young histories. It overrules.

PELT is asked afterwards, about all nights there are (`hindsight`): those above raise alarms
early, and it knows what came of them.

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

from perfrun.analysis.energy import energy_p_value
from perfrun.analysis.hindsight import pelt_sees
from perfrun.analysis.nightnoise import BEFORE, Past, mean_variance, past_of
from perfrun.analysis.separation import AFTER, P_VALUE, separated

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FEWEST_BEFORE = 12  # nights of a series before its first verdict
FEWEST_AFTER = 2  # nights at the new level
MOST_AFTER = 21
ALARM = 0.0052  # the p-value of a night, for all numbers of nights after together
_FEWEST_LEVEL = 4  # nights from which the level after a change is known well enough for the next
_LOOKS = 5.0  # independent tests that all the numbers of nights after amount to
_WARY, _WARY_FROM = 20.0, 0.25  # more of them for each unit of memory above this
_LEAST_FREEDOM = 30.0  # nights are cut off, so tails are never as long as Student's of so few
_ASKED = 0.02  # p-value of the score from which on the energy statistic is asked too
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
    raised_by: tuple[str, ...]  # members that saw it then: score, energy, separation
    pelt: bool | None  # whether PELT sees it in all nights known by now; None: cannot be asked


class _Cut(NamedTuple):
    alarm: int
    p_value: float
    raised_by: tuple[str, ...]
    past: Past


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
        self._cuts: list[_Cut] = []
        # The larger of score and energy, of the score where it asks none; less where `separation`.
        self.p_values = np.ones(len(numbers))
        self.score_p_values = np.ones(len(numbers))
        self.energy_p_values = np.ones(len(numbers))  # 1 where it was not asked
        self.separation = np.zeros(len(numbers), dtype=np.bool_)
        self._splits = np.zeros(len(numbers), dtype=np.int64)
        self._look(0)

    def __len__(self) -> int:
        return len(self._logs)

    def shift(self, alarm: int) -> float:
        """By how much, as a logarithm, the nights up to this alarm differ from those before."""
        split = int(self._splits[alarm])
        begin = max(self._starts[-1], split - BEFORE)
        after = self._logs[split : alarm + 1]
        return float(np.median(after) - np.median(self._logs[begin:split]))

    def cut(self, alarm: int) -> None:
        """Accept the alarm of this observation: from its change on, the level is a new one."""
        start, split = self._starts[-1], int(self._splits[alarm])
        past = past_of(self._logs, self._levels, np.array([split]), start)
        split = _place(self._logs[: alarm + 1], split, float(past.level[0]), start + 1)
        self._cuts.append(_Cut(alarm, float(self.p_values[alarm]), self._raised_by(alarm), past))
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
        past = past_of(self._logs, levels, ends, start)
        score = _scores(self._logs, past, ends)[0, after - 1]
        p_value = 2 * special.stdtr(float(past.noise_nights[0]) - 2, -score)
        rows = self._logs[first_after : first_after + after]
        return float(np.median(rows) - past.level[0]), float(p_value)

    def _look(self, since: int) -> None:
        """Bring the p-values from `since` on up to date with the last start."""
        for known in (self.p_values, self.score_p_values, self.energy_p_values):
            known[since:] = 1.0
        self.separation[since:] = False
        start = self._starts[-1]
        fewest = FEWEST_BEFORE if start == 0 else _FEWEST_LEVEL
        ends = np.arange(start + fewest, len(self) - FEWEST_AFTER + 1)
        if not len(ends):
            return
        past = past_of(self._logs, self._levels, ends, start)
        scores = _scores(self._logs, past, ends)
        best, freedom = np.zeros(len(self)), np.ones(len(self))
        looks = np.ones(len(self))
        own_freedom = np.maximum(past.noise_nights - 2, _LEAST_FREEDOM)
        own_looks = _LOOKS * (1 + _WARY * np.maximum(past.likely_memory - _WARY_FROM, 0))
        for after in range(FEWEST_AFTER, min(MOST_AFTER, len(self) - int(ends[0])) + 1):
            first = int(ends[0]) + after - 1  # the night that is the last of `after`
            column = scores[: len(self) - first, after - 1]
            better = np.flatnonzero(column > best[first:])
            best[first + better] = column[better]
            freedom[first + better] = own_freedom[better]
            looks[first + better] = own_looks[better]
            new = better[first + better >= since]
            self._splits[first + new] = ends[new]
        tails = 2 * special.stdtr(freedom[since:], -best[since:])
        self.score_p_values[since:] = np.minimum(looks[since:] * tails, 1.0)
        for night in np.flatnonzero(self.score_p_values[since:] <= _ASKED) + since:
            row = int(self._splits[night] - ends[0])
            self.energy_p_values[night] = self._second(int(night), past, row)
        self.p_values[since:] = np.where(
            self.energy_p_values[since:] < 1,
            np.maximum(self.score_p_values[since:], self.energy_p_values[since:]),
            self.score_p_values[since:],
        )
        self.separation[since:] = separated(self._logs[start:])[since - start :]
        new = since + np.flatnonzero(self.separation[since:] & (self.p_values[since:] > P_VALUE))
        self.p_values[new] = P_VALUE
        self._splits[new] = new - AFTER + 1

    def _raised_by(self, alarm: int) -> tuple[str, ...]:
        if not self.separation[alarm]:
            return ("score", "energy")
        own = {"score": self.score_p_values[alarm], "energy": self.energy_p_values[alarm]}
        return (*(name for name, p_value in own.items() if p_value <= ALARM), "separation")

    def _second(self, night: int, past: Past, row: int) -> float:
        """What the energy statistic says of the change that the score sees."""
        split, start = int(self._splits[night]), self._starts[-1]
        begin = max(0, split - BEFORE)
        levels = self._levels[begin : night + 1].copy()
        levels[max(start - begin, 0) :] = past.level[row]
        nights = self._logs[begin : night + 1] - levels
        return energy_p_value(nights, split - begin, float(past.likely_memory[row]))

    def _change(self, start: int, split: int, end: int, cut: _Cut) -> Change:
        past = cut.past
        before = self._logs[max(start, split - BEFORE) : split]
        after = self._logs[split : min(end, split + MOST_AFTER)]
        variance = mean_variance(past.memory, len(before))
        variance = variance + mean_variance(past.memory, len(after))
        error = _OF_MEDIANS * float((past.scale * past.spread * np.sqrt(variance))[0])
        quantile = special.stdtrit(max(float(past.noise_nights[0]) - 2, 1), (1 + _CONFIDENCE) / 2)
        return Change(
            first_after=split,
            alarm=cut.alarm,
            p_value=cut.p_value,
            shift=float(np.median(after) - np.median(before)),
            reach=float(quantile) * error,
            raised_by=cut.raised_by,
            pelt=self._hindsight(start, split, end, past),
        )

    def _hindsight(self, start: int, split: int, end: int, past: Past) -> bool | None:
        begin, end = max(start, split - BEFORE), min(end, split + BEFORE)
        scores = (self._logs[begin:end] - past.level[0]) / (past.scale[0] * past.spread[0])
        reach = float(past.reach[0])
        # Cut off about both levels: an outlier is none in either.
        shift = float(np.median(scores[split - begin :]))
        low, high = min(0.0, shift) - reach, max(0.0, shift) + reach
        return pelt_sees(np.clip(scores, low, high), split - begin, float(past.likely_memory[0]))


def _scores(logs: Floats, past: Past, begins: Integers) -> Floats:
    """How many standard errors 1, 2, ... `MOST_AFTER` nights from each begin lie from those before.

    What would go beyond the last night is without meaning.
    """
    padded = np.concatenate([logs, np.full(MOST_AFTER, logs[-1])])
    windows = sliding_window_view(padded, MOST_AFTER + 1)[begins - 1]  # with the night before
    nights = (windows - past.level[:, None]) / past.scale[:, None]
    reach = past.reach[:, None]
    np.clip(nights, -reach, reach, out=nights)
    memory = past.memory[:, None]
    news = nights[:, 1:] - memory * nights[:, :-1]
    news[:, 1:] *= 1 - memory  # weights of generalised least squares: the first night has 1
    weight = 1 + np.arange(MOST_AFTER) * (1 - memory) ** 2
    variance = past.fresh[:, None] / weight + mean_variance(past.memory, past.nights)[:, None]
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
