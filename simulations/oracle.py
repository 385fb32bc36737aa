"""A bound for the power of detection in autocorrelated noise: a detector that knows the noise.

    python -m simulations.oracle

It knows level, spread and memory of the noise. Each night it tests each number of nights since a
step by generalised least squares, the most powerful test. Its threshold raises false alarms in 5 %
of series of 100 nights. It does not know when the step is and how large. The second table has
perfrun with short histories.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from perfrun.analysis.changepoint import ALARM, SeriesWatch
from perfrun.analysis.scan import FEWEST_AFTER, FEWEST_BEFORE, MOST_AFTER
from simulations.detect import BEFORE, LATER, NIGHTS, SPREAD, STEPS, WITHIN, gaussian
from simulations.noises import Floats, Noise, drifting

_FIRST = FEWEST_BEFORE + 1
_FALSE = 0.05
_YOUNG = tuple(
    (before, step, spread)
    for step, spread in ((0.10, 0.02), (0.10, 0.01), (0.10, 0.001))
    for before in (6, 8, 11, 16, 20, 30)
)


def scores(table: Floats, memory: float) -> Floats:
    """Return for each night the best of all numbers of nights since a step, in standard errors."""
    nights = np.log(table) / SPREAD
    news = nights[:, 1:] - memory * nights[:, :-1]
    sums = np.concatenate([np.zeros((len(news), 1)), np.cumsum(news, axis=1)], axis=1)
    best: Floats = np.zeros(table.shape)
    for after in range(FEWEST_AFTER, MOST_AFTER + 1):
        begins = np.arange(1, table.shape[1] - after + 1)
        rest = sums[:, begins + after - 1] - sums[:, begins]
        weight = 1 + (after - 1) * (1 - memory) ** 2
        moved = np.abs(news[:, begins - 1] + (1 - memory) * rest)
        moved /= np.sqrt(weight * (1 - memory**2))
        last = begins + after - 1
        best[:, last] = np.maximum(best[:, last], moved)
    return best


def power(noise: Noise, memory: float, series: int, seed: int) -> list[tuple[float, float]]:
    """Return the shares of the steps of `STEPS` that are found within 7 and within 21 nights."""
    generator = np.random.default_rng([seed, 3])
    still = scores(noise(generator, (series, NIGHTS), SPREAD), memory)[:, _FIRST:]
    limit = np.quantile(still.max(axis=1), 1 - _FALSE)
    found = []
    for step in STEPS:
        table = noise(generator, (series, BEFORE + LATER), SPREAD)
        table[:, BEFORE:] *= 1 + step
        found.append(shares(scores(table, memory) > limit, BEFORE, _FIRST))
    return found


def shares(
    alarms: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], at: int, first: int
) -> tuple[float, float]:
    """Return, of series without an alarm before `at`, the shares within 7 nights, and at all."""
    counted = alarms[~alarms[:, first:at].any(axis=1)][:, at:]
    return float(counted[:, :WITHIN].any(axis=1).mean()), float(counted.any(axis=1).mean())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=8000, help="series of each kind (8000)")
    parser.add_argument("--seed", type=int, default=20261121, help="of all random numbers")
    given = parser.parse_args(arguments)
    heads = [f"{step:.0%} {when}" for step in STEPS for when in (f"<= {WITHIN}", f"<= {LATER}")]
    sys.stdout.write(f"| who knows all | {' | '.join(heads)} |\n{'|---' * 7}|\n")
    for name, noise, memory in (("Gaussian", gaussian, 0.0), ("AR(1) 0.5", drifting, 0.5)):
        found = power(noise, memory, given.series, given.seed)
        cells = [f"{100 * share:.1f}" for pair in found for share in pair]
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
    sys.stdout.write("\n| nights before | noise | step | <= 7 | <= 21 |\n|---|---|---|---|---|\n")
    for before, step, spread in _YOUNG:
        generator = np.random.default_rng([given.seed, 4, before])
        table = gaussian(generator, (max(1, given.series // 16), before + LATER), spread)
        table[:, before:] *= 1 + step
        alarms = np.array([one.p_values <= ALARM for one in SeriesWatch.all_of(table.tolist())[0]])
        pair = [f"{100 * share:.0f}" for share in shares(alarms, before, _FIRST)]
        sys.stdout.write(f"| {before} | {spread:.1%} | {step:.0%} | {' | '.join(pair)} |\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
