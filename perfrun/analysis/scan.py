"""Every night of many series, compared with the nights before it: the arithmetic of `changepoint`.

Series are laid end to end and looked at together: most of them are so short that going through them
one by one would take longer than the comparing.

Whether two groups of nights are drawn alike, by the energy statistic on ranks.

The statistic of E-divisive (Matteson and James, JASA 109, 2014) is the energy distance between the
nights before a split and those after it. Taken on ranks it is the criterion of Cramer and von Mises
(Anderson, Annals of Mathematical Statistics 33, 1962): no outlier and no tail moves it, and its
distribution without a change is the same for every series, so that it need not be permuted anew.
The memory of the noise is taken out first, as permutations know of none.

Steps so large that nothing need be known of the noise to see them.

The score and the energy statistic (`changepoint`) ask how much memory the noise has. A step itself
looks like memory, most of all in a young history: the longer it stays unreported the more it looks
like one, until it counts as noise for good. This member asks for no memory and for few nights: the
last ones lie apart from nearly all of those before them, by many times the spread within either.

Before twelve nights are known there is no judging how wide they lie. Then, from six nights on, the
gap is held against the whole width of either group instead: that of all nights, none left out.

Noise with a memory makes such gaps by itself, now and then. `LIMIT` and `WIDTHS` are chosen so that
it hardly ever does; `simulations/detect.py` and `simulations/oracle.py` have the figures.
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

from perfrun.analysis.noise import BEFORE, FLOOR, TO_SIGMA, Baseline, before, mean_variance, past_of

Floats = NDArray[np.float64]

_DRAWS = 4000  # permutations that a table rests on
_AT_ONCE = 250  # what is in work fits into a processor's cache
_NIGHTS = 60  # before the split, of the tables; once moments are matched it hardly matters
_TAIL = 0.01  # probability below which the tail is taken as exponential, as it is in the limit


def whitened(nights: Floats, memory: float | Floats) -> Floats:
    """What is new in each night of an AR(1) process, as wide as the nights themselves.

    Nights are the last axis; `memory` is one, or has 1 there.
    """
    news = nights.copy()
    news[..., 1:] -= memory * nights[..., :-1]
    news[..., 1:] /= np.sqrt(1 - np.square(memory))
    return news


def energy_p_values(rows: Floats, split: int, memory: Floats) -> Floats:
    """Probability of nights from `split` on lying so far from those before, if nothing changed.

    A row is a series of nights, and has a memory of its own.
    """
    count = rows.shape[1]
    after = count - split
    order = np.argsort(whitened(rows, memory[:, None]), axis=1, kind="stable")
    values = _standardised(order >= split, after)
    table = _table(after)
    shares = (len(table) - np.searchsorted(table, values - 1e-9)) / len(table)
    begin, end = table[-1 - round(_TAIL * _DRAWS)], table[-1 - round(_TAIL * _DRAWS / 10)]
    slope = math.log(10) / max(float(end - begin), 1e-9)
    least = 1 / math.comb(count, after)  # no permutation test can say less
    tails = np.maximum(_TAIL * np.exp(-slope * np.maximum(values - begin, 0)), least)
    p_values: Floats = np.where(values <= begin, shares, tails)
    return p_values


@lru_cache(maxsize=64)
def _table(after: int) -> Floats:
    """The statistic of permutations, in ascending order; the seed is fixed."""
    generator = np.random.default_rng([20261121, after])
    found = []
    for _ in range(_DRAWS // _AT_ONCE):
        shuffled = np.argsort(generator.random((_AT_ONCE, _NIGHTS + after)), axis=1) >= _NIGHTS
        found.append(_standardised(shuffled, after))
    return np.sort(np.concatenate(found))


def _standardised(is_after: NDArray[np.bool_], after: int) -> Floats:
    """The criterion of rows of nights in the order of their values, by its mean and spread."""
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


Integers = NDArray[np.int64]

BEFORE_SEPARATION = 12  # nights
AFTER = 6  # nights after them
FIRST = BEFORE_SEPARATION + AFTER - 1  # the first night of a series of which something can be said
LIMIT = 8.0  # robust standard deviations, the larger of the two windows', between their medians
_ASTRAY = 2  # nights of those before that may lie anywhere
P_VALUE = 2e-5  # share of the nights of AR(1) 0.5 in which this happens; of others, it is less
YOUNG = 6  # nights before, where there are fewer than `BEFORE`
WIDTHS = 2.0  # of the wider group, between their medians; a width is that of all its nights
YOUNG_P_VALUE = 5e-5  # as above, of the nights with so few before
_WIDTH_FLOOR = 2.5 * FLOOR  # of six nights, in their standard deviations


def separated(logs: Floats) -> NDArray[np.bool_]:
    """Whether the `AFTER` nights that end with each lie apart from the `BEFORE` before them.

    Nights are logarithms of one level, in their order; of the first ones nothing can be said.
    """
    apart = np.zeros(len(logs), dtype=np.bool_)
    if len(logs) <= FIRST:
        return apart
    rows = np.flatnonzero(_may_lie_above(logs) | _may_lie_above(-logs))
    after = np.sort(sliding_window_view(logs[BEFORE_SEPARATION:], AFTER)[rows], axis=1)
    before = np.sort(sliding_window_view(logs[:-AFTER], BEFORE_SEPARATION)[rows], axis=1)
    is_beside = (after[:, 0] > before[:, -1 - _ASTRAY]) | (after[:, -1] < before[:, _ASTRAY])
    (level, scale), (former, width) = _about(after), _about(before)
    least = LIMIT * np.maximum(np.maximum(scale, width), FLOOR)
    apart[FIRST + rows] = is_beside & (np.abs(level - former) > least)
    return apart


def separated_young(logs: Floats, starts: Integers, ends: Integers) -> Integers:
    """Of levels that begin at `starts`, and end before `ends`: the nights with which it is so.

    All `AFTER` nights lie on one side of all those before, of which there are fewer than `BEFORE`.
    """
    is_long = ends - starts >= YOUNG + AFTER
    starts, ends = starts[is_long], ends[is_long]
    # What lies beyond an end is not looked at. Columns are numbers of nights before, from `YOUNG`.
    nights = logs[np.minimum(starts[:, None] + np.arange(FIRST), ends[:, None] - 1)]
    after = sliding_window_view(nights[:, YOUNG:], AFTER, axis=1)
    lowest, highest = after.min(axis=2), after.max(axis=2)
    least = np.minimum.accumulate(nights[:, : BEFORE_SEPARATION - 1], axis=1)[:, YOUNG - 1 :]
    most = np.maximum.accumulate(nights[:, : BEFORE_SEPARATION - 1], axis=1)[:, YOUNG - 1 :]
    is_there = (ends - starts)[:, None] >= np.arange(YOUNG, BEFORE_SEPARATION) + AFTER
    widths = np.maximum(np.maximum(most - least, highest - lowest), _WIDTH_FLOOR)
    found = []
    for row, column in np.argwhere(is_there & ((lowest > most) | (highest < least))).tolist():
        split = YOUNG + column
        gap = abs(np.median(after[row, column]) - np.median(nights[row, :split]))
        if gap > WIDTHS * widths[row, column]:
            found.append(starts[row] + split + AFTER - 1)
    return np.array(found, dtype=np.int64)


def _may_lie_above(logs: Floats) -> NDArray[np.bool_]:
    """Whether nights after may lie above all before them but `_ASTRAY`; dismisses nearly all.

    Then they lie above one at least of `_ASTRAY` + 1 neighbours, wherever these are.
    """
    several = _ASTRAY + 1
    count = len(logs) - FIRST
    lowest = _lowest(logs, several)
    most = [
        lowest[begin : begin + count] for begin in range(0, BEFORE_SEPARATION - _ASTRAY, several)
    ]
    may: NDArray[np.bool_] = _lowest(logs[BEFORE_SEPARATION:], AFTER) > np.max(most, axis=0)
    return may


def _lowest(logs: Floats, nights: int) -> Floats:
    """Of as many nights in a row, the lowest."""
    count = len(logs) - nights + 1
    lowest: Floats = np.min([logs[begin : begin + count] for begin in range(nights)], axis=0)
    return lowest


def _about(ordered: Floats) -> tuple[Floats, Floats]:
    """Median of rows in ascending order, and median absolute deviation as a standard deviation."""
    level = _middle(ordered)
    return level, TO_SIGMA * _middle(np.sort(np.abs(ordered - level[:, None]), axis=1))


def _middle(ordered: Floats) -> Floats:
    count = ordered.shape[1]
    middle: Floats = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return middle


FEWEST_NIGHTS = YOUNG + AFTER  # of a series of which something is said: of large steps only
FEWEST_BEFORE = 12  # nights before a step that score and energy are asked about
FEWEST_AFTER = 2  # nights at the new level
MOST_AFTER = 21
FEWEST_LEVEL = 4  # nights from which the level after a change is known well enough for the next
_LOOKS = 5.0  # independent tests that all the numbers of nights after amount to
_WARY, _WARY_FROM = 20.0, 0.25  # more of them for each unit of memory above this
_LEAST_FREEDOM = 30.0  # nights are cut off, so tails are never as long as Student's of so few
# A score of which so many tests, and a tail that is no shorter than a normal one, make nothing.
_NOTHING = -float(special.ndtri(0.5 / _LOOKS))
_ASKED = 0.02  # p-value of the score from which on the energy statistic is asked too
_TOGETHER = 3000  # nights in one pass: what is in work fits into a processor's cache
_THREADS = 2  # that look; with more, reading takes most of the time
_KEPT_BYTES = 16 * 2**20  # more than half of what is in work; above 32 MiB it is not remembered


class Stretch(NamedTuple):
    """A series, from whose night `start` on nothing is known to have changed."""

    logs: Floats
    levels: Floats  # that the nights before `start` were at
    start: int
    since: int  # the first night that is asked about


class Looks(NamedTuple):
    """What is said of each night; of those that were not asked about, nothing."""

    p_values: Floats  # the larger of score's and energy's, or `separation`'s where that is less
    score_p_values: Floats
    energy_p_values: Floats  # 1 where it was not asked
    separation: NDArray[np.bool_]
    splits: Integers  # the first night at the new level, if there is one

    def part(self, begin: int, end: int) -> Looks:
        """Those of some nights; the same memory."""
        return Looks._make([column[begin:end] for column in self])


class _EnergyQuestions(NamedTuple):
    """What the energy statistic is asked: a row for each question."""

    nights: Integers
    values: Floats  # `BEFORE` nights before a change and `MOST_AFTER` from it on, less their level
    before: Integers  # nights of the former that are there
    after: Integers
    memory: Floats


def look_at(stretches: Sequence[Stretch]) -> Looks:
    """Look at the nights of series, which come back end to end."""
    sizes = [len(one.logs) for one in stretches]
    total = sum(sizes)
    looks = Looks(
        p_values=np.ones(total),
        score_p_values=np.ones(total),
        energy_p_values=np.ones(total),
        separation=np.zeros(total, dtype=np.bool_),
        splits=np.zeros(total, dtype=np.int64),
    )
    _keep_freed_memory()
    portions = list(_portions(stretches))
    begins = accumulate((sum(len(one.logs) for one in some) for some in portions), initial=0)

    def look(some: Sequence[Stretch], begin: int) -> _EnergyQuestions:
        laid = _Laid(some)
        asked = _look(laid, looks.part(begin, begin + len(laid.logs)))
        return asked._replace(nights=asked.nights + begin)

    if len(portions) > 1:  # numpy lets other threads run meanwhile, and they share nothing
        with ThreadPoolExecutor(_THREADS) as pool:
            questions = list(pool.map(look, portions, begins))
    else:
        questions = list(map(look, portions, begins))
    _ask_energy(questions, looks.energy_p_values)
    others = looks.score_p_values.copy()
    nights = np.flatnonzero(looks.energy_p_values < 1)
    others[nights] = np.maximum(others[nights], looks.energy_p_values[nights])
    apart = np.flatnonzero(looks.p_values < others)
    np.minimum(looks.p_values, others, out=looks.p_values)
    looks.splits[apart] = (apart - np.repeat(np.cumsum(sizes) - sizes, sizes)[apart]) - AFTER + 1
    return looks


def _keep_freed_memory() -> None:
    """Have the memory of one pass used again by the next.

    glibc gives what is freed back to the kernel, which clears every page before it is had again:
    that takes as long as the arithmetic. Once it has seen a large piece go, it keeps up to twice
    as much (mallopt(3), M_TRIM_THRESHOLD). Elsewhere this does nothing. 4,000 series of 365 nights
    then take 6 % less of the processor's time, and a quarter of the page faults.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


