"""Find changes of level in one series, each observation judged by itself and those before it.

So a change that was reported is reported again tomorrow, and the stated false alarms are those of
all interim analyses together. `scan` has the statistics, `noise` level and noise of a baseline.

An alarm is raised as soon as the evidence is enough, so chance has a part in when that is. Whether
the change is still there once more observations are known, PELT is asked (Killick, Fearnhead and
Eckley, JASA 107, 2012; the implementation is that of ruptures): it divides all observations around
the change into levels, without being told where the change is.

The constants are chosen by `simulations/detect.py`; docs/research/detection.md has its table.
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

from perfrun.analysis.kept_scans import KeptScans
from perfrun.analysis.noise import (
    MOST_BEFORE,
    TO_SIGMA,
    Baseline,
    estimated_baselines,
    mean_variance,
    windows_before,
)
from perfrun.analysis.scan import (
    FEWEST_AFTER,
    FEWEST_BEFORE,
    FEWEST_LEVEL,
    MOST_AFTER,
    REPEAT_ODDS,
    PlaceToTest,
    ScanResult,
    SeriesToScan,
    scan_series,
    scores_of,
    whitened,
)

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

ALARM = 0.005  # p-value of an observation, corrected for all numbers of observations after a change
_OF_MEDIANS = 1.2533  # standard error of a median, in those of a mean
_CONFIDENCE = 0.95
_PENALTY = 4.0  # of a change, in squared standard deviations, times the logarithm of their number
_SHORTEST = 2  # observations of a level
_NEAR = 5  # observations by which PELT's place may differ
# Errors of a compiled part that is missing, fails to load, or has other arguments or results.
_NOT_AS_EXPECTED = (ImportError, AttributeError, TypeError, ValueError, IndexError)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of level. Indices count the observations given; levels are logarithms."""

    first_after: int  # first observation at the new level
    alarm: int  # observation with which the evidence was enough
    p_value: float
    shift: float  # level after less level before: of up to 21 observations after, 60 before
    reach: float  # half the width of its 95 % interval
    raised_by: tuple[
        str, ...
    ]  # statistics that raised the alarm: score, energy, separation; or together


class _Cut(NamedTuple):
    alarm: int
    p_value: float
    raised_by: tuple[str, ...]
    baseline: Baseline


