"""Compare every observation of many series with those before it, by three statistics.

* The score: generalised least squares on logarithms, with the series' own level and noise
  (`noise`). It weighs the observation at which a step began most.
* The energy statistic of E-divisive (Matteson and James, JASA 109, 2014) on ranks, which neither
  outliers nor tails move. On ranks it is the criterion of Cramer and von Mises (Anderson, Annals of
  Mathematical Statistics 33, 1962), and its distribution without a change is the same for every
  series. The autocorrelation is removed first, since permutations assume independence.
* Separation: the last observations lie apart from those before them, by many times the spread of
  either group. It assumes nothing about the autocorrelation. In a young history a step looks like
  autocorrelation itself, which hides the step from the other two statistics.

Autocorrelated noise makes such gaps now and then. The limits are chosen so that this is rare:
`simulations/detect.py` and `simulations/oracle.py` have the figures.

A step is more likely where something changed. An observation that ran what the one before it ran
(same commits, image and environment) is a place at which only the machine can have changed. Such
places get a small share of the error, and the others get the rest.

Series are concatenated and compared together: most of them are so short that going through them
one by one would take longer than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import special

from perfrun.analysis.noise import (
    LEAST_SCALE,
    MOST_BEFORE,
    TO_SIGMA,
    Baseline,
    estimated_baselines,
    mean_variance,
    windows_before,
)
from perfrun.analysis.pooling import pooled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

# The energy statistic
_DRAWS = 4000  # permutations that a table rests on
_DRAWS_A_PASS = 250  # these fit into a processor's cache
_TABLE_BEFORE = 60  # observations before the split; matched moments make the number unimportant
_TAIL = 0.01  # probability below which the tail is taken as exponential, as it is in the limit

# Separation
SEPARATION_BEFORE = 12  # observations
SEPARATION_AFTER = 6  # observations after them
_SEPARATION_FIRST = SEPARATION_BEFORE + SEPARATION_AFTER - 1  # first observation that can have it
_SEPARATION_LIMIT = 8.0  # between the medians, in robust standard deviations of the wider group
_OUTLIERS_BEFORE = 2  # observations of those before that may lie anywhere
SEPARATION_P_VALUE = 2e-5  # share of observations of AR(1) 0.5 that have it; in other noise fewer
YOUNG_BEFORE = 6  # observations before, where there are fewer than `SEPARATION_BEFORE`
_YOUNG_WIDTHS = 2.0  # between the medians, in ranges (largest less smallest) of the wider group
YOUNG_P_VALUE = 5e-5  # as above, of observations with so few before them
_YOUNG_LEAST_WIDTH = 2.5 * LEAST_SCALE  # the range of six values of that standard deviation

# The score, and all three together
FEWEST_OBSERVATIONS = (
    YOUNG_BEFORE + SEPARATION_AFTER
)  # observations of a series that is judged at all
FEWEST_BEFORE = 12  # observations before a change that score and energy are computed for
FEWEST_AFTER = 2  # observations at the new level
MOST_AFTER = 21
FEWEST_LEVEL = 4  # observations after a change from which on the next change can be found
_EFFECTIVE_TESTS = 5.0  # independent tests that amount to all the numbers of observations after
# More tests for each unit of autocorrelation above this one.
_TESTS_PER_MEMORY, _STRONG_MEMORY = 20.0, 0.25
_LEAST_FREEDOM = 30.0  # clipped observations have shorter tails than Student's t with less
# The largest score whose p-value is 1, after so many tests and with the shortest tail, the normal.
_LEAST_SCORE = -float(special.ndtri(0.5 / _EFFECTIVE_TESTS))
REPEAT_ODDS = 0.1  # of a step where nothing changed on record, over those where something did
_ENERGY_FROM = 0.02  # p-value of the score from which on the energy statistic is computed
_OBSERVATIONS_A_PASS = 3000  # these fit into a processor's cache
_THREADS = 2  # with more, reading takes most of the time
_KEPT_BYTES = 16 * 2**20  # more than half of a pass's memory; glibc forgets sizes above 32 MiB


class SeriesToScan(NamedTuple):
    """A series and its level known so far: from `start` on no change has been found."""

    logs: Floats
    levels: Floats  # levels of the observations before `start`
    start: int
    since: int  # first observation to judge
    repeats: Booleans | None = None  # where an observation ran what the one before it ran


class PlaceToTest(NamedTuple):
    """The observations around a place at which a change may have begun."""

    logs: Floats
    levels: Floats  # levels of the observations before `start`
    start: int  # where the level before begins
    place: int


class ScanResult(NamedTuple):
    """Columns with a row for each observation; those that were not judged have p-values of 1."""

    p_values: Floats  # the larger of score's and energy's, or separation's where that is less
    score_p_values: Floats
    energy_p_values: Floats  # 1 where it was not computed
    separation: NDArray[np.bool_]
    splits: Integers  # the first observation at the new level, if there is one

    @classmethod
    def of_nothing(cls, count: int) -> ScanResult:
        """Return rows for so many observations, none of which was judged."""
        return cls(
            p_values=np.ones(count),
            score_p_values=np.ones(count),
            energy_p_values=np.ones(count),
            separation=np.zeros(count, dtype=np.bool_),
            splits=np.zeros(count, dtype=np.int64),
        )

    def part(self, begin: int, end: int) -> ScanResult:
        """Return views of the rows from `begin` to `end`."""
        return ScanResult._make([column[begin:end] for column in self])


def scan_series(several: Sequence[SeriesToScan]) -> ScanResult:
    """Judge the observations of all series; the rows are those of the series end to end."""
    sizes = [len(one.logs) for one in several]
    result = ScanResult.of_nothing(sum(sizes))
    _keep_freed_memory()
    portions = list(_portions(several))
    begins = accumulate((sum(len(one.logs) for one in some) for some in portions), initial=0)

    def scan(some: Sequence[SeriesToScan], begin: int) -> _EnergyTests:
        joined = _EndToEnd(some)
        tests = _scan(joined, result.part(begin, begin + len(joined.logs)))
        return tests._replace(rows=tests.rows + begin)

    if len(portions) > 1:  # numpy releases the interpreter's lock, and portions share nothing
        with ThreadPoolExecutor(_THREADS) as pool:
            tests = list(pool.map(scan, portions, begins))
    else:
        tests = list(map(scan, portions, begins))
    _run_energy_tests(tests, result.energy_p_values)
    others = result.score_p_values.copy()
    rows = np.flatnonzero(result.energy_p_values < 1)
    others[rows] = np.maximum(others[rows], result.energy_p_values[rows])
    apart = np.flatnonzero(result.p_values < others)
    np.minimum(result.p_values, others, out=result.p_values)
    places = apart - np.repeat(np.cumsum(sizes) - sizes, sizes)[apart]
    result.splits[apart] = places - SEPARATION_AFTER + 1
    return result


def _keep_freed_memory() -> None:
    """Make the next pass use the memory of this one again.

    glibc returns what is freed to the kernel, which clears every page before it is used again:
    that takes as long as the arithmetic. Once a large piece has been freed, glibc keeps up to twice
    as much (mallopt(3), M_TRIM_THRESHOLD). Elsewhere this does nothing. 4,000 series of 365
    observations then take 6 % less CPU time, and a quarter of the page faults.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