def scores_of(logs: Floats, past: Baseline, begins: Integers) -> Floats:
    """How many standard errors 1, 2, ... `MOST_AFTER` nights from each begin lie from those before.

    A column for each begin. What would go beyond the last night is without meaning.
    """
    padded = np.concatenate([logs, np.full(MOST_AFTER, logs[-1])])
    nights = np.array([padded[begins + place] for place in range(-1, MOST_AFTER)])
    nights -= past.level  # the night before is the first row
    nights /= past.scale
    np.clip(nights, -past.reach, past.reach, out=nights)
    rest = 1 - past.memory
    news = nights[1:] - past.memory * nights[:-1]
    news[1:] *= rest  # weights of generalised least squares: the first night has 1
    weight = 1 + np.arange(MOST_AFTER)[:, None] * rest**2
    variance = past.fresh / weight + mean_variance(past.memory, past.nights)
    for place in range(1, MOST_AFTER):
        news[place] += news[place - 1]  # np.cumsum down the columns takes seven times as long
    moved = np.abs(news) / weight
    scores: Floats = moved / (past.spread * np.sqrt(variance))
    return scores


class _Laid:
    """Some series end to end. Places count from the first night of the first one."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        sizes = np.array([len(one.logs) for one in stretches])
        begins = np.cumsum(sizes) - sizes
        self.logs = np.concatenate([one.logs for one in stretches])
        self.levels = np.concatenate([one.levels for one in stretches])
        # Of each night: the first one of its series, its level, and those asked about.
        self.first = np.repeat(begins, sizes)
        self.start = np.repeat(begins + [one.start for one in stretches], sizes)
        self.since = np.repeat(begins + [one.since for one in stretches], sizes)
        self.end = np.repeat(begins + sizes, sizes)
        self.places = np.arange(len(self.logs))

    def ends(self) -> Integers:
        """The nights that may be the first ones at a new level."""
        least = np.maximum(self.first + FEWEST_BEFORE, self.start + FEWEST_LEVEL)
        is_end = self.places >= least
        return np.flatnonzero(is_end & (self.places <= self.end - FEWEST_AFTER))


def _portions(stretches: Sequence[Stretch]) -> Iterator[Sequence[Stretch]]:
    """As many series as go into one pass; a long one alone."""
    begin = nights = 0
    for number, one in enumerate(stretches):
        if nights and nights + len(one.logs) > _TOGETHER:
            yield stretches[begin:number]
            begin, nights = number, 0
        nights += len(one.logs)
    if nights:
        yield stretches[begin:]


def _look(laid: _Laid, looks: Looks) -> _EnergyQuestions:
    """Enter what score and separation say; return what to ask the energy statistic."""
    is_asked_about = laid.places >= laid.since
    _enter_separation(laid, looks, is_asked_about)
    ends = laid.ends()
    past = past_of(before(laid.logs, laid.levels, ends, laid.first[ends], laid.start[ends]))
    scores = scores_of(laid.logs, past, ends)
    best, after = _best(scores, ends, laid)
    splits = laid.places - after + 1
    looks.splits[:] = splits - laid.first
    nights = np.flatnonzero((best > _NOTHING) & is_asked_about)
    row_of = np.zeros(len(laid.logs), dtype=np.int64)
    row_of[ends] = np.arange(len(ends))
    rows = row_of[splits[nights]]
    freedom = np.maximum(past.noise_nights - 2, _LEAST_FREEDOM)[rows]
    tests = _LOOKS * (1 + _WARY * np.maximum(past.likely_memory[rows] - _WARY_FROM, 0))
    tails = 2 * special.stdtr(freedom, -best[nights])
    looks.score_p_values[nights] = np.minimum(tests * tails, 1.0)
    asked = looks.score_p_values[nights] <= _ASKED
    nights, rows = nights[asked], rows[asked]
    return _questions(laid, nights, splits[nights], past.level[rows], past.likely_memory[rows])


def _enter_separation(laid: _Laid, looks: Looks, is_asked_about: NDArray[np.bool_]) -> None:
    """The p-values of nights that lie apart are `separation`'s, until the others are known."""
    known = laid.places - laid.start >= FIRST
    looks.separation[:] = separated(laid.logs) & known & is_asked_about
    looks.p_values[looks.separation] = P_VALUE
    is_start = (laid.places == laid.start) & (laid.since < laid.start + FIRST)
    young = separated_young(laid.logs, laid.places[is_start], laid.end[is_start])
    young = young[is_asked_about[young]]
    looks.separation[young] = True
    looks.p_values[young] = YOUNG_P_VALUE