class SeriesWatch:
    """One series and the changes accepted so far; `cut` accepts one, and a new level begins."""

    def __init__(self, values: Sequence[float] | Floats, repeats: Sequence[bool] = ()) -> None:
        """Take the values in the order of time. Raises ValueError unless positive and finite.

        `repeats` says which of them ran what the one before ran; none where it is empty.
        """
        logs, own = _logarithms(values), _repeats(repeats)
        self._begin(logs, own, scan_series([_whole(logs, own)]))

    def _begin(
        self,
        logs: Floats,
        repeats: Booleans | None,
        scanned: ScanResult,
        kept: KeptScans | None = None,
        name: str = "",
    ) -> None:
        self._logs, self._repeats, self._scanned = logs, repeats, scanned
        self._kept, self._name = kept, name
        self._starts = [0]
        self._levels = np.zeros(len(logs))  # of the observations before the last start
        self._cuts: list[_Cut] = []

    @classmethod
    def all_of(
        cls,
        several: Sequence[Sequence[float]],
        repeats: Sequence[Sequence[bool]] = (),
        kept: KeptScans | None = None,
        names: Sequence[str] = (),
    ) -> tuple[list[SeriesWatch], ScanResult]:
        """Watch many series, which is faster than one by one; return their results end to end.

        These share the memory of the watches, so a `cut` changes them too. With `kept`, of the
        series of these `names` only new observations are judged; p-values above `NOTED` may then
        be 1.
        """
        ends = np.cumsum([len(values) for values in several])
        logs = _logarithms(np.concatenate([*several, []]))
        each = np.split(logs, ends)[: len(several)]
        repeated = [_repeats(own) for own in repeats] or [None] * len(each)
        whole = list(map(_whole, each, repeated))
        scanned = scan_series(whole) if kept is None else kept.scan(whole, names)
        watches = []
        known_as = names or [""] * len(each)
        for own, again, end, name in zip(each, repeated, ends.tolist(), known_as, strict=True):
            watch = cls.__new__(cls)
            watch._begin(own, again, scanned.part(end - len(own), end), kept, name)
            watches.append(watch)
        return watches, scanned

    @property
    def p_values(self) -> Floats:
        """The larger of score's and energy's, or separation's where that is less."""
        return self._scanned.p_values

    @property
    def score_p_values(self) -> Floats:
        return self._scanned.score_p_values

    @property
    def energy_p_values(self) -> Floats:
        """1 where the energy statistic was not computed."""
        return self._scanned.energy_p_values

    @property
    def separation(self) -> NDArray[np.bool_]:
        return self._scanned.separation

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def logs(self) -> Floats:
        """The logarithms of the values."""
        return self._logs

    @property
    def start(self) -> int:
        """The first observation at the level of now, as far as changes were accepted."""
        return self._starts[-1]

    def split_now(self) -> int | None:
        """Return where a new level may begin, as of the last observation.

        None where that observation raised the alarm of an accepted change, whose level is new.
        """
        last = len(self) - 1
        if self._cuts and self._cuts[-1].alarm == last:
            return None
        split = int(self._scanned.splits[last])
        before = self._logs[max(self.start, split - MOST_BEFORE) : split]
        level = float(np.median(before))
        noise = TO_SIGMA * float(np.median(np.abs(before - level)))
        return self._refined(self._logs, split, level, noise)

    def _refined(self, logs: Floats, split: int, level: float, noise: float) -> int:
        """Return the most probable place of a change that the score has put at a split."""
        repeats = None if self._repeats is None else self._repeats[: len(logs)]
        return _refined_split(logs, split, level, self._starts[-1] + 1, repeats, noise)

    def continued(self, news: Floats) -> Floats:
        """Return the p-values of observations that would follow; a row is a continuation."""
        count, more = len(self), news.shape[1]
        levels = np.concatenate([self._levels, np.zeros(more)])
        repeats = self._repeats
        if repeats is not None:
            repeats = np.concatenate([repeats, np.zeros(more, dtype=np.bool_)])
        several = [
            SeriesToScan(np.concatenate([self._logs, row]), levels, self.start, count, repeats)
            for row in news
        ]
        p_values: Floats = scan_series(several).p_values.reshape(len(news), count + more)
        return p_values[:, count:]

    def shift(self, alarm: int, first_after: int | None = None) -> float:
        """Return the shift, as a logarithm, between the observations up to the alarm and before.

        The change begins at its most probable place unless that is given.
        """
        split = int(self._scanned.splits[alarm]) if first_after is None else first_after
        begin = max(self._starts[-1], split - MOST_BEFORE)
        after = self._logs[split : alarm + 1]
        return float(np.median(after) - np.median(self._logs[begin:split]))

    def cut(self, alarm: int) -> None:
        """Accept the alarm of this observation: a new level begins at its change."""
        start, split = self._starts[-1], int(self._scanned.splits[alarm])
        baseline = self._baseline(self._levels, split, start)
        level = float(baseline.level[0])
        noise = float(baseline.scale[0] * baseline.spread[0])
        split = self._refined(self._logs[: alarm + 1], split, level, noise)
        raised_by = self._raised_by(alarm)
        self._begin_level(split, _Cut(alarm, float(self.p_values[alarm]), raised_by, baseline))

    def cut_at(self, alarm: int, first_after: int, p_value: float) -> None:
        """Accept a change at a place that other series have shown, as of this observation."""
        baseline = self._baseline(self._levels, first_after, self._starts[-1])
        self._begin_level(first_after, _Cut(alarm, p_value, ("together",), baseline))

    def _begin_level(self, split: int, cut: _Cut) -> None:
        self._cuts.append(cut)
        self._levels[self._starts[-1] : split] = cut.baseline.level[0]
        self._starts.append(split)
        self._scan_from(cut.alarm + 1)

    def place_to_test(self, place: int) -> PlaceToTest:
        """Return the observations around a place at which a new level may begin."""
        begin = max(0, place - MOST_BEFORE - 1)
        end = place + MOST_AFTER
        return PlaceToTest(
            self._logs[begin:end],
            self._levels[begin:end],
            max(0, self._starts[-1] - begin),
            place - begin,
        )

    def changes(self) -> tuple[Change, ...]:
        """Return the accepted changes in order; their sizes rest on all observations known."""
        ends = [*self._starts[2:], len(self)]
        rows = zip(self._starts, self._starts[1:], ends, self._cuts, strict=False)
        return tuple(self._change(*row) for row in rows)

    def shift_between(self, since: int, first_after: int, last_after: int) -> tuple[float, float]:
        """Return shift and p-value of these observations against those from `since` on.

        It is a single test at a place known beforehand. (0, 1) with too few observations.
        """
        begin = max(s for s in self._starts if s <= max(first_after - FEWEST_LEVEL, 0))
        start = max(begin, since)
        after = min(last_after - first_after + 1, MOST_AFTER)
        if first_after - start < FEWEST_LEVEL or first_after < FEWEST_BEFORE or after < 1:
            return 0.0, 1.0
        levels = self._levels.copy()
        if start > begin:
            levels[begin:start] = np.median(self._logs[begin:start])
        baseline = self._baseline(levels, first_after, start)
        score = scores_of(self._logs, baseline, np.array([first_after]))[after - 1, 0]
        p_value = 2 * special.stdtr(float(baseline.noise_count[0]) - 2, -score)
        values = self._logs[first_after : first_after + after]
        return float(np.median(values) - baseline.level[0]), float(p_value)

    def _baseline(self, levels: Floats, end: int, start: int) -> Baseline:
        return estimated_baselines(windows_before(self._logs, levels, np.array([end]), 0, start))

    def _scan_from(self, since: int) -> None:
        """Judge the observations from `since` on again, from the last start."""
        one = SeriesToScan(self._logs, self._levels, self._starts[-1], since, self._repeats)
        found = scan_series([one]) if self._kept is None else self._kept.scan([one], [self._name])
        for known, new in zip(self._scanned, found, strict=True):
            known[since:] = new[since:]

    def _raised_by(self, alarm: int) -> tuple[str, ...]:
        if not self.separation[alarm]:
            return ("score", "energy")
        own = {"score": self.score_p_values[alarm], "energy": self.energy_p_values[alarm]}
        return (*(name for name, p_value in own.items() if p_value <= ALARM), "separation")

    def _change(self, start: int, split: int, end: int, cut: _Cut) -> Change:
        baseline = cut.baseline
        before = self._logs[max(start, split - MOST_BEFORE) : split]
        after = self._logs[split : min(end, split + MOST_AFTER)]
        variance = mean_variance(baseline.memory, len(before))
        variance = variance + mean_variance(baseline.memory, len(after))
        error = _OF_MEDIANS * float((baseline.scale * baseline.spread * np.sqrt(variance))[0])
        freedom = max(float(baseline.noise_count[0]) - 2, 1)
        return Change(
            first_after=split,
            alarm=cut.alarm,
            p_value=cut.p_value,
            shift=float(np.median(after) - np.median(before)),
            reach=float(special.stdtrit(freedom, (1 + _CONFIDENCE) / 2)) * error,
            raised_by=cut.raised_by,
        )

    def pelt_finds(self, change: Change) -> bool | None:
        """True when PELT finds the change in all observations known by now; None without PELT."""
        number = self._starts.index(change.first_after)
        split, baseline = change.first_after, self._cuts[number - 1].baseline
        begin = max(self._starts[number - 1], split - MOST_BEFORE)
        end = min([*self._starts[number + 1 :], len(self)][0], split + MOST_BEFORE)
        scores = self._logs[begin:end] - baseline.level[0]
        scores = scores / (baseline.scale[0] * baseline.spread[0])
        reach = float(baseline.reach[0])
        # Clipped about both levels, so that no outlier of either remains.
        shift = float(np.median(scores[split - begin :]))
        low, high = min(0.0, shift) - reach, max(0.0, shift) + reach
        clipped = np.clip(scores, low, high)
        return pelt_finds(clipped, split - begin, float(baseline.estimated_memory[0]))