class _EndToEnd:
    """Some series end to end. Places count from the first observation of the first one."""

    def __init__(self, several: Sequence[SeriesToScan]) -> None:
        sizes = np.array([len(one.logs) for one in several])
        begins = np.cumsum(sizes) - sizes
        self.logs = np.concatenate([one.logs for one in several])
        self.levels = np.concatenate([one.levels for one in several])
        # For each observation: where its series, its level and what is judged begin.
        self.first = np.repeat(begins, sizes)
        self.start = np.repeat(begins + [one.start for one in several], sizes)
        self.since = np.repeat(begins + [one.since for one in several], sizes)
        self.end = np.repeat(begins + sizes, sizes)
        self.places = np.arange(len(self.logs))
        self.repeats: Booleans | None = None  # None where no series has any
        if any(one.repeats is not None for one in several):
            self.repeats = np.concatenate(
                [
                    np.zeros(len(one.logs), bool) if one.repeats is None else one.repeats
                    for one in several
                ]
            )

    def splits(self) -> Integers:
        """Return the places that may be the first ones at a new level, as of what is judged."""
        least = np.maximum(self.first + FEWEST_BEFORE, self.start + FEWEST_LEVEL)
        least = np.maximum(least, self.since - MOST_AFTER + 1)
        is_split = self.places >= least
        return np.flatnonzero(is_split & (self.places <= self.end - FEWEST_AFTER))