def _best(scores: Floats, ends: Integers, laid: _Laid) -> tuple[Floats, Integers]:
    """Of each night: the best score, and of how many nights that are the last ones, it included."""
    total = len(laid.logs)
    best, count = np.zeros(total), np.ones(total, dtype=np.int64)
    table = np.zeros((MOST_AFTER, MOST_AFTER + total))
    is_there = np.arange(1, MOST_AFTER + 1)[:, None] <= laid.end[ends] - ends
    table[:, MOST_AFTER + ends] = np.where(is_there, scores, 0.0)
    for after in range(FEWEST_AFTER, MOST_AFTER + 1):
        begin = MOST_AFTER - after + 1  # the begin of as many nights that end with the first one
        own = table[after - 1, begin : begin + total]
        is_better = own > best
        np.copyto(best, own, where=is_better)
        np.copyto(count, after, where=is_better)
    return best, count


def _questions(
    laid: _Laid, nights: Integers, splits: Integers, level: Floats, memory: Floats
) -> _EnergyQuestions:
    places = splits[:, None] + np.arange(-BEFORE, MOST_AFTER)
    places = np.clip(places, 0, len(laid.logs) - 1)  # what is not there is not looked at
    own = places >= laid.start[nights][:, None]
    return _EnergyQuestions(
        nights=nights,
        values=laid.logs[places] - np.where(own, level[:, None], laid.levels[places]),
        before=np.minimum(splits - laid.first[nights], BEFORE),
        after=nights - splits + 1,
        memory=memory,
    )


def _ask_energy(questions: Sequence[_EnergyQuestions], p_values: Floats) -> None:
    """Enter the answers. Questions about as many nights before and after are asked together."""
    if not questions:
        return
    every = _EnergyQuestions._make(
        [np.concatenate(columns) for columns in zip(*questions, strict=True)]
    )
    kinds, kind_of = np.unique(every.before * (MOST_AFTER + 1) + every.after, return_inverse=True)
    for number, kind in enumerate(kinds.tolist()):
        those = np.flatnonzero(kind_of == number)
        count, after = divmod(kind, MOST_AFTER + 1)
        values = every.values[those, BEFORE - count : BEFORE + after]
        p_values[every.nights[those]] = energy_p_values(values, count, every.memory[those])
