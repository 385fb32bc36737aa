"""A bound for the cost of a search of a revision: a search that knows the noise and the effect.

    python -m simulations.bisect_oracle

The oracle has no good and bad to tell apart first, revisions that do not differ by themselves, and
the exact likelihood of a pair. It runs the pair with the probability nearest to one half that the
change is between its two revisions, and stops at 98 %.
simulations/bisect.py has the cost of `perfrun bisect`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from perfrun.analysis.stats import Floats
from simulations.bisect import COUNTS, NOISES, Draw

EFFECT, SPREAD = 0.05, 0.05  # the hardest rows of simulations/bisect.py
ENOUGH = 0.98
_GRID = np.linspace(-1.6, 1.6, 6401)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--searches", type=int, default=400)
    parser.add_argument("--seed", type=int, default=3)
    asked = parser.parse_args(arguments)
    header = ("revisions", "noise", "right", "trials: mean", "95 of 100")
    sys.stdout.write(f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n")
    for count in COUNTS:
        for kind, draw in NOISES.items():
            random = np.random.default_rng(asked.seed)
            law = log_density(kind)
            done = [search(random, count, draw, law) for _ in range(asked.searches)]
            trials = [2 * pairs for _, pairs in done]
            right = np.mean([found for found, _ in done])
            costs = f"{np.mean(trials):.0f} | {np.percentile(trials, 95):.0f}"
            sys.stdout.write(f"| {count} | {kind} | {right:.1%} | {costs} |\n")
    return 0


def search(random: np.random.Generator, count: int, draw: Draw, law: Floats) -> tuple[bool, int]:
    """Simulate one search; return whether it was right, and its number of pairs."""
    culprit = int(random.integers(1, count + 1))
    effect = float(np.log1p(EFFECT))
    shares, pairs = np.full(count, 1 / count), 0  # at i: of revision i + 1
    while shares.max() < ENOUGH:
        sums, best = np.cumsum(shares), int(np.argmax(shares))
        middle = int(np.argmin(np.abs(sums - 0.5)))
        alone = abs(shares[best] - 0.5) < abs(sums[middle] - 0.5)
        inside = slice(best, best + 1) if alone else slice(0, middle + 1)
        there = inside.start < culprit <= inside.stop
        ratio = draw(random, SPREAD) - draw(random, SPREAD) + (effect if there else 0.0)
        with_it, without = np.interp([ratio - effect, ratio], _GRID, law)
        shares[inside] *= np.exp(with_it - without)
        shares /= shares.sum()
        pairs += 1
    return int(np.argmax(shares)) + 1 == culprit, pairs


def log_density(kind: str) -> Floats:
    """Return the log likelihood of a pair, on a grid, up to a constant."""
    trial = np.exp(-0.5 * np.square(_GRID / SPREAD))
    trial /= trial.sum()
    if kind != "log-normal":
        late = (np.abs(_GRID - np.log(2) / 2) <= np.log(2) / 2).astype(float)
        trial = 0.95 * trial + 0.05 * np.convolve(trial, late / late.sum(), mode="same")
    found: Floats = np.log(np.convolve(trial, trial[::-1], mode="same") + 1e-14)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
