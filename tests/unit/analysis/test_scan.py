"""The nights of many series at once, against the same arithmetic night by night in plain Python."""

from __future__ import annotations

import math
import platform
import subprocess
import sys
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perfrun.analysis import noise, scan
from perfrun.analysis.changepoint import ALARM, SeriesWatch
from perfrun.analysis.noise import BEFORE, FLOOR, TO_SIGMA, mean_variance
from perfrun.analysis.scan import (
    FEWEST_AFTER,
    FEWEST_BEFORE,
    FEWEST_LEVEL,
    MOST_AFTER,
    Stretch,
    energy_p_values,
    look_at,
)


def clipped(value: float, reach: float) -> float:
    return max(-reach, min(reach, value))


class PlainPast:
    """Level and noise of the nights before one end, as `nightnoise` describes them."""

    def __init__(self, stretch: Stretch, end: int) -> None:
        places = range(max(0, end - BEFORE), end)
        own = [place >= stretch.start for place in places]
        logs = [float(stretch.logs[place]) for place in places]
        about = [float(stretch.levels[place]) for place in places]
        self.noise_nights, self.nights = len(logs), sum(own)
        level = median(x for x, is_own in zip(logs, own, strict=True) if is_own)
        reach = noise._REACH
        for _ in range(2):
            centres = [level if is_own else at for is_own, at in zip(own, about, strict=True)]
            residuals = [x - centre for x, centre in zip(logs, centres, strict=True)]
            scale = max(TO_SIGMA * median(abs(one) for one in residuals), FLOOR)
            scores = [one / scale for one in residuals]
            moves = [clipped(s, reach) for s, is_own in zip(scores, own, strict=True) if is_own]
            level += scale * sum(moves) / self.nights
        self.level, self.scale = level, scale
        bounded = [clipped(s, reach) for s in scores]
        memory = sum(a * b for a, b in pairwise(bounded)) / max(sum(s**2 for s in bounded), 1e-12)
        memory += (1 + 3 * max(memory, 0)) / len(logs)
        self.likely = min(max(memory, 0), noise._MOST_MEMORY)
        margin = min(noise._MEMORY_MARGIN / len(logs), noise._MOST_MARGIN)
        self.memory = min(self.likely + margin, noise._MOST_MEMORY)
        telling = sum(abs(s) > noise._TELLING for s in scores)
        self.reach = float(
            noise._reach(np.array([telling]), np.array([len(logs)]), np.array([self.likely]))[0]
        )
        bounded = [clipped(s, self.reach) for s in scores]
        squares = sum(s**2 for s in bounded)
        news = [b - self.memory * a for a, b in pairwise(bounded)]
        fresh = sum(n**2 for n in news) / max(squares, 1e-12) * len(logs) / (len(logs) - 1)
        self.fresh = max(fresh, 1 - self.memory**2)
        near = [b**2 for b, s in zip(bounded, scores, strict=True) if abs(s) <= noise._FAR]
        inner, whole = sum(near) / max(len(near) - 1, 1), squares / max(len(logs) - 1, 1)
        mixed = noise._INNER * inner + (1 - noise._INNER) * whole
        self.spread = math.sqrt(max(mixed, 0.25))

    def score(self, logs: list[float]) -> float:
        """Of the night before a change and those after it."""
        nights = [clipped((x - self.level) / self.scale, self.reach) for x in logs]
        rest = 1 - self.memory
        news = [b - self.memory * a for a, b in pairwise(nights)]
        weight = 1 + (len(news) - 1) * rest**2
        variance = self.fresh / weight + float(
            mean_variance(np.array([self.memory]), self.nights)[0]
        )
        return abs(news[0] + rest * sum(news[1:])) / weight / (self.spread * math.sqrt(variance))


def plain_score(stretch: Stretch, night: int) -> tuple[float, int, PlainPast | None]:
    """P-value of the score in a night, and the split that says most."""
    fewest = max(FEWEST_BEFORE, stretch.start + FEWEST_LEVEL)
    best: tuple[float, int, PlainPast | None] = (0.0, 0, None)
    for after in range(FEWEST_AFTER, MOST_AFTER + 1):
        split = night - after + 1
        if split >= fewest:
            past = PlainPast(stretch, split)
            score = past.score(stretch.logs[split - 1 : night + 1].tolist())
            if score > best[0]:
                best = score, split, past
    score, split, past = best
    if past is None:
        return 1.0, 0, None
    freedom = max(past.noise_nights - 2, scan._LEAST_FREEDOM)
    tests = scan._LOOKS * (1 + scan._WARY * max(past.likely - scan._WARY_FROM, 0))
    return min(tests * 2 * float(stats.t.sf(score, freedom)), 1.0), split, past


def plain_energy(stretch: Stretch, night: int, split: int, past: PlainPast) -> float:
    begin = max(0, split - BEFORE)
    levels = [past.level if p >= stretch.start else stretch.levels[p] for p in range(night + 1)]
    nights = np.array([stretch.logs[p] - levels[p] for p in range(begin, night + 1)])
    return float(energy_p_values(nights[None, :], split - begin, np.array([past.likely]))[0])


def plain_separation(stretch: Stretch, night: int) -> float:
    """What `separation` promises: its p-value, or 1."""
    if night - scan.FIRST >= stretch.start:
        return scan.P_VALUE if is_apart(stretch, night) else 1.0
    return scan.YOUNG_P_VALUE if is_apart_though_young(stretch, night) else 1.0


