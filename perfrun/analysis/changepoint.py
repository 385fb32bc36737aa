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

Whether a change that was called is still there now that more nights are known.

An alarm is raised as soon as the evidence is enough, so chance has a hand in when. The nights after
it had no say. PELT (Killick, Fearnhead and Eckley, JASA 107, 2012; here that of ruptures) divides
all nights about the change into levels without being told where it was called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perfrun.analysis.noise import BEFORE, Baseline, before, mean_variance, past_of
from perfrun.analysis.scan import (
    FEWEST_AFTER,
    FEWEST_BEFORE,
    FEWEST_LEVEL,
    MOST_AFTER,
    Looks,
    Stretch,
    look_at,
    scores_of,
    whitened,
)

_PENALTY = 4.0  # of a change, in squared standard deviations, times the logarithm of the nights
_SHORTEST = 2  # nights of a level
_NEAR = 5  # nights by which the place may differ
# What a compiled part says that is not there, takes or gives something else, or does not load.
_NOT_AS_READ = (ImportError, AttributeError, TypeError, ValueError, IndexError)


def pelt_sees(nights: NDArray[np.float64], split: int, memory: float) -> bool | None:
    """Whether PELT divides standardised nights near `split`; None without ruptures."""
    signal = whitened(nights, memory).reshape(-1, 1)
    found = _divided(signal, _PENALTY * math.log(len(nights)))
    return None if found is None else any(abs(place - split) <= _NEAR for place in found)


def _divided(signal: NDArray[np.float64], penalty: float) -> list[int] | None:
    """Where levels begin, the first one aside."""
    package = find_spec("ruptures")  # it does not keep up with the newest Python
    if package is None:
        return None
    if len(signal) < 2 * _SHORTEST:  # one level; the C code would write past its arrays
        return []
    try:
        return _divided_by_the_compiled_part(package, signal, penalty)
    except _NOT_AS_READ:
        return _divided_by_all_of_it(signal, penalty)


def _divided_by_the_compiled_part(
    package: ModuleSpec, signal: NDArray[np.float64], penalty: float
) -> list[int]:
    search = _compiled(*(package.submodule_search_locations or ()))
    begin_of = search.ekcpd_pelt_L2(signal, penalty, _SHORTEST)  # the level that ends there
    found = []
    end = len(signal)
    while begin := int(begin_of[end]):
        if not 0 < begin < end:
            raise ValueError("these are no beginnings of levels")
        found.append(begin)
        end = begin
    return found


def _divided_by_all_of_it(signal: NDArray[np.float64], penalty: float) -> list[int] | None:
    try:
        from ruptures import KernelCPD
    except (ImportError, ValueError):  # built for another numpy
        return None
    search = KernelCPD(kernel="linear", min_size=_SHORTEST).fit(signal)
    return [int(place) for place in search.predict(pen=penalty)[:-1]]


@lru_cache
def _compiled(*folders: str) -> Any:
    """The compiled part of ruptures, which is what its KernelCPD asks; None where it is not there.

    All of ruptures brings scipy.stats and scipy.signal and takes half a second to import, as long
    as reading a hundred thousand figures; this takes a hundredth of that. It is nothing that
    ruptures promises: read of 1.1.10.
    """
    where = [f"{folder}/detection/_detection" for folder in folders]
    spec = PathFinder.find_spec("ruptures.detection._detection.ekcpd", where)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Floats = NDArray[np.float64]

ALARM = 0.005  # the p-value of a night, for all numbers of nights after together
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


class _Cut(NamedTuple):
    alarm: int
    p_value: float
    raised_by: tuple[str, ...]
    past: Baseline


