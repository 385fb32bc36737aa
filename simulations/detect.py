"""A simulation of `perfrun detect` and other detectors: false alarms and missed changes.

    python -m simulations.detect                         # the tables of docs/research/detection.md
    python -m simulations.detect --series=200 --seed=2
    python -m simulations.detect --otava=/envs/otava/bin/python

Series have one observation a night and noise of 2 %. Every detector runs each night, as in a
nightly job, from the twelfth night on; its first alarm counts. `--otava` names an
interpreter that has apache-otava, which cannot be installed beside perfrun. ruptures is used where
it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from perfrun.analysis.changepoint import ALARM, SeriesWatch
from perfrun.analysis.scan import FEWEST_BEFORE, MOST_AFTER
from simulations.noises import Floats, Noise, drifting

SPREAD = 0.02
NIGHTS = 100
BEFORE, WITHIN, LATER = 60, 7, 21
STEPS = (0.03, 0.05, 0.10)
# Twelve nights and two: the least for a verdict of perfrun; all begin with the same night.
_FIRST = FEWEST_BEFORE + 1
Detector = Callable[[Floats], list[int]]
"""From a table of series to the night of the first alarm of each, -1 where there is none."""

_OTAVA = """
import json, sys
from otava.series import AnalysisOptions, Metric, Series
first, p_value = float(sys.argv[1]), float(sys.argv[2])
options = AnalysisOptions()
options.max_pvalue = p_value
options.min_magnitude = 0.0
found = []
for values in json.load(sys.stdin):
    alarm = -1
    for night in range(int(first), len(values)):
        part = values[: night + 1]
        times = list(range(len(part)))
        series = Series("t", None, times, {"m": Metric(-1, 1.0)}, {"m": part}, {})
        if series.analyze(options).change_points["m"]:
            alarm = night
            break
    found.append(alarm)
print(json.dumps(found))
"""


def log_normal(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw a fixed part plus a log-normal one that varies by half of itself: skewed as times are.

    `spread` is the standard deviation of the whole.
    """
    return _skewed(generator, shape, spread, 0.5)


def _skewed(
    generator: np.random.Generator, shape: tuple[int, ...], spread: float, width: float
) -> Floats:
    values = np.exp(width * generator.standard_normal(shape))
    mean = math.exp(width**2 / 2)
    series: Floats = 1 + spread * (values - mean) / (mean * math.sqrt(math.expm1(width**2)))
    return series


