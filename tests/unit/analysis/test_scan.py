"""Many series scanned together, held against the same arithmetic one by one in plain Python."""

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
from perfrun.analysis.noise import LEAST_SCALE, MOST_BEFORE, TO_SIGMA, mean_variance
from perfrun.analysis.scan import (
    FEWEST_AFTER,
    FEWEST_BEFORE,
    FEWEST_LEVEL,
    MOST_AFTER,
    SeriesToScan,
    energy_p_values,
    scan_series,
)


def clipped(value: float, reach: float) -> float:
    return max(-reach, min(reach, value))


class PlainBaseline:
    """Level and noise of the observations before one end, as `noise` describes them."""

    def __init__(self, series: SeriesToScan, end: int) -> None:
        places = range(max(0, end - MOST_BEFORE), end)
        own = [place >= series.start for place in places]
        logs = [float(series.logs[place]) for place in places]
        about = [float(series.levels[place]) for place in places]
        self.noise_count, self.level_count = len(logs), sum(own)
        level = median(x for x, is_own in zip(logs, own, strict=True) if is_own)
        reach = noise._REACH
        for _ in range(2):
            centres = [level if is_own else at for is_own, at in zip(own, about, strict=True)]
            residuals = [x - centre for x, centre in zip(logs, centres, strict=True)]
            scale = max(TO_SIGMA * median(abs(one) for one in residuals), LEAST_SCALE)
            scores = [one / scale for one in residuals]
            moves = [clipped(s, reach) for s, is_own in zip(scores, own, strict=True) if is_own]
            level += scale * sum(moves) / self.level_count
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
        """Return the score of the observation before a change and those after it."""
        observations = [clipped((x - self.level) / self.scale, self.reach) for x in logs]
        rest = 1 - self.memory
        news = [b - self.memory * a for a, b in pairwise(observations)]
        weight = 1 + (len(news) - 1) * rest**2
        variance = self.fresh / weight + float(
            mean_variance(np.array([self.memory]), self.level_count)[0]
        )
        return abs(news[0] + rest * sum(news[1:])) / weight / (self.spread * math.sqrt(variance))


def plain_score(series: SeriesToScan, place: int) -> tuple[float, int, PlainBaseline | None]:
    """Return the score's p-value at an observation, and the split with the largest score."""
    fewest = max(FEWEST_BEFORE, series.start + FEWEST_LEVEL)
    best: tuple[float, int, PlainBaseline | None] = (0.0, 0, None)
    for after in range(FEWEST_AFTER, MOST_AFTER + 1):
        split = place - after + 1
        if split >= fewest:
            baseline = PlainBaseline(series, split)
            score = baseline.score(series.logs[split - 1 : place + 1].tolist())
            if score > best[0]:
                best = score, split, baseline
    score, split, baseline = best
    if baseline is None:
        return 1.0, 0, None
    freedom = max(baseline.noise_count - 2, scan._LEAST_FREEDOM)
    tests = scan._EFFECTIVE_TESTS * (
        1 + scan._TESTS_PER_MEMORY * max(baseline.likely - scan._STRONG_MEMORY, 0)
    )
    return min(tests * 2 * float(stats.t.sf(score, freedom)), 1.0), split, baseline


def plain_energy(series: SeriesToScan, place: int, split: int, baseline: PlainBaseline) -> float:
    begin = max(0, split - MOST_BEFORE)
    levels = [baseline.level if p >= series.start else series.levels[p] for p in range(place + 1)]
    residuals = np.array([series.logs[p] - levels[p] for p in range(begin, place + 1)])
    return float(energy_p_values(residuals[None, :], split - begin, np.array([baseline.likely]))[0])


def plain_separation(series: SeriesToScan, place: int) -> float:
    """Return the p-value of separation, or 1 where it does not hold."""
    if place - scan._SEPARATION_FIRST >= series.start:
        return scan.SEPARATION_P_VALUE if is_apart(series, place) else 1.0
    return scan.YOUNG_P_VALUE if is_apart_though_young(series, place) else 1.0


def is_apart_though_young(series: SeriesToScan, place: int) -> bool:
    split = place - scan.SEPARATION_AFTER + 1
    before = series.logs[series.start : max(split, series.start)].tolist()
    if len(before) < scan.YOUNG_BEFORE:
        return False
    after = series.logs[split : place + 1].tolist()
    beside = min(after) > max(before) or max(after) < min(before)
    width = max(max(some) - min(some) for some in (before, after))
    least = scan._YOUNG_WIDTHS * max(width, scan._YOUNG_LEAST_WIDTH)
    return beside and abs(median(after) - median(before)) > least


