"""A simulation of `perfrun compare`: false alarms and power, printed as Markdown.

    python -m simulations.compare              # table of docs/research/comparison.md, minutes
    python -m simulations.compare --suites=20

A suite is 50 methods with trials of both sets drawn from the same noise; in one of them the last
method is 10 % slower.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfrun.analysis.two_sets import Pairing, Verdict, compare
from simulations.noises import NOISES, Noise

METHODS = 50
SPREAD = 0.02
SIZES = (3, 5, 8, 10, 20)
SLOWER = 1.1


@dataclass(frozen=True)
class Tally:
    """The outcomes of some suites."""

    verdicts: Counter[Verdict]  # of methods that are the same
    suites_with_alarm: int
    found: int  # suites in which the slower method was called so
    suites: int

    @property
    def share_different(self) -> float:
        wrong = self.verdicts["faster"] + self.verdicts["slower"]
        return wrong / self.verdicts.total()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suites", type=int, default=200, help="simulated suites of each kind")
    suites = parser.parse_args(arguments).suites
    header = (
        "noise",
        "trials a side",
        "same, called different",
        "suites with such a call",
        "same, called equivalent",
        f"{SLOWER - 1:.0%} slower, found",
    )
    sys.stdout.write(f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n")
    for name, noise in NOISES.items():
        for size in SIZES:
            tally = simulate(noise, size, suites)
            equivalent = tally.verdicts["equivalent"] / tally.verdicts.total()
            cells = (
                name,
                str(size),
                f"{100 * tally.share_different:.2f} %",
                f"{100 * tally.suites_with_alarm / suites:.1f} %",
                f"{100 * equivalent:.0f} %",
                f"{100 * tally.found / suites:.0f} %",
            )
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            sys.stdout.flush()
    return 0


def simulate(noise: Noise, size: int, suites: int, seed: int = 1) -> Tally:
    """Compare identical sets, one method of which is slower."""
    generator = np.random.default_rng(seed)
    verdicts: Counter[Verdict] = Counter()
    alarms = found = 0
    for _ in range(suites):
        base = noise(generator, (METHODS, size), SPREAD)
        new = noise(generator, (METHODS, size), SPREAD)
        new[-1] *= SLOWER
        compared = compare(
            [
                Pairing(
                    method=str(at),
                    metric="wall_time",
                    direction="lower",
                    base=tuple(base[at]),
                    new=tuple(new[at]),
                )
                for at in range(METHODS)
            ]
        )
        same = [one.verdict for one in compared[:-1]]
        verdicts.update(same)
        alarms += any(verdict in ("faster", "slower") for verdict in same)
        found += compared[-1].verdict == "slower"
    return Tally(verdicts, alarms, found, suites)


if __name__ == "__main__":
    raise SystemExit(main())
