"""A simulation of the steps that `perfrun detect` says across a cut.

    python -m simulations.cuts                           # the table of docs/research/detection.md
    python -m simulations.cuts --series=500 --seed=2

How often the 95 % interval holds the true step, and how wide it is, with few nights on either side.
How often a step is said in any of the nights after a cut that has none, judged every night as
`perfrun nightly` does; and within how many nights one of 5 and of 10 % is said.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

import numpy as np

from perfrun.analysis.level_shift import FEWEST, MOST, level_shift
from perfrun.changes.cuts import is_step
from simulations.detect import KINDS
from simulations.noises import Floats, Noise

SPREAD = 0.02
SIDES = ((4, 4), (6, 6), (10, 5), (21, 4), (21, 7), (21, 14), (21, 21))
STEPS = (0.05, 0.10)


def coverage(noise: Noise, before: int, after: int, series: int, seed: int) -> tuple[float, float]:
    """Return the share of intervals that hold the true step, and their median half width."""
    table = noise(np.random.default_rng([seed, before, after]), (series, before + after), SPREAD)
    shifts = [level_shift(row[:before], row[before:]) for row in table]
    reaches = [one.reach(0.95) for one in shifts]
    held = [abs(one.shift) <= reach for one, reach in zip(shifts, reaches, strict=True)]
    return float(np.mean(held)), float(np.median(reaches))


def said_after(noise: Noise, step: float, before: int, series: int, seed: int) -> Floats:
    """Return the nights after the cut with which a step is first said; infinite for never."""
    table = noise(np.random.default_rng([seed, 1, before]), (series, before + MOST), SPREAD)
    table[:, before:] *= 1 + step
    first = [
        next(
            (n for n in range(FEWEST, MOST + 1) if _is_said(row, before, n)),
            math.inf,
        )
        for row in table
    ]
    return np.array(first)


def _is_said(row: Floats, before: int, after: int) -> bool:
    return is_step(level_shift(row[:before], row[before : before + after]))


def _write(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=2000, help="series of each kind (2000)")
    parser.add_argument("--seed", type=int, default=20261123, help="of all random numbers")
    given = parser.parse_args(arguments)
    _write("noise", *(f"{before}, {after}" for before, after in SIDES))
    for kind, noise in KINDS.items():
        found = [coverage(noise, *side, given.series, given.seed) for side in SIDES]
        _write(kind, *(f"{100 * held:.1f} (±{100 * reach:.1f})" for held, reach in found))
    sys.stdout.write("\n")
    _write("noise", "no step", *(f"{step:.0%} <= {n}" for step in STEPS for n in (7, 14, 21)))
    for kind, noise in KINDS.items():
        false = said_after(noise, 0.0, MOST, given.series, given.seed)
        cells = [f"{100 * np.mean(false <= MOST):.1f}"]
        for step in STEPS:
            nights = said_after(noise, step, MOST, given.series, given.seed)
            cells += [f"{100 * np.mean(nights <= most):.0f}" for most in (7, 14, 21)]
        _write(kind, *cells)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
