"""A comparison of detectors on real series whose changes people have marked.

    python -m simulations.histories TCPD/                     # marked by people; mostly economics
    python -m simulations.histories scipy-bench/results/      # benchmarks: results of asv
    python -m simulations.histories data.js                   # benchmarks: github-action-benchmark
    python -m simulations.histories data.js --otava=/envs/otava/bin/python

A folder with `annotations.json` is laid out as the Turing Change Point Dataset: {series:
{annotator: [first observation of a new level, ...]}}, and `datasets/NAME/NAME.json` (`series`:
[{`raw`: [...]}]). Series of one dimension, positive and complete, are used. Known is a change that
two annotators or more put within five observations; false is a report not within five of any mark.

For the formats of benchmarks see `simulations.benchmark_data`. Known are those of `marks.json`
(series: first observations of a new level): marked by eye in plots of a few series drawn at random,
before any detector was run on them. Of the other series the number of reports is shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfrun.analysis.detection import History, detect
from simulations.benchmark_data import FEWEST, read_histories
from simulations.noises import Floats

_NEAR = 5
_MARKS = Path(__file__).with_name("marks.json")
Finder = Callable[[Sequence[Floats]], list[list[int]]]
"""From series to the first observations of new levels in each."""

_OTAVA = """
import json, sys
from otava.series import AnalysisOptions, Metric, Series
found = []
for values in json.load(sys.stdin):
    series = Series("t", None, list(range(len(values))), {"m": Metric(1, 1.0)}, {"m": values}, {})
    found.append([int(c.index) for c in series.analyze(AnalysisOptions()).change_points["m"]])
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Marked:
    """A series and the changes that people have marked in it."""

    name: str
    values: Floats
    known: Sequence[int]
    marks: Sequence[int]  # the known, and those that only one has seen


def ours(all_values: Sequence[Floats]) -> list[list[int]]:
    """Run perfrun after each observation; each series by itself, as if it were the suite."""
    found = []
    for values in all_values:
        nights = range(len(values))
        history = History(values=values.tolist(), nights=nights, direction="lower")
        found.append([one.first_after for one in detect([history])])
    return found


def threshold(share: float, window: int) -> Finder:
    """Find points that differ by `share` from the median of `window` before, ten or more apart."""

    def find(values: Floats) -> list[int]:
        found: list[int] = []
        for at in range(window, len(values)):
            off = abs(values[at] / np.median(values[at - window : at]) - 1) > share
            if off and (not found or at - found[-1] > 10):
                found.append(at)
        return found

    return lambda all_values: [find(values) for values in all_values]


def pelt(all_values: Sequence[Floats]) -> list[list[int]]:
    """Run ruptures' PELT once over the whole, penalty 2 s^2 log n, s from neighbours."""
    import ruptures

    found = []
    for values in all_values:
        variance = (1.4826 * float(np.median(np.abs(np.diff(values))))) ** 2 / 2
        scale = float(np.median(values)) ** 2  # times may be in nanoseconds or in years
        penalty = max(2 * variance * np.log(len(values)), 1e-12 * scale)
        search = ruptures.KernelCPD(kernel="linear", min_size=2).fit(values.reshape(-1, 1))
        found.append([int(place) for place in search.predict(pen=penalty)[:-1]])
    return found


def otava(python: str) -> Finder:
    """Run Otava with its defaults, once over the whole."""

    def find(all_values: Sequence[Floats]) -> list[list[int]]:
        done = subprocess.run(
            [python, "-c", _OTAVA],
            input=json.dumps([values.tolist() for values in all_values]),
            capture_output=True,
            text=True,
            check=True,
        )
        return [[int(place) for place in places] for places in json.loads(done.stdout)]

    return find


FINDERS: Mapping[str, Finder] = {
    "perfrun": ours,
    "5 % off the night before": threshold(0.05, 1),
    "7 % off the median of 10": threshold(0.07, 10),
    "PELT, penalty 2 s² log n": pelt,
}


