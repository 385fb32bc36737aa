"""Real series whose changes people have marked, and what detectors make of them.

    python -m simulations.histories FOLDER

FOLDER is laid out as the Turing Change Point Dataset: `annotations.json` ({series: {annotator:
[first observation of a new level, ...]}}) and `datasets/NAME/NAME.json` (`series`: [{`raw`:
[...]}]). Series of one dimension, positive and complete, are used. Known is a change that two
annotators or more put within five observations; false is a report not within five of any mark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from perfrun.analysis.changepoint import ALARM, Watch
from simulations.noises import Floats

_NEAR = 5
Finder = Callable[[Floats], list[int]]


def ours(values: Floats) -> list[int]:
    """perfrun, asked after each observation."""
    watch = Watch(values)
    for at in range(len(values)):
        if watch.p_values[at] <= ALARM:
            watch.cut(at)
    return [change.first_after for change in watch.changes()]


def threshold(values: Floats) -> list[int]:
    """7 % off the median of the ten before; those that follow one another are one."""
    found: list[int] = []
    for at in range(10, len(values)):
        off = abs(values[at] / np.median(values[at - 10 : at]) - 1) > 0.07
        if off and (not found or at - found[-1] > 10):
            found.append(at)
    return found


def pelt(values: Floats) -> list[int]:
    """ruptures' PELT once over the whole, penalty 2 s^2 log n, s from neighbours."""
    import ruptures

    variance = (1.4826 * float(np.median(np.abs(np.diff(values))))) ** 2 / 2
    penalty = max(2 * variance * np.log(len(values)), 1e-12)
    search = ruptures.KernelCPD(kernel="linear", min_size=2).fit(values.reshape(-1, 1))
    return [int(place) for place in search.predict(pen=penalty)[:-1]]


FINDERS: dict[str, Finder] = {"perfrun": ours, "7 % off the median of 10": threshold, "PELT": pelt}


def read(folder: Path) -> Iterator[tuple[Floats, list[list[int]]]]:
    """The series that can be used, with the marks of each annotator."""
    annotations = json.loads((folder / "annotations.json").read_text(encoding="utf-8"))
    for name, marks in sorted(annotations.items()):
        path = folder / "datasets" / name / f"{name}.json"
        if not path.is_file():
            continue
        series = json.loads(path.read_text(encoding="utf-8"))["series"]
        raw = series[0]["raw"]
        if len(series) == 1 and all(isinstance(x, int | float) and x > 0 for x in raw):
            yield np.array(raw, dtype=np.float64), list(marks.values())


def known(marks: Sequence[Sequence[int]]) -> list[int]:
    """Changes that two annotators or more agree on."""
    found: list[int] = []
    for place in sorted(place for own in marks for place in own):
        agree = sum(any(abs(place - other) <= _NEAR for other in own) for own in marks)
        if agree > 1 and (not found or place - found[-1] > _NEAR):
            found.append(place)
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    all_series = list(read(Path(arguments[0])))
    count = sum(len(known(marks)) for _, marks in all_series)
    sys.stdout.write(f"{len(all_series)} series, {count} known changes\n\n")
    sys.stdout.write("| detector | known found | reported | false |\n|---|---|---|---|\n")
    for name, finder in FINDERS.items():
        found = reported = false = 0
        for values, marks in all_series:
            places = finder(values)
            reported += len(places)
            found += sum(any(abs(p - place) <= _NEAR for p in places) for place in known(marks))
            false += sum(all(abs(p - m) > _NEAR for own in marks for m in own) for p in places)
        sys.stdout.write(f"| {name} | {found} | {reported} | {false} |\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