def _portions(several: Sequence[SeriesToScan]) -> Iterator[Sequence[SeriesToScan]]:
    """Yield as many series at a time as fit into one pass; a long one by itself."""
    begin = count = 0
    for number, one in enumerate(several):
        if count and count + len(one.logs) > _OBSERVATIONS_A_PASS:
            yield several[begin:number]
            begin, count = number, 0
        count += len(one.logs)
    if count:
        yield several[begin:]


def _scan(joined: _EndToEnd, result: ScanResult) -> _EnergyTests:
    """Enter the results of score and separation; return the energy tests to run."""
    is_judged = joined.places >= joined.since
    _enter_separation(joined, result, is_judged)
    ends = joined.splits()
    baseline = estimated_baselines(
        windows_before(joined.logs, joined.levels, ends, joined.first[ends], joined.start[ends])
    )
    best, after, share = _weighed_scores(scores_of(joined.logs, baseline, ends), ends, joined)
    splits = joined.places - after + 1
    result.splits[:] = splits - joined.first
    rows = np.flatnonzero((best > _LEAST_SCORE) & is_judged)
    baseline_of = np.zeros(len(joined.logs), dtype=np.int64)
    baseline_of[ends] = np.arange(len(ends))
    own = baseline_of[splits[rows]]
    freedom = np.maximum(baseline.noise_count - 2, _LEAST_FREEDOM)[own]
    strong = np.maximum(baseline.estimated_memory[own] - _STRONG_MEMORY, 0)
    tests = _EFFECTIVE_TESTS * (1 + _TESTS_PER_MEMORY * strong)
    tails = 2 * special.stdtr(freedom, -best[rows])
    result.score_p_values[rows] = np.minimum(tests * tails * share[rows], 1.0)
    is_tested = result.score_p_values[rows] <= _ENERGY_FROM
    rows, own = rows[is_tested], own[is_tested]
    return _energy_tests(
        joined, rows, splits[rows], baseline.level[own], baseline.estimated_memory[own]
    )


def scores_of(logs: Floats, baseline: Baseline, begins: Integers) -> Floats:
    """Return by how many standard errors the observations from each begin differ from those before.

    Rows are 1, 2, ... `MOST_AFTER` observations, columns the begins. Figures that would need
    observations after the last one are meaningless.
    """
    padded = np.concatenate([logs, np.full(MOST_AFTER, logs[-1])])
    scores = np.array([padded[begins + place] for place in range(-1, MOST_AFTER)])
    scores -= baseline.level  # the first row is the observation before
    scores /= baseline.scale
    np.clip(scores, -baseline.reach, baseline.reach, out=scores)
    rest = 1 - baseline.memory
    news = scores[1:] - baseline.memory * scores[:-1]
    news[1:] *= rest  # weights of generalised least squares: the first observation has 1
    weight = 1 + np.arange(MOST_AFTER)[:, None] * rest**2
    variance = baseline.fresh / weight + mean_variance(baseline.memory, baseline.level_count)
    for place in range(1, MOST_AFTER):
        news[place] += news[place - 1]  # np.cumsum down the columns takes seven times as long
    moved = np.abs(news) / weight
    standardised: Floats = moved / (baseline.spread * np.sqrt(variance))
    return standardised


def p_values_at(places: Sequence[PlaceToTest]) -> Floats:
    """Return p-values of the score at places that were known beforehand, two-sided.

    The places are of the series of one suite, whose noise is pooled. Rows are 1, 2, ...
    `MOST_AFTER` observations after, columns the places. Figures that would need observations after
    the last one are meaningless.
    """
    if not places:
        return np.ones((MOST_AFTER, 0))
    begins = np.cumsum([0, *(len(one.logs) for one in places[:-1])])
    logs = np.concatenate([one.logs for one in places])
    levels = np.concatenate([one.levels for one in places])
    ends = begins + [one.place for one in places]
    windows = windows_before(logs, levels, ends, begins, begins + [one.start for one in places])
    baseline = estimated_baselines(windows, known_place=True)
    baseline, added = pooled(baseline)
    freedom = np.maximum(baseline.noise_count - 2, _LEAST_FREEDOM) + added
    p_values: Floats = 2 * special.stdtr(freedom, -scores_of(logs, baseline, ends))
    return p_values