def is_apart_though_young(stretch: Stretch, night: int) -> bool:
    split = night - scan.AFTER + 1
    before = stretch.logs[stretch.start : max(split, stretch.start)].tolist()
    if len(before) < scan.YOUNG:
        return False
    after = stretch.logs[split : night + 1].tolist()
    beside = min(after) > max(before) or max(after) < min(before)
    width = max(max(some) - min(some) for some in (before, after))
    least = scan.WIDTHS * max(width, scan._WIDTH_FLOOR)
    return beside and abs(median(after) - median(before)) > least


def is_apart(stretch: Stretch, night: int) -> bool:
    first = night - scan.FIRST
    before = sorted(stretch.logs[first : first + scan.BEFORE_SEPARATION].tolist())
    after = sorted(stretch.logs[first + scan.BEFORE_SEPARATION : night + 1].tolist())
    beside = after[0] > before[-1 - scan._ASTRAY] or after[-1] < before[scan._ASTRAY]
    widths = [median(abs(x - median(some)) for x in some) for some in (before, after)]
    least = scan.LIMIT * max(*(TO_SIGMA * width for width in widths), FLOOR)
    return beside and abs(median(after) - median(before)) > least


def noisy(generator: np.random.Generator, nights: int) -> np.ndarray:
    """Logarithms of any of the kinds of noise there are, with steps now and then."""
    kind = generator.integers(5)
    logs = generator.standard_normal(nights)
    if kind == 1:
        logs = generator.standard_t(2, nights)
    if kind == 2:
        for night in range(1, nights):
            logs[night] = 0.6 * logs[night - 1] + 0.8 * logs[night]
    if kind == 3:
        logs = np.round(logs)  # a clock with few levels
    if kind == 4:
        logs[:] = 0.0
    logs *= 0.02
    for _ in range(generator.integers(3)):
        logs[generator.integers(nights + 1) :] += generator.choice([-0.3, -0.05, 0.05, 0.1, 1.0])
    return logs


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.sampled_from([0, 1, 12, 13, 14, 19, 33, 75, 90]), min_size=1, max_size=3),
)
def test_what_is_said_of_each_night_is_what_plain_arithmetic_says(
    seed: int, sizes: list[int]
) -> None:
    generator = np.random.default_rng(seed)
    stretches = []
    for size in sizes:
        start = int(generator.integers(size)) if size and generator.random() < 0.5 else 0
        levels = np.zeros(size)
        levels[:start] = 0.01 * generator.standard_normal()
        since = int(generator.integers(start, size)) if start else 0
        stretches.append(Stretch(noisy(generator, size), levels, start, since))
    found, begin = look_at(stretches), 0
    for stretch in stretches:
        for night in range(len(stretch.logs)):
            p_value, split, past, energy = 1.0, 0, None, 1.0
            if night >= stretch.since:
                p_value, split, past = plain_score(stretch, night)
            at = begin + night
            assert found.score_p_values[at] == pytest.approx(p_value, rel=1e-9)
            if past and p_value <= scan._ASKED:
                energy = plain_energy(stretch, night, split, past)
            assert found.energy_p_values[at] == pytest.approx(energy, rel=1e-9)
            apart = plain_separation(stretch, night) if night >= stretch.since else 1.0
            assert found.separation[at] == (apart < 1)
            worse = max(p_value, energy) if energy < 1 else p_value
            if apart < worse:
                worse, split = apart, night - scan.AFTER + 1
            assert found.p_values[at] == pytest.approx(worse, rel=1e-9)
            if worse <= ALARM:
                assert found.splits[at] == split
        begin += len(stretch.logs)


def test_series_that_are_watched_together_say_what_each_says_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "_TOGETHER", 150)
    generator = np.random.default_rng(7)
    several = [np.exp(noisy(generator, size)) for size in (0, 40, 90, 14, 200, 0, 61, 100, 3)]
    together, p_values = SeriesWatch.all_of([values.tolist() for values in several])
    alone = [SeriesWatch(values) for values in several]
    for watch, own in zip(together, alone, strict=True):
        for night in range(len(own)):
            if own.p_values[night] <= ALARM:
                watch.cut(night)
                own.cut(night)
    assert sum(len(watch.changes()) for watch in together) >= 5
    assert [watch.changes() for watch in together] == [own.changes() for own in alone]
    assert p_values.tolist() == [p for own in alone for p in own.p_values.tolist()]


def test_no_series_at_all_say_nothing() -> None:
    assert SeriesWatch.all_of([])[0] == []
    assert SeriesWatch.all_of([[], []])[1].tolist() == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about how glibc keeps memory")
def test_looking_again_takes_its_memory_from_what_was_freed_and_not_from_the_kernel() -> None:
    program = """
import resource
import numpy as np
from perfrun.analysis.scan import Stretch, look_at

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

noise = np.random.default_rng(1).standard_normal((20, 500))
series = [Stretch(logs, np.zeros(500), 0, 0) for logs in noise]
look_at(series)  # by several threads, of which each has memory of its own: one may do it all
fewest = 10**9
for _ in range(5):
    before = pages()
    look_at(series)
    fewest = min(fewest, pages() - before)
print(fewest)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 2000  # without it, 5,600 and more
