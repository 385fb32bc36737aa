"""Every night of many series, compared with the nights before it: the arithmetic of `changepoint`.

Series are laid end to end and looked at together: most of them are so short that going through them
one by one would take longer than the comparing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perfrun.analysis.energy import energy_p_values
from perfrun.analysis.nightnoise import BEFORE, Past, before, mean_variance, past_of
from perfrun.analysis.separation import (
    AFTER,
    FIRST,
    P_VALUE,
    YOUNG,
    YOUNG_P_VALUE,
    separated,
    separated_young,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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


class _Asked(NamedTuple):
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

    def look(some: Sequence[Stretch], begin: int) -> _Asked:
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


def scores_of(logs: Floats, past: Past, begins: Integers) -> Floats:
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


def _look(laid: _Laid, looks: Looks) -> _Asked:
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
) -> _Asked:
    places = splits[:, None] + np.arange(-BEFORE, MOST_AFTER)
    places = np.clip(places, 0, len(laid.logs) - 1)  # what is not there is not looked at
    own = places >= laid.start[nights][:, None]
    return _Asked(
        nights=nights,
        values=laid.logs[places] - np.where(own, level[:, None], laid.levels[places]),
        before=np.minimum(splits - laid.first[nights], BEFORE),
        after=nights - splits + 1,
        memory=memory,
    )


def _ask_energy(questions: Sequence[_Asked], p_values: Floats) -> None:
    """Enter the answers. Questions about as many nights before and after are asked together."""
    if not questions:
        return
    every = _Asked._make([np.concatenate(columns) for columns in zip(*questions, strict=True)])
    kinds, kind_of = np.unique(every.before * (MOST_AFTER + 1) + every.after, return_inverse=True)
    for number, kind in enumerate(kinds.tolist()):
        those = np.flatnonzero(kind_of == number)
        count, after = divmod(kind, MOST_AFTER + 1)
        values = every.values[those, BEFORE - count : BEFORE + after]
        p_values[every.nights[those]] = energy_p_values(values, count, every.memory[those])
