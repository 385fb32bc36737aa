"""A simulation of what `perfrun detect` says before it is sure.

    python -m simulations.outlook                        # the tables of docs/research/detection.md
    python -m simulations.outlook --series=200 --seed=2

How many more nights a shift needs: a step begins after some nights, and each night on which it is
shown as not yet sure, the number said is held against the nights that it then took. How often a
shift is shown in noise. And the table `perfrun.analysis.outlook.SEEN`: the smallest steps that are
found in time.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfrun.analysis.changepoint import ALARM, SeriesWatch
from perfrun.analysis.detection import History, watch_suite
from perfrun.analysis.outlook import NEEDED, SEEN, SEEN_SHARE, SEEN_WITHIN, unsure_shifts
from perfrun.analysis.scan import MOST_AFTER, SeriesToScan, scan_series
from simulations.detect import KINDS
from simulations.noises import Noise

SPREAD = 0.02
_SIZES = np.geomspace(1.5, 14, 24)  # of steps, in standard deviations


@dataclass(frozen=True, kw_only=True)
class Said:
    """What was said on one night about a step that is there."""

    series: int
    after: int  # nights at the new level
    needed: int | None
    true: int | None  # more nights that it took; None: more than were tried


def said_of_steps(
    noise: Noise, step: float, before: int, series: int, seed: int, spread: float = SPREAD
) -> list[Said]:
    """Return what was said on each night from a step to its alarm."""
    table = noise(np.random.default_rng([seed, 3]), (series, before + MOST_AFTER), spread)
    table[:, before:] *= 1 + step
    watches, _ = SeriesWatch.all_of(table.tolist())
    found = []
    for number, (values, watch) in enumerate(zip(table, watches, strict=True)):
        alarms = np.flatnonzero(watch.p_values <= ALARM)
        if len(alarms) and alarms[0] < before:
            continue  # a false alarm, which begins a new level
        called = int(alarms[0]) if len(alarms) else None
        for night in range(before, called if called is not None else before + MOST_AFTER):
            history = _history(values[: night + 1])
            for one in unsure_shifts([history], watch_suite([history]), 1):
                if (one.ratio > 1) == (step > 0):
                    true = None if called is None else called - night
                    after = night + 1 - before
                    found.append(Said(series=number, after=after, needed=one.needed, true=true))
    return found


def shown_in_noise(noise: Noise, nights: int, series: int, seed: int) -> float:
    """Return the share of series in which a shift is shown though nothing changed."""
    table = noise(np.random.default_rng([seed, 4]), (series, nights), SPREAD)
    shown = [bool(unsure_shifts([h], watch_suite([h]), 1)) for h in map(_history, table)]
    return float(np.mean(shown))


def least_seen(noise: Noise, before: int, series: int, seed: int) -> list[float]:
    """Return the least step, in standard deviations, that is seen, for each of `NEEDED`."""
    shape = (series, before + SEEN_WITHIN)
    base = noise(np.random.default_rng([seed, 5, before]), shape, SPREAD)
    shares = np.array([_share_seen(base, before, size) for size in _SIZES])
    least = []
    for column in shares.T:
        missed = np.flatnonzero(column < SEEN_SHARE)
        first = missed[-1] + 1 if len(missed) else 0
        least.append(float(_SIZES[first]) if first < len(_SIZES) else math.inf)
    return least


def _share_seen(base: np.ndarray, before: int, size: float) -> list[float]:
    table = base.copy()
    table[:, before:] *= math.exp(size * SPREAD)
    zeros = np.zeros(table.shape[1])
    p_values = scan_series([SeriesToScan(np.log(row), zeros, 0, 0) for row in table]).p_values
    least = p_values.reshape(table.shape)[:, before:].min(axis=1)
    return [float(np.mean(least <= needed)) for needed in NEEDED]


def _history(values: np.ndarray) -> History:
    return History(values=values.tolist(), nights=range(len(values)), direction="lower")


def _write(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def _share(hits: Sequence[bool]) -> str:
    return f"{100 * float(np.mean(hits)):.0f}" if hits else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=200, help="series of each kind (200)")
    parser.add_argument("--seed", type=int, default=20261122, help="of all random numbers")
    given = parser.parse_args(arguments)
    _write("noise", "nights before", "step", "nights said", "right within 1", "within 2", "shown")
    for kind, noise in KINDS.items():
        for before in (8, 20, 60):
            for step in (0.05, 0.1, 0.5):
                said = said_of_steps(noise, step, before, given.series, given.seed)
                known = [one for one in said if one.needed is not None and one.true is not None]
                off = [abs((one.needed or 0) - (one.true or 0)) for one in known]
                shown = len({one.series for one in said}) / given.series
                near = [_share([gap <= most for gap in off]) for most in (1, 2)]
                _write(kind, str(before), f"{step:.0%}", str(len(off)), *near, f"{shown:.0%}")
    _write("noise", "shown in noise after 8 nights", "12", "20", "40", "80")
    for kind, noise in KINDS.items():
        rates = [
            shown_in_noise(noise, nights, given.series, given.seed)
            for nights in (8, 12, 20, 40, 80)
        ]
        _write(kind, *(f"{100 * rate:.1f}" for rate in rates))
    _write("nights before", *(f"p {needed:g}" for needed in NEEDED))
    for before, _ in SEEN:
        sizes = least_seen(KINDS["Gaussian"], before, given.series, given.seed)
        _write(str(before), *(f"{size:.1f}" for size in sizes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