class SeriesWatch:
    """One series, looked at night by night; `cut` accepts an alarm, and what follows is new."""

    def __init__(self, values: Sequence[float] | Floats) -> None:
        """Values must be positive and finite (ValueError), in the order of their time."""
        logs = _logarithms(values)
        self._begin(logs, look_at([_whole(logs)]))

    def _begin(self, logs: Floats, looks: Looks) -> None:
        self._logs, self._looks = logs, looks
        self._starts = [0]
        self._levels = np.zeros(len(logs))  # of nights before the last start
        self._cuts: list[_Cut] = []

    @classmethod
    def all_of(cls, several: Sequence[Sequence[float]]) -> tuple[list[SeriesWatch], Floats]:
        """Watch many series, which takes less than one by one; the p-values come end to end.

        They are the memory of the watches' own, and follow a `cut`.
        """
        ends = np.cumsum([len(values) for values in several])
        logs = _logarithms(np.concatenate([*several, []]))
        each = np.split(logs, ends)[: len(several)]
        looks = look_at([_whole(own) for own in each])
        watches = []
        for own, end in zip(each, ends.tolist(), strict=True):
            watch = cls.__new__(cls)
            watch._begin(own, looks.part(end - len(own), end))
            watches.append(watch)
        return watches, looks.p_values

    @property
    def p_values(self) -> Floats:
        """The larger of score and energy, the score where it asks none; less by `separation`."""
        return self._looks.p_values

    @property
    def score_p_values(self) -> Floats:
        return self._looks.score_p_values

    @property
    def energy_p_values(self) -> Floats:
        """1 where it was not asked."""
        return self._looks.energy_p_values

    @property
    def separation(self) -> NDArray[np.bool_]:
        return self._looks.separation

    def __len__(self) -> int:
        return len(self._logs)

    def shift(self, alarm: int) -> float:
        """By how much, as a logarithm, the nights up to this alarm differ from those before."""
        split = int(self._looks.splits[alarm])
        begin = max(self._starts[-1], split - BEFORE)
        after = self._logs[split : alarm + 1]
        return float(np.median(after) - np.median(self._logs[begin:split]))

    def cut(self, alarm: int) -> None:
        """Accept the alarm of this observation: from its change on, the level is a new one."""
        start, split = self._starts[-1], int(self._looks.splits[alarm])
        past = self._past(self._levels, split, start)
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
        begin = max(s for s in self._starts if s <= max(first_after - FEWEST_LEVEL, 0))
        start = max(begin, since)
        after = min(last_after - first_after + 1, MOST_AFTER)
        if first_after - start < FEWEST_LEVEL or first_after < FEWEST_BEFORE or after < 1:
            return 0.0, 1.0
        levels = self._levels.copy()
        if start > begin:
            levels[begin:start] = np.median(self._logs[begin:start])
        past = self._past(levels, first_after, start)
        score = scores_of(self._logs, past, np.array([first_after]))[after - 1, 0]
        p_value = 2 * special.stdtr(float(past.noise_nights[0]) - 2, -score)
        rows = self._logs[first_after : first_after + after]
        return float(np.median(rows) - past.level[0]), float(p_value)

    def _past(self, levels: Floats, end: int, start: int) -> Baseline:
        return past_of(before(self._logs, levels, np.array([end]), 0, start))

    def _look(self, since: int) -> None:
        """Bring what is said of the nights from `since` on up to date with the last start."""
        stretch = Stretch(self._logs, self._levels, self._starts[-1], since)
        for known, new in zip(self._looks, look_at([stretch]), strict=True):
            known[since:] = new[since:]

    def _raised_by(self, alarm: int) -> tuple[str, ...]:
        if not self.separation[alarm]:
            return ("score", "energy")
        own = {"score": self.score_p_values[alarm], "energy": self.energy_p_values[alarm]}
        return (*(name for name, p_value in own.items() if p_value <= ALARM), "separation")

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
        )

    def pelt_sees(self, change: Change) -> bool | None:
        """Whether PELT sees it in all nights known by now; None where it cannot be asked."""
        number = self._starts.index(change.first_after)
        split, past = change.first_after, self._cuts[number - 1].past
        begin = max(self._starts[number - 1], split - BEFORE)
        end = min([*self._starts[number + 1 :], len(self)][0], split + BEFORE)
        scores = (self._logs[begin:end] - past.level[0]) / (past.scale[0] * past.spread[0])
        reach = float(past.reach[0])
        # Cut off about both levels: an outlier is none in either.
        shift = float(np.median(scores[split - begin :]))
        low, high = min(0.0, shift) - reach, max(0.0, shift) + reach
        return pelt_sees(np.clip(scores, low, high), split - begin, float(past.likely_memory[0]))


def _logarithms(values: Sequence[float] | Floats) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise ValueError("a change of level is looked for in positive, finite values")
    logs: Floats = np.log(numbers)
    return logs


def _whole(logs: Floats) -> Stretch:
    return Stretch(logs, np.zeros(len(logs)), 0, 0)


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