def gaussian(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw noise that is neither skewed nor autocorrelated."""
    series: Floats = 1 + spread * generator.standard_normal(shape)
    return series


def outliers(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw noise of which five observations in a hundred are 15 % slower."""
    slow = np.where(generator.random(shape) < 0.05, 1.15, 1.0)
    return gaussian(generator, shape, spread) * slow


def very_skewed(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw a floor, and a long tail above it."""
    return _skewed(generator, shape, spread, 0.8)


KINDS: dict[str, Noise] = {
    "Gaussian": gaussian,
    "log-normal": log_normal,
    "5 % outliers of +15 %": outliers,
    "AR(1) 0.5": drifting,
    "very skewed": very_skewed,
}


def ours(table: Floats) -> list[int]:
    """Run `perfrun detect` on each series by itself, judging all nights at once."""
    return [_first(watch.p_values <= ALARM) for watch in SeriesWatch.all_of(table.tolist())[0]]


def score_alone(table: Floats) -> list[int]:
    """Use the score without the energy statistic, and without what a separation adds."""
    return [
        _first(watch.score_p_values <= ALARM) for watch in SeriesWatch.all_of(table.tolist())[0]
    ]


def energy_alone(table: Floats) -> list[int]:
    """Use the energy statistic alone, where the score's p-value is small enough to compute it."""
    return [
        _first(watch.energy_p_values <= ALARM) for watch in SeriesWatch.all_of(table.tolist())[0]
    ]


def separation_alone(table: Floats) -> list[int]:
    """Raise an alarm when the last nights are separated from those before."""
    return [_first(watch.separation) for watch in SeriesWatch.all_of(table.tolist())[0]]


def threshold(share: float, window: int) -> Detector:
    """Raise an alarm when a night differs by `share` from the median of `window` nights before."""

    def find(table: Floats) -> list[int]:
        medians = [
            np.median(table[:, max(0, night - window) : night], axis=1)
            for night in range(_FIRST, table.shape[1])
        ]
        off = np.abs(table[:, _FIRST:] / np.transpose(medians) - 1) > share
        return [_first(row, _FIRST) for row in off]

    return find


def pelt(table: Floats) -> list[int]:
    """Run ruptures' PELT: least squares, the usual penalty 2 s^2 log n, s from neighbours."""
    import ruptures

    return [_first_night(values, lambda part: _pelt_finds(ruptures, part)) for values in table]


def _pelt_finds(ruptures: object, part: Floats) -> bool:
    steps = np.abs(np.diff(part))
    variance = (1.4826 * float(np.median(steps))) ** 2 / 2
    search = ruptures.Pelt(model="l2", min_size=2, jump=1)  # type: ignore[attr-defined]
    return len(search.fit_predict(part.reshape(-1, 1), 2 * variance * math.log(len(part)))) > 1


def otava(python: str, p_value: float) -> Detector:
    """Run Otava, as it is installed for another interpreter, for each night."""

    def find(table: Floats) -> list[int]:
        done = subprocess.run(
            [python, "-c", _OTAVA, str(_FIRST), str(p_value)],
            input=json.dumps(table.tolist()),
            capture_output=True,
            text=True,
            check=True,
        )
        return [int(night) for night in json.loads(done.stdout)]

    return find


def _first_night(values: Floats, finds: Callable[[Floats], bool]) -> int:
    return next((n for n in range(_FIRST, len(values)) if finds(values[: n + 1])), -1)


def _first(alarms: np.ndarray[tuple[int], np.dtype[np.bool_]], offset: int = 0) -> int:
    places = np.flatnonzero(alarms)
    return int(places[0]) + offset if len(places) else -1


def false_alarms(detector: Detector, noise: Noise, series: int, seed: int) -> float:
    """Return the share of series of pure noise in which any of 100 nights raises an alarm."""
    table = noise(np.random.default_rng([seed, 0]), (series, NIGHTS), SPREAD)
    return float(np.mean([night >= 0 for night in detector(table)]))


def found(
    detector: Detector, noise: Noise, step: float, series: int, seed: int
) -> tuple[float, float, float]:
    """Return the shares of steps found within 7 nights, within 21, and of alarms before the step.

    Series that raise an alarm before the step are left out, and are the third figure.
    """
    table = noise(np.random.default_rng([seed, 1]), (series, BEFORE + LATER), SPREAD)
    table[:, BEFORE:] *= 1 + step
    nights = detector(table)
    counted = [night for night in nights if night < 0 or night >= BEFORE]
    if not counted:
        return math.nan, math.nan, 1.0
    within = np.mean([BEFORE <= night < BEFORE + WITHIN for night in counted])
    later = np.mean([night >= BEFORE for night in counted])
    return float(within), float(later), 1 - len(counted) / len(nights)


def where(noise: Noise, step: float, series: int, seed: int) -> tuple[float, float]:
    """Return the share of changes put on the right night, and at most one night off."""
    table = noise(np.random.default_rng([seed, 2]), (series, BEFORE + MOST_AFTER), SPREAD)
    table[:, BEFORE:] *= 1 + step
    off = []
    for values in table:
        watch = SeriesWatch(values)
        alarm = _first(watch.p_values <= ALARM)
        if alarm >= BEFORE:
            watch.cut(alarm)
            off.append(abs(watch.changes()[0].first_after - BEFORE))
    if not off:
        return math.nan, math.nan
    return float(np.mean([o == 0 for o in off])), float(np.mean([o <= 1 for o in off]))


DETECTORS: dict[str, Detector] = {
    "perfrun": ours,
    "its score alone": score_alone,
    "its energy alone": energy_alone,
    "its separation alone": separation_alone,
    "5 % off the night before": threshold(0.05, 1),
    "7 % off the night before": threshold(0.07, 1),
    "5 % off the median of 10": threshold(0.05, 10),
    "7 % off the median of 10": threshold(0.07, 10),
}


def slow_detectors(python: str | None) -> dict[str, Detector]:
    """Return the installed detectors that process the whole history again each night."""
    found: dict[str, Detector] = {}
    if python:
        found.update({"Otava, p 1e-3": otava(python, 1e-3), "Otava, p 1e-5": otava(python, 1e-5)})
    if importlib.util.find_spec("ruptures"):
        found["ruptures PELT"] = pelt
    return found


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def _table(*head: str) -> None:
    sys.stdout.write("\n" + _line(head) + "|---" * len(head) + "|\n")


def _row(*cells: str) -> None:
    sys.stdout.write(_line(cells))
    sys.stdout.flush()


def _steps(series: int, seed: int) -> None:
    sys.stdout.write(f"Seed {seed}, {series} series a cell; percent of the series.\n")
    heads = [f"{step:.0%} {when}" for step in STEPS for when in (f"<= {WITHIN}", f"<= {LATER}")]
    _table("noise", "detector", f"false, {NIGHTS} nights", *heads)
    for kind, noise in KINDS.items():
        for name, detector in DETECTORS.items():
            cells = [false_alarms(detector, noise, series, seed)]
            for step in STEPS:
                cells += found(detector, noise, step, series, seed)[:2]
            _row(kind, name, *map(_percent, cells))


def _places(series: int, seed: int) -> None:
    sys.stdout.write(f"\nWhere perfrun puts the change, {series} series:\n")
    _table("noise", "step", "right night", "at most one off")
    for kind, noise in KINDS.items():
        for step in STEPS[1:]:
            _row(kind, f"{step:.0%}", *map(_percent, where(noise, step, series, seed)))


def _slow(detectors: Mapping[str, Detector], series: int, seed: int) -> None:
    if not detectors:
        return
    sys.stdout.write(f"\nFalse alarms in {NIGHTS} nights, {series} series:\n")
    _table("noise", *detectors)
    for kind, noise in KINDS.items():
        _row(kind, *(_percent(false_alarms(d, noise, series, seed)) for d in detectors.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=2000, help="series of each kind (2000)")
    parser.add_argument("--slow_series", type=int, default=100, help="of those that are slow (100)")
    parser.add_argument("--seed", type=int, default=20261121, help="of all random numbers")
    parser.add_argument("--otava", metavar="PYTHON", help="an interpreter that has apache-otava")
    given = parser.parse_args(arguments)
    _steps(given.series, given.seed)
    _places(max(1, given.series // 4), given.seed)
    _slow(slow_detectors(given.otava), given.slow_series, given.seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