def _logarithms(values: Sequence[float] | Floats) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise ValueError("a change of level is looked for in positive, finite values")
    logs: Floats = np.log(numbers)
    return logs


def _whole(logs: Floats, repeats: Booleans | None) -> SeriesToScan:
    return SeriesToScan(logs, np.zeros(len(logs)), 0, 0, repeats)


def _repeats(marks: Sequence[bool]) -> Booleans | None:
    """Return the marks; None where there is none of them."""
    return np.asarray(marks, dtype=np.bool_) if any(marks) else None


def _refined_split(
    logs: Floats, split: int, level: float, first: int, repeats: Booleans | None, noise: float
) -> int:
    """Return the first observation from which on they lie nearer to the new level than to the old.

    The score that raised the alarm is of clipped values, so it does not show exactly where a large
    change began. Sums of absolute deviations do, and outliers hardly move them. A repeat needs as
    much more as it is less likely (in a distribution of Laplace of this standard deviation).
    """
    after = float(np.median(logs[split:]))
    begin = max(first, split - FEWEST_BEFORE)
    nearer = np.abs(logs[begin:] - level) - np.abs(logs[begin:] - after)
    sums = np.cumsum(nearer[::-1])[::-1]
    if repeats is not None:
        sums = sums + repeats[begin:] * (math.log(REPEAT_ODDS) * noise / math.sqrt(2))
    return begin + int(np.argmax(sums[: len(sums) - FEWEST_AFTER + 1]))