def _weighed_scores(
    scores: Floats, ends: Integers, joined: _EndToEnd
) -> tuple[Floats, Integers, Floats]:
    """Return what `_best_scores` does, and what the p-value of each is to be multiplied by.

    The places of an observation are a family with weights (Genovese, Roeder and Wasserman,
    Biometrika 93, 2006): a repeat has `REPEAT_ODDS` of that of the others.
    """
    if joined.repeats is None:
        return *_best_scores(scores, ends, joined), np.ones(len(joined.logs))
    is_repeat = joined.repeats[ends]
    best, after = _best_scores(np.where(is_repeat, 0.0, scores), ends, joined)
    at_repeats, after_repeats = _best_scores(np.where(is_repeat, scores, 0.0), ends, joined)
    before: Integers = np.cumsum(joined.repeats) - joined.repeats
    begins = np.maximum(joined.places - (MOST_AFTER - FEWEST_AFTER + 1), joined.first)
    repeated, places = before - before[begins], joined.places - begins
    # Neighbouring places resemble each other: so many amount to as many tests as their root.
    tests = np.sqrt(places - repeated) + REPEAT_ODDS * np.sqrt(repeated)
    share = np.minimum(tests / np.sqrt(np.maximum(places, 1)), 1.0)
    # Tails of the normal distribution fall by this much, at least.
    is_machine = np.square(at_repeats) + 2 * math.log(REPEAT_ODDS) > np.square(best)
    np.copyto(best, at_repeats, where=is_machine)
    np.copyto(after, after_repeats, where=is_machine)
    return best, after, np.where(is_machine, share / REPEAT_ODDS, share)


def _best_scores(scores: Floats, ends: Integers, joined: _EndToEnd) -> tuple[Floats, Integers]:
    """Return for each observation the best score, and how many last observations it is of."""
    total = len(joined.logs)
    best, count = np.zeros(total), np.ones(total, dtype=np.int64)
    table = np.zeros((MOST_AFTER, MOST_AFTER + total))
    is_there = np.arange(1, MOST_AFTER + 1)[:, None] <= joined.end[ends] - ends
    table[:, MOST_AFTER + ends] = np.where(is_there, scores, 0.0)
    for after in range(FEWEST_AFTER, MOST_AFTER + 1):
        begin = MOST_AFTER - after + 1  # so many observations earlier than the one they end with
        own = table[after - 1, begin : begin + total]
        is_better = own > best
        np.copyto(best, own, where=is_better)
        np.copyto(count, after, where=is_better)
    return best, count


class _EnergyTests(NamedTuple):
    """Columns with a row for each energy test to run."""

    rows: Integers  # of the observations that the tests are about
    values: Floats  # `MOST_BEFORE` observations before a change, `MOST_AFTER` from it, less levels
    before: Integers  # how many of the former there are
    after: Integers
    memory: Floats


def _energy_tests(
    joined: _EndToEnd, rows: Integers, splits: Integers, level: Floats, memory: Floats
) -> _EnergyTests:
    places = splits[:, None] + np.arange(-MOST_BEFORE, MOST_AFTER)
    places = np.clip(places, 0, len(joined.logs) - 1)  # `before` and `after` leave these out
    own = places >= joined.start[rows][:, None]
    return _EnergyTests(
        rows=rows,
        values=joined.logs[places] - np.where(own, level[:, None], joined.levels[places]),
        before=np.minimum(splits - joined.first[rows], MOST_BEFORE),
        after=rows - splits + 1,
        memory=memory,
    )


def _run_energy_tests(tests: Sequence[_EnergyTests], p_values: Floats) -> None:
    """Enter the p-values. Tests with as many observations before and after run together."""
    if not tests:
        return
    every = _EnergyTests._make([np.concatenate(columns) for columns in zip(*tests, strict=True)])
    kinds, kind_of = np.unique(every.before * (MOST_AFTER + 1) + every.after, return_inverse=True)
    for number, kind in enumerate(kinds.tolist()):
        those = np.flatnonzero(kind_of == number)
        count, after = divmod(kind, MOST_AFTER + 1)
        values = every.values[those, MOST_BEFORE - count : MOST_BEFORE + after]
        p_values[every.rows[those]] = energy_p_values(values, count, every.memory[those])


