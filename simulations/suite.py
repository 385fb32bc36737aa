"""A simulation of a suite: which of its steps `perfrun detect` finds, and what it reports falsely.

    python -m simulations.suite                       # the tables of docs/research/detection.md
    python -m simulations.suite --suites=5 --moved=20
    python -m simulations.suite --digests             # nights that ran what the night before ran

A suite has 300 series with noise of 2 % and a step of 5 %, up or down, in 60 of them: all after 60
nights, or each after a number of nights of its own from 60 to 119. `--first` is the first seed.
With `--digests` steps begin in nights with new commits only; the other nights run the same again,
and the suite is judged with and without knowing that.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from perfrun.analysis.changepoint import SeriesWatch
from perfrun.analysis.detection import History, watch_suite
from simulations.detect import BEFORE, LATER, WITHIN, gaussian, log_normal, outliers
from simulations.noises import Floats, Noise, drifting

SPREAD, STEP = 0.02, 0.05
NIGHTS = {"together": BEFORE + LATER, "apart": 2 * BEFORE + LATER, "none": 100}
SUITES: dict[str, tuple[Noise, ...]] = {
    "Gaussian": (gaussian,),
    "four kinds": (gaussian, log_normal, outliers, drifting),
}
_NEAR = 5  # nights between a step and where it is found
Steps = Literal["together", "apart", "none"]
Watch = Callable[[Sequence[History]], list[SeriesWatch]]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The series of a suite, and the night of the step of each, -1 where there is none."""

    table: Floats
    begins: Sequence[int]
    repeats: Sequence[bool] = ()  # nights that run what the night before ran


@dataclass(frozen=True, kw_only=True)
class Score:
    """The counts of a simulated suite."""

    made: int
    early: int  # found within `WITHIN` nights
    found: int  # within `LATER`
    right: int  # of all found, on the night of the step
    false: int  # reports that are none of the steps
    seconds: float


def make(
    noises: Sequence[Noise],
    steps: Steps,
    series: int,
    moved: int,
    seed: int,
    repeats: Sequence[bool] = (),
) -> Suite:
    """Draw a suite whose series have these kinds of noise in turn."""
    generator = np.random.default_rng([seed, 300])
    table = np.empty((series, NIGHTS[steps]))
    for number, noise in enumerate(noises):
        own = table[number :: len(noises)]
        own[:] = noise(generator, own.shape, SPREAD)
    begins = np.full(series, -1)
    if steps != "none":
        for number in generator.choice(series, moved, replace=False):
            late = int(generator.integers(BEFORE)) if steps == "apart" else 0
            begins[number] = BEFORE + late
            while repeats and repeats[begins[number]]:
                begins[number] += 1
            is_up = generator.random() < 0.5
            table[number, begins[number] :] *= 1 + STEP if is_up else 1 / (1 + STEP)
    return Suite(table=table, begins=begins.tolist(), repeats=repeats)


def score(suite: Suite, watch: Watch) -> Score:
    """Detect changes, and count them against those that were made."""
    nights = range(suite.table.shape[1])
    histories = [
        History(values=own.tolist(), nights=nights, direction="lower", repeats=suite.repeats)
        for own in suite.table
    ]
    begin = time.process_time()
    watches = watch(histories)
    seconds = time.process_time() - begin
    early = found = right = false = 0
    for step, one in zip(suite.begins, watches, strict=True):
        is_left = step >= 0
        for change in one.changes():
            is_near = abs(change.first_after - step) <= _NEAR and change.alarm >= step
            if is_left and is_near:
                early += change.alarm < step + WITHIN
                found += change.alarm < step + LATER
                right += change.first_after == step
                is_left = False
            else:
                false += 1
    made = sum(step >= 0 for step in suite.begins)
    return Score(made=made, early=early, found=found, right=right, false=false, seconds=seconds)


def each_alone(histories: Sequence[History]) -> list[SeriesWatch]:
    """Test no series for what others show."""
    return watch_suite(histories, together=0)


def weekends(night: int) -> bool:
    """Return True on two of seven nights; the step of steps that come together is on another."""
    return (night - BEFORE) % 7 in (5, 6)


def all_but_one_a_week(night: int) -> bool:
    return (night - BEFORE) % 7 != 0


REPEATS = {"all but weekends": weekends, "once a week": all_but_one_a_week}
WATCHES: dict[str, Watch] = {"each by itself": each_alone, "perfrun": watch_suite}


def _row(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=300, help="of a suite (300)")
    parser.add_argument("--moved", type=int, default=60, help="of them with a step (60)")
    parser.add_argument("--suites", type=int, default=12, help="of each kind (12)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first suite (0)")
    parser.add_argument("--digests", action="store_true", help="with nights that ran the same")
    given = parser.parse_args(arguments)
    if not 0 < given.moved <= given.series or given.suites < 1:
        sys.stderr.write("--moved must be 1 to --series, and --suites 1 or more\n")
        return 2
    if given.digests:
        return _with_digests(range(given.first, given.first + given.suites), given)
    head = ("noise", "steps", "judged", "<= 7", "<= 21", "false, a suite", "CPU seconds")
    _row(head)
    sys.stdout.write(f"{'|---' * len(head)}|\n")
    seeds = range(given.first, given.first + given.suites)
    kinds: tuple[Steps, ...] = ("together", "apart", "none")
    for name, noises in SUITES.items():
        for steps in kinds:
            suites = [make(noises, steps, given.series, given.moved, seed) for seed in seeds]
            for judged, watch in WATCHES.items():
                scores = [score(suite, watch) for suite in suites]
                made = sum(one.made for one in scores)
                shares = [
                    f"{100 * count / made:.1f}" if made else "-"
                    for count in (sum(s.early for s in scores), sum(s.found for s in scores))
                ]
                false = sum(one.false for one in scores) / len(scores)
                seconds = sum(one.seconds for one in scores) / len(scores)
                _row((name, steps, judged, *shares, f"{false:.2f}", f"{seconds:.2f}"))
    return 0


def _with_digests(seeds: Sequence[int], given: argparse.Namespace) -> int:
    _row(("noise", "steps", "new commits", "digests", "<= 7", "<= 21", "right night", "false"))
    sys.stdout.write(f"{'|---' * 8}|\n")
    kinds: tuple[Steps, ...] = ("together", "apart")
    for name, noises in SUITES.items():
        for steps in kinds:
            for commits, is_repeat in REPEATS.items():
                repeats = [is_repeat(night) for night in range(NIGHTS[steps])]
                suites = [
                    make(noises, steps, given.series, given.moved, seed, repeats) for seed in seeds
                ]
                for known in ("unknown", "known"):
                    judged = (
                        suites if known == "known" else [replace(s, repeats=()) for s in suites]
                    )
                    scores = [score(suite, watch_suite) for suite in judged]
                    made = sum(one.made for one in scores)
                    found = sum(one.early for one in scores), sum(one.found for one in scores)
                    right = sum(one.right for one in scores) / max(1, found[1])
                    shares = [f"{100 * count / made:.1f}" for count in found]
                    false = sum(one.false for one in scores) / len(scores)
                    cells = (*shares, f"{100 * right:.0f}", f"{false:.2f}")
                    _row((name, steps, commits, known, *cells))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
