"""A simulation of `perfrun ab` and of tests without pairs: false alarms and power.

    python -m simulations.ab              # tables of docs/research/comparison.md, a minute
    python -m simulations.ab --runs=500

The usual way runs all trials of A, then all of B, and tests them with Student's t or Mann and
Whitney. Here the machine drifts meanwhile (AR(1), coefficient 0.95 from trial to trial), on top
of noise of 2 % a trial. The rule under test is the one that ships (`perfrun.analysis.pairs`).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from perfrun.analysis.pairs import MIN_EFFECT, interim_analyses, level, rank_depth
from simulations.noises import NOISES, Floats

NOISE = 0.02
COEFFICIENT = 0.95
BLOCK = 20  # trials a side of the usual way
Row = list[str]


@dataclass(frozen=True)
class Outcomes:
    """The shares of verdicts of many simulated comparisons."""

    faster: float
    slower: float
    equivalent: float
    mean_pairs: float

    @property
    def different(self) -> float:
        return self.faster + self.slower


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=4000, help="simulated comparisons of each kind")
    runs = parser.parse_args(arguments).runs
    for title, header, rows in (
        ("No real difference", ("drift / noise", *_WAYS), drifting_rows(runs)),
        ("No real difference, by noise and --max_pairs", _BY_NOISE, noise_rows(runs)),
        ("B slower, drift as large as the noise", _POWER, power_rows(runs)),
    ):
        sys.stdout.write(f"\n{title}:\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}\n")
        for row in rows:
            sys.stdout.write(f"| {' | '.join(row)} |\n")
        sys.stdout.flush()
    return 0


_WAYS = ("blocks, Student's t", "blocks, Mann-Whitney", "perfrun ab")
_BY_NOISE = ("noise", "6 pairs", "10", "20", "30", "60", "100")
_POWER = ("B slower by", "said slower", "said faster", "said equivalent", "pairs, mean")


def drifting_rows(runs: int) -> list[Row]:
    generator = np.random.default_rng(1)
    rows = []
    for ratio in (0.0, 0.5, 1.0, 2.0, 4.0):
        student, ranks = block_alarms(generator, runs, ratio * NOISE)
        ours = paired(generator, runs, drift_spread=ratio * NOISE)
        rows.append([f"{ratio:g}", percent(student), percent(ranks), percent(ours.different)])
    return rows


def noise_rows(runs: int) -> list[Row]:
    generator = np.random.default_rng(2)
    rows = []
    for name in NOISES:
        cells = [
            paired(generator, runs, noise=name, drift_spread=NOISE, max_pairs=pairs)
            for pairs in (6, 10, 20, 30, 60, 100)
        ]
        rows.append([name, *(percent(cell.different) for cell in cells)])
    return rows


def power_rows(runs: int) -> list[Row]:
    generator = np.random.default_rng(3)
    rows = []
    for effect in (0.0, 0.01, 0.02, 0.03, 0.05, 0.1):
        found = paired(generator, runs, drift_spread=NOISE, effect=effect, min_effect=MIN_EFFECT)
        shares = (found.slower, found.faster, found.equivalent)
        rows.append([f"{effect:.0%}", *map(percent, shares), f"{found.mean_pairs:.0f}"])
    return rows


def block_alarms(generator: np.random.Generator, runs: int, spread: float) -> tuple[float, float]:
    """Return how often all of A, then all of B is called different, though it is the same."""
    logs = trials(generator, runs, 2 * BLOCK, "log-normal", spread)
    first, second = logs[:, :BLOCK], logs[:, BLOCK:]
    student = stats.ttest_ind(first, second, axis=1).pvalue <= 0.05
    ranks = stats.mannwhitneyu(first, second, axis=1).pvalue <= 0.05
    return float(np.mean(student)), float(np.mean(ranks))


def paired(
    generator: np.random.Generator,
    runs: int,
    *,
    noise: str = "log-normal",
    drift_spread: float = 0.0,
    effect: float = 0.0,
    max_pairs: int = 30,
    min_effect: float = 0.0,
) -> Outcomes:
    """Simulate randomised pairs; with a `min_effect` of 0 nothing is ever equivalent."""
    logs = trials(generator, runs, 2 * max_pairs, noise, drift_spread)
    b_first = generator.random((runs, max_pairs)) < 0.5
    first, second = logs[:, 0::2], logs[:, 1::2]
    ratios = np.where(b_first, first - second, second - first) + math.log1p(effect)
    verdicts = np.full(runs, "undecided", dtype="U10")
    pairs = np.full(runs, max_pairs)
    going = np.arange(runs)
    for count in interim_analyses(max_pairs):
        low, high = intervals(ratios[going, :count], rank_depth(count, level(max_pairs)))
        margin = math.log1p(min_effect)
        verdict = np.where(low > 0, "slower", np.where(high < 0, "faster", "undecided"))
        if min_effect > 0:
            verdict = np.where((low >= -margin) & (high <= margin), "equivalent", verdict)
        verdicts[going] = verdict
        pairs[going] = count
        going = going[verdict == "undecided"]
    return Outcomes(
        faster=float(np.mean(verdicts == "faster")),
        slower=float(np.mean(verdicts == "slower")),
        equivalent=float(np.mean(verdicts == "equivalent")),
        mean_pairs=float(np.mean(pairs)),
    )


def trials(
    generator: np.random.Generator, runs: int, count: int, noise: str, drift_spread: float
) -> Floats:
    """Draw logarithms of times, in the order in which they were taken, on a machine that drifts."""
    step = drift_spread * math.sqrt(1 - COEFFICIENT**2)
    drift = np.empty((runs, count))
    drift[:, 0] = drift_spread * generator.standard_normal(runs)
    for at in range(1, count):
        drift[:, at] = COEFFICIENT * drift[:, at - 1] + step * generator.standard_normal(runs)
    logs: Floats = np.log(NOISES[noise](generator, (runs, count), NOISE)) + drift
    return logs


def intervals(ratios: Floats, depth: int) -> tuple[Floats, Floats]:
    """Return the interval of each row, as `pairs.judge` has it for one."""
    if depth == 0:
        nothing = np.full(len(ratios), np.inf)
        return -nothing, nothing
    rows, columns = np.triu_indices(ratios.shape[1])
    walsh = (ratios[:, rows] + ratios[:, columns]) / 2
    count = walsh.shape[1]
    walsh.partition((depth - 1, count - depth), axis=1)
    return walsh[:, depth - 1], walsh[:, count - depth]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    raise SystemExit(main())