def energy_p_values(rows: Floats, split: int, memory: Floats) -> Floats:
    """Return the p-values of the hypothesis that nothing changed at `split`.

    A row is the observations of a series, and has an autocorrelation of its own in `memory`.
    """
    count = rows.shape[1]
    after = count - split
    order = np.argsort(whitened(rows, memory[:, None]), axis=1, kind="stable")
    values = _standardised(order >= split, after)
    table = _permutation_table(after)
    shares = (len(table) - np.searchsorted(table, values - 1e-9)) / len(table)
    begin, end = table[-1 - round(_TAIL * _DRAWS)], table[-1 - round(_TAIL * _DRAWS / 10)]
    slope = math.log(10) / max(float(end - begin), 1e-9)
    least = 1 / math.comb(count, after)  # the smallest p-value of a permutation test
    tails = np.maximum(_TAIL * np.exp(-slope * np.maximum(values - begin, 0)), least)
    p_values: Floats = np.where(values <= begin, shares, tails)
    return p_values


def whitened(values: Floats, memory: float | Floats) -> Floats:
    """Return the innovations of an AR(1) process, with the variance of the values themselves.

    The last axis is that of time; `memory` is one number, or has a last axis of length 1.
    """
    news = values.copy()
    news[..., 1:] -= memory * values[..., :-1]
    news[..., 1:] /= np.sqrt(1 - np.square(memory))
    return news


