"""A simulation of `perfrun versus`: false alarms among all figures that one call judges.

    python -m simulations.versus              # the table of docs/guides/versus.md, a minute or two
    python -m simulations.versus --runs=500

One call judges several figures (latency, memory, cold start, import) of several ratios (each rival
in each case). Here nothing differs, the machine drifts as much as trials are noisy, and all figures
are independent, which makes the chances add up most. A call is wrong when the interval of any of
its figures leaves out 1. Latency ends a case, the other figures are judged when it has ended. The
rule is the one that ships (`perfrun.analysis.pairs`); what it is corrected for is varied.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfrun.analysis.pairs import interim_analyses, level, rank_depth
from simulations.ab import NOISE, Row, intervals, percent, trials
from simulations.noises import Floats

FIGURES = 4  # of each ratio
_HEADER = (
    *("ratios", "rounds", "5 % shared by the ratios alone"),
    "shared by all figures of all ratios, as perfrun does",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=4000, help="simulated calls of each kind")
    runs = parser.parse_args(arguments).runs
    sys.stdout.write(f"| {' | '.join(_HEADER)} |\n|{'---|' * len(_HEADER)}\n")
    for row in table(runs):
        sys.stdout.write(f"| {' | '.join(row)} |\n")
        sys.stdout.flush()
    return 0


def table(runs: int) -> list[Row]:
    generator = np.random.default_rng(4)
    rows = []
    for ratios in (1, 3, 6):
        for rounds in (12, 30):
            figures = ratios * FIGURES
            wrong = [
                family_alarms(generator, runs, ratios, rounds, corrected_for=count)
                for count in (ratios, figures)
            ]
            rows.append([str(ratios), str(rounds), *map(percent, wrong)])
    return rows


def family_alarms(
    generator: np.random.Generator,
    runs: int,
    ratios: int,
    rounds: int,
    *,
    corrected_for: int,
    figures: int = FIGURES,
    noise: str = "log-normal",
) -> float:
    """Return the share of calls in which the interval of any figure leaves out 1."""
    wrong = np.zeros((runs, ratios), dtype=bool)
    for ratio in range(ratios):
        pairs = [_log_ratios(generator, runs, rounds, noise) for _ in range(figures)]
        wrong[:, ratio] = _case(pairs, rounds, corrected_for)
    return float(np.mean(wrong.any(axis=1)))


def _log_ratios(generator: np.random.Generator, runs: int, rounds: int, noise: str) -> Floats:
    logs = trials(generator, runs, 2 * rounds, noise, NOISE)
    base_first = generator.random((runs, rounds)) < 0.5
    ratios: Floats = (logs[:, 1::2] - logs[:, 0::2]) * np.where(base_first, 1.0, -1.0)
    return ratios


def _case(figures: Sequence[Floats], rounds: int, corrected_for: int) -> NDArray[np.bool_]:
    """Return where any figure's interval leaves out 1 when the first figure ends the case."""
    wrong = np.zeros(len(figures[0]), dtype=bool)
    going = np.arange(len(wrong))
    for count in interim_analyses(rounds):
        depth = rank_depth(count, level(rounds, corrected_for))
        outside = [_leaves_out_one(figure[going, :count], depth) for figure in figures]
        ends = outside[0] if count < rounds else np.ones(len(going), dtype=bool)
        wrong[going[ends]] = np.any(np.stack(outside), axis=0)[ends]
        going = going[~ends]
    return wrong


def _leaves_out_one(ratios: Floats, depth: int) -> NDArray[np.bool_]:
    low, high = intervals(ratios, depth)
    outside: NDArray[np.bool_] = (low > 0) | (high < 0)
    return outside


if __name__ == "__main__":
    raise SystemExit(main())