def pelt_finds(values: Floats, split: int, memory: float) -> bool | None:
    """True when PELT divides standardised observations near `split`; None without ruptures."""
    signal = whitened(values, memory).reshape(-1, 1)
    found = _pelt_splits(signal, _PENALTY * math.log(len(values)))
    return None if found is None else any(abs(place - split) <= _NEAR for place in found)


def _pelt_splits(signal: Floats, penalty: float) -> list[int] | None:
    """Return where new levels begin; None without ruptures."""
    package = find_spec("ruptures")  # it does not keep up with the newest Python
    if package is None:
        return None
    if len(signal) < 2 * _SHORTEST:  # one level; the C code would write past its arrays
        return []
    try:
        return _splits_by_the_compiled_part(package, signal, penalty)
    except _NOT_AS_EXPECTED:
        return _splits_by_all_of_ruptures(signal, penalty)


def _splits_by_the_compiled_part(package: ModuleSpec, signal: Floats, penalty: float) -> list[int]:
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


def _splits_by_all_of_ruptures(signal: Floats, penalty: float) -> list[int] | None:
    try:
        from ruptures import KernelCPD
    except (ImportError, ValueError):  # built for another numpy
        return None
    search = KernelCPD(kernel="linear", min_size=_SHORTEST).fit(signal)
    return [int(place) for place in search.predict(pen=penalty)[:-1]]


@lru_cache
def _compiled(*folders: str) -> Any:
    """Return the compiled part of ruptures, which its KernelCPD calls; None where it is missing.

    All of ruptures imports scipy.stats and scipy.signal, which takes half a second, as long as
    reading a hundred thousand figures; this takes a hundredth of that. The compiled part is no
    public interface of ruptures: this follows version 1.1.10.
    """
    where = [f"{folder}/detection/_detection" for folder in folders]
    spec = PathFinder.find_spec("ruptures.detection._detection.ekcpd", where)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