@lru_cache(maxsize=64)
def _permutation_table(after: int) -> Floats:
    """Return the statistic of random permutations, in ascending order; the seed is fixed."""
    generator = np.random.default_rng([20261121, after])
    found = []
    for _ in range(_DRAWS // _DRAWS_A_PASS):
        draws = generator.random((_DRAWS_A_PASS, _TABLE_BEFORE + after))
        found.append(_standardised(np.argsort(draws, axis=1) >= _TABLE_BEFORE, after))
    return np.sort(np.concatenate(found))


def _standardised(is_after: NDArray[np.bool_], after: int) -> Floats:
    """Return the criterion of each row, standardised by its mean and standard deviation.

    A row marks the observations after the split, in the order of their values.
    """
    count = is_after.shape[1]
    before = count - after
    # The gap between the two shares, times both groups: whole numbers, so nothing is rounded.
    gaps = np.cumsum(is_after, axis=1, dtype=np.float64)
    gaps *= count
    gaps -= after * np.arange(1, count + 1)
    product = float(before * after)
    criterion = np.einsum("ij,ij->i", gaps, gaps) / (product * count**2)
    mean = (1 + 1 / count) / 6
    unequal = 3 * (before**2 + after**2) / (4 * product)
    variance = (count + 1) / (45 * count**2) * (count - unequal - 0.5)
    values: Floats = (criterion - mean) / math.sqrt(variance)
    return values


def _enter_separation(joined: _EndToEnd, result: ScanResult, is_judged: NDArray[np.bool_]) -> None:
    """Enter where separation holds, and its p-values until those of score and energy are known."""
    known = joined.places - joined.start >= _SEPARATION_FIRST
    result.separation[:] = separated(joined.logs) & known & is_judged
    result.p_values[result.separation] = SEPARATION_P_VALUE
    is_start = (joined.places == joined.start) & (joined.since < joined.start + _SEPARATION_FIRST)
    young = separated_young(joined.logs, joined.places[is_start], joined.end[is_start])
    young = young[is_judged[young]]
    result.separation[young] = True
    result.p_values[young] = YOUNG_P_VALUE


def separated(logs: Floats) -> NDArray[np.bool_]:
    """Return where the last `SEPARATION_AFTER` observations lie apart from those before them.

    `logs` are logarithms of observations at one level, in their order. Observations with fewer
    than `SEPARATION_BEFORE` before their group are never marked.
    """
    apart = np.zeros(len(logs), dtype=np.bool_)
    if len(logs) <= _SEPARATION_FIRST:
        return apart
    rows = np.flatnonzero(_may_lie_above(logs) | _may_lie_above(-logs))
    after = np.sort(sliding_window_view(logs[SEPARATION_BEFORE:], SEPARATION_AFTER)[rows], axis=1)
    before = np.sort(sliding_window_view(logs[:-SEPARATION_AFTER], SEPARATION_BEFORE)[rows], axis=1)
    is_above = after[:, 0] > before[:, -1 - _OUTLIERS_BEFORE]
    is_below = after[:, -1] < before[:, _OUTLIERS_BEFORE]
    (level, scale), (former, width) = _level_and_scale(after), _level_and_scale(before)
    least = _SEPARATION_LIMIT * np.maximum(np.maximum(scale, width), LEAST_SCALE)
    apart[_SEPARATION_FIRST + rows] = (is_above | is_below) & (np.abs(level - former) > least)
    return apart


def separated_young(logs: Floats, starts: Integers, ends: Integers) -> Integers:
    """Return the places of the observations with which young levels are separated.

    Levels begin at `starts` and end before `ends`. All `SEPARATION_AFTER` observations must lie on
    one side of all those before, of which there are fewer than `SEPARATION_BEFORE`. So few say
    little about their spread, so the gap is held against the whole range of either group.
    """
    is_long = ends - starts >= YOUNG_BEFORE + SEPARATION_AFTER
    starts, ends = starts[is_long], ends[is_long]
    # Values beyond an end are masked below. Columns are numbers before, from `YOUNG_BEFORE`.
    values = logs[np.minimum(starts[:, None] + np.arange(_SEPARATION_FIRST), ends[:, None] - 1)]
    after = sliding_window_view(values[:, YOUNG_BEFORE:], SEPARATION_AFTER, axis=1)
    lowest, highest = after.min(axis=2), after.max(axis=2)
    before = values[:, : SEPARATION_BEFORE - 1]
    least = np.minimum.accumulate(before, axis=1)[:, YOUNG_BEFORE - 1 :]
    most = np.maximum.accumulate(before, axis=1)[:, YOUNG_BEFORE - 1 :]
    needed = np.arange(YOUNG_BEFORE, SEPARATION_BEFORE) + SEPARATION_AFTER
    is_there = (ends - starts)[:, None] >= needed
    widths = np.maximum(np.maximum(most - least, highest - lowest), _YOUNG_LEAST_WIDTH)
    found = []
    for row, column in np.argwhere(is_there & ((lowest > most) | (highest < least))).tolist():
        split = YOUNG_BEFORE + column
        gap = abs(np.median(after[row, column]) - np.median(values[row, :split]))
        if gap > _YOUNG_WIDTHS * widths[row, column]:
            found.append(starts[row] + split + SEPARATION_AFTER - 1)
    return np.array(found, dtype=np.int64)


def _may_lie_above(logs: Floats) -> NDArray[np.bool_]:
    """Return where observations after may lie above all before them but `_OUTLIERS_BEFORE`.

    This cheap condition dismisses nearly all: among any `_OUTLIERS_BEFORE` + 1 neighbours before,
    at least one must lie below all of those after.
    """
    several = _OUTLIERS_BEFORE + 1
    count = len(logs) - _SEPARATION_FIRST
    lowest = _running_minimum(logs, several)
    begins = range(0, SEPARATION_BEFORE - _OUTLIERS_BEFORE, several)
    most = [lowest[begin : begin + count] for begin in begins]
    after = _running_minimum(logs[SEPARATION_BEFORE:], SEPARATION_AFTER)
    may: NDArray[np.bool_] = after > np.max(most, axis=0)
    return may


def _running_minimum(logs: Floats, length: int) -> Floats:
    count = len(logs) - length + 1
    lowest: Floats = np.min([logs[begin : begin + count] for begin in range(length)], axis=0)
    return lowest


def _level_and_scale(ordered: Floats) -> tuple[Floats, Floats]:
    """Return medians of ascending rows, and median absolute deviations as standard deviations."""
    level = _medians_of(ordered)
    return level, TO_SIGMA * _medians_of(np.sort(np.abs(ordered - level[:, None]), axis=1))


def _medians_of(ordered: Floats) -> Floats:
    count = ordered.shape[1]
    middle: Floats = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return middle