def annotated(folder: Path) -> Iterator[Marked]:
    """Yield the series of the Turing dataset that can be used."""
    annotations = json.loads((folder / "annotations.json").read_text(encoding="utf-8"))
    for name, marks in sorted(annotations.items()):
        path = folder / "datasets" / name / f"{name}.json"
        if not path.is_file():
            continue
        series = json.loads(path.read_text(encoding="utf-8"))["series"]
        raw = series[0]["raw"]
        if len(series) == 1 and all(isinstance(x, int | float) and x > 0 for x in raw):
            own = list(marks.values())
            every = [mark for one in own for mark in one]
            values = np.array(raw, dtype=np.float64)
            yield Marked(name=name, values=values, known=known(own), marks=every)


def known(marks: Sequence[Sequence[int]]) -> list[int]:
    """Return the changes that two annotators or more agree on."""
    found: list[int] = []
    for place in sorted(place for own in marks for place in own):
        agree = sum(any(abs(place - other) <= _NEAR for other in own) for own in marks)
        if agree > 1 and (not found or place - found[-1] > _NEAR):
            found.append(place)
    return found


def by_eye(histories: Mapping[str, Floats]) -> list[Marked]:
    """Return the series that `marks.json` has marks of."""
    for one in json.loads(_MARKS.read_text(encoding="utf-8")):
        marks = one["marks"]
        if marks.keys() <= histories.keys():
            return [
                Marked(name=name, values=histories[name], known=places, marks=places)
                for name, places in marks.items()
            ]
    return []


def _noise(values: Floats) -> float:
    """Return the relative standard deviation of the noise, robust against steps and outliers."""
    steps = np.diff(np.log(values))
    return float(1.4826 * np.median(np.abs(steps - np.median(steps))) / np.sqrt(2))


def report_rates(histories: Mapping[str, Floats], finders: Mapping[str, Finder]) -> None:
    """Print how much each detector reports of all the series."""
    values = list(histories.values())
    points = sum(map(len, values))
    noise = np.quantile([100 * _noise(one) for one in values], (0.1, 0.5, 0.9))
    sys.stdout.write(
        f"{len(values)} series of {FEWEST} points or more, {points} points; noise of "
        f"{noise[1]:.1f} % in the median ({noise[0]:.1f} and {noise[2]:.1f} in a tenth each)\n\n"
    )
    sys.stdout.write(
        "| detector | reports | per 1,000 points | series with none |\n|---|---|---|---|\n"
    )
    for name, finder in finders.items():
        counts = [len(places) for places in finder(values)]
        rate, still = 1000 * sum(counts) / points, np.mean([count == 0 for count in counts])
        sys.stdout.write(f"| {name} | {sum(counts)} | {rate:.1f} | {still:.0%} |\n")
        sys.stdout.flush()


def report_marked(series: Sequence[Marked], finders: Mapping[str, Finder], each: bool) -> None:
    """Print the known changes that each detector finds; with `each`, also the differences."""
    count = sum(len(one.known) for one in series)
    sys.stdout.write(f"\n{len(series)} series, {count} known changes\n\n")
    sys.stdout.write("| detector | known found | reported | false |\n|---|---|---|---|\n")
    differences = []
    for name, finder in finders.items():
        found = reported = false = 0
        for one, places in zip(series, finder([one.values for one in series]), strict=True):
            missed = [k for k in one.known if all(abs(p - k) > _NEAR for p in places)]
            wrong = [p for p in places if all(abs(p - m) > _NEAR for m in one.marks)]
            reported += len(places)
            found += len(one.known) - len(missed)
            false += len(wrong)
            if missed or wrong:
                differences.append(f"{name}: {one.name}: missed {missed}, false {wrong}\n")
        sys.stdout.write(f"| {name} | {found} | {reported} | {false} |\n")
    if each:
        sys.stdout.write("\n" + "".join(differences))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="a folder, or a data.js")
    parser.add_argument("--otava", metavar="PYTHON", help="an interpreter that has apache-otava")
    parser.add_argument(
        "--each", action="store_true", help="say what is missed and false, by series"
    )
    given = parser.parse_args(arguments)
    finders = dict(FINDERS)
    if given.otava:
        finders["Otava, defaults"] = otava(given.otava)
    if (given.source / "annotations.json").is_file():
        report_marked(list(annotated(given.source)), finders, given.each)
        return 0
    histories = read_histories(given.source)
    report_rates(histories, finders)
    report_marked(by_eye(histories), finders, given.each)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