def is_apart(series: SeriesToScan, place: int) -> bool:
    first = place - scan._SEPARATION_FIRST
    before = sorted(series.logs[first : first + scan.SEPARATION_BEFORE].tolist())
    after = sorted(series.logs[first + scan.SEPARATION_BEFORE : place + 1].tolist())
    beside = (
        after[0] > before[-1 - scan._OUTLIERS_BEFORE] or after[-1] < before[scan._OUTLIERS_BEFORE]
    )
    widths = [median(abs(x - median(some)) for x in some) for some in (before, after)]
    least = scan._SEPARATION_LIMIT * max(*(TO_SIGMA * width for width in widths), LEAST_SCALE)
    return beside and abs(median(after) - median(before)) > least


def noisy(generator: np.random.Generator, count: int) -> np.ndarray:
    """Draw logarithms of any kind of noise, with steps now and then."""
    kind = generator.integers(5)
    logs = generator.standard_normal(count)
    if kind == 1:
        logs = generator.standard_t(2, count)
    if kind == 2:
        for place in range(1, count):
            logs[place] = 0.6 * logs[place - 1] + 0.8 * logs[place]
    if kind == 3:
        logs = np.round(logs)  # a clock with few levels
    if kind == 4:
        logs[:] = 0.0
    logs *= 0.02
    for _ in range(generator.integers(3)):
        logs[generator.integers(count + 1) :] += generator.choice([-0.3, -0.05, 0.05, 0.1, 1.0])
    return logs


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.sampled_from([0, 1, 12, 13, 14, 19, 33, 75, 90]), min_size=1, max_size=3),
)
def test_every_observation_is_judged_as_by_plain_arithmetic(seed: int, sizes: list[int]) -> None:
    generator = np.random.default_rng(seed)
    several = []
    for size in sizes:
        start = int(generator.integers(size)) if size and generator.random() < 0.5 else 0
        levels = np.zeros(size)
        levels[:start] = 0.01 * generator.standard_normal()
        since = int(generator.integers(start, size)) if start else 0
        several.append(SeriesToScan(noisy(generator, size), levels, start, since))
    found, begin = scan_series(several), 0
    for series in several:
        for place in range(len(series.logs)):
            p_value, split, baseline, energy = 1.0, 0, None, 1.0
            if place >= series.since:
                p_value, split, baseline = plain_score(series, place)
            at = begin + place
            assert found.score_p_values[at] == pytest.approx(p_value, rel=1e-9)
            if baseline and p_value <= scan._ENERGY_FROM:
                energy = plain_energy(series, place, split, baseline)
            assert found.energy_p_values[at] == pytest.approx(energy, rel=1e-9)
            apart = plain_separation(series, place) if place >= series.since else 1.0
            assert found.separation[at] == (apart < 1)
            worse = max(p_value, energy) if energy < 1 else p_value
            if apart < worse:
                worse, split = apart, place - scan.SEPARATION_AFTER + 1
            assert found.p_values[at] == pytest.approx(worse, rel=1e-9)
            if worse <= ALARM:
                assert found.splits[at] == split
        begin += len(series.logs)


def test_series_that_are_watched_together_give_the_p_values_of_each_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "_OBSERVATIONS_A_PASS", 150)
    generator = np.random.default_rng(7)
    several = [np.exp(noisy(generator, size)) for size in (0, 40, 90, 14, 200, 0, 61, 100, 3)]
    together, scanned = SeriesWatch.all_of([values.tolist() for values in several])
    alone = [SeriesWatch(values) for values in several]
    for watch, own in zip(together, alone, strict=True):
        for place in range(len(own)):
            if own.p_values[place] <= ALARM:
                watch.cut(place)
                own.cut(place)
    assert sum(len(watch.changes()) for watch in together) >= 5
    assert [watch.changes() for watch in together] == [own.changes() for own in alone]
    assert scanned.p_values.tolist() == [p for own in alone for p in own.p_values.tolist()]


def test_no_series_and_empty_series_give_nothing() -> None:
    assert SeriesWatch.all_of([])[0] == []
    assert SeriesWatch.all_of([[], []])[1].p_values.tolist() == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about how glibc keeps memory")
def test_a_second_scan_uses_freed_memory_and_takes_none_from_the_kernel() -> None:
    program = """
import resource
import numpy as np
from perfrun.analysis.scan import SeriesToScan, scan_series

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

noise = np.random.default_rng(1).standard_normal((20, 500))
series = [SeriesToScan(logs, np.zeros(500), 0, 0) for logs in noise]
scan_series(series)  # by several threads, of which each has memory of its own: one may do it all
fewest = 10**9
for _ in range(5):
    before = pages()
    scan_series(series)
    fewest = min(fewest, pages() - before)
print(fewest)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 2000  # without it, 5,600 and more
