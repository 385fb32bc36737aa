"""A simulation of the interval of a series' median: its coverage, and the cost of stopping.

`python -m simulations.median_interval [--series=N]` prints the tables of
docs/research/measurement.md. The series are log-normal with a spread of 5 %, each value keeping a
share of the last one's deviation, as times of one process do.
"""

from __future__ import annotations

import argparse
import math
import random
import sys

from perfrun.worker.measure.statistics import describe, median_interval
from perfrun.worker.measure.stopping import TIMED, Limits, SeriesProgress

LENGTHS = (30, 100, 1000)
MEMORIES = (0.0, 0.3, 0.6, 0.9)
SPREAD = 0.05
STEP_NS = 1_000_000


class Times:
    """A source of endless times about a median of 1."""

    def __init__(self, memory: float, source: random.Random) -> None:
        self._memory = memory
        self._source = source
        self._innovation = math.sqrt(1 - memory**2)
        self._deviation = source.gauss(0, 1)

    def next(self) -> float:
        fresh = self._source.gauss(0, self._innovation)
        self._deviation = self._memory * self._deviation + fresh
        return math.exp(SPREAD * self._deviation)


def coverage(length: int, memory: float, series: int) -> tuple[float, float, float]:
    """Return the coverage of our interval and the plain one, and the share without one."""
    source = random.Random(f"{length} {memory}")  # noqa: S311 (noise, not secrets)
    held = plain_held = absent = 0
    for _ in range(series):
        times = Times(memory, source)
        values = [times.next() for _ in range(length)]
        interval, plain = describe(values).interval, median_interval(sorted(values))
        absent += interval is None
        held += interval is not None and interval.low <= 1 <= interval.high
        plain_held += plain is not None and plain.low <= 1 <= plain.high
    return held / max(1, series - absent), plain_held / series, absent / series


def stopped(memory: float, series: int) -> tuple[float, float, float]:
    """Return, for the default limits: share of precise ends, their coverage, mean timed seconds."""
    source = random.Random(f"stop {memory}")  # noqa: S311 (as above)
    precise = held = 0
    timed_s = 0.0
    for _ in range(series):
        times, progress, now_ns = Times(memory, source), SeriesProgress(Limits(block_size=1)), 0
        while count := progress.next_count():
            wall_ns = round(STEP_NS * times.next())
            now_ns += wall_ns
            progress.add(count, wall_ns, now_ns)
        assert progress.phase is TIMED
        timed_s += progress.timed_ns / 1e9
        if progress.stopped_by == "precision":
            interval = describe(progress.times).interval
            precise += 1
            held += interval is not None and interval.low <= STEP_NS <= interval.high
    return precise / series, held / max(1, precise), timed_s / series


def main() -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=2000, help="series for each row")
    series = parser.parse_args().series
    lines = ["| iterations | kept of the last | holds the median | not widened | no interval |"]
    lines.append("|---|---|---|---|---|")
    for length in LENGTHS:
        for memory in MEMORIES:
            ours, plain, absent = coverage(length, memory, series)
            lines.append(f"| {length} | {memory:.0%} | {ours:.1%} | {plain:.1%} | {absent:.1%} |")
    few = max(1, series // 10)
    lines += ["", "| kept of the last | ends precise | of these hold the median | timed, mean |"]
    lines.append("|---|---|---|---|")
    for memory in MEMORIES:
        share, held, seconds = stopped(memory, few)
        lines.append(f"| {memory:.0%} | {share:.1%} | {held:.1%} | {seconds:.2f} s |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
