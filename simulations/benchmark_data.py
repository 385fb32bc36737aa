"""Read histories of real benchmarks, in the formats of two tools that keep them in git.

asv: a folder of results, `benchmarks.json` and `MACHINE/HASH-ENVIRONMENT.json` with `date` (of the
commit), `env_name`, `result_columns` and `results` ({benchmark: [a value per column]}).
A series is a machine, an environment, a benchmark of one version, and of its combinations of
parameters one, drawn by the benchmark's name.

github-action-benchmark: `data.js`, an assignment of `{"entries": {suite: [{"date", "benches":
[{"name", "value"}, ...]}, ...]}}`. A series is a suite and a name.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simulations.noises import Floats

FEWEST = 100
"""Points of a series that is used."""
Histories = dict[str, Floats]
_Points = Mapping[str, list[tuple[float, float]]]


def read_histories(source: Path) -> Histories:
    """Read all series of at least 100 points, every one positive, in the order of time."""
    return _asv(source) if source.is_dir() else _github_action(source)


def _asv(folder: Path) -> Histories:
    points: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for path in sorted(folder.glob("*/*-*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for benchmark, value, version in _results(document):
            name = f"{path.parent.name}/{document['env_name']}/{benchmark}/{version[:8]}"
            points[name].append((float(document["date"]), value))
    return _series(points)


def _results(document: Mapping[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Yield benchmark, value and version of what is timed."""
    columns = document["result_columns"]
    for benchmark, row in document["results"].items():
        cells = dict(zip(columns, row or (), strict=False))
        values = cells.get("result") or ()
        if not benchmark.rpartition(".")[2].startswith("time") or not values:
            continue
        which = zlib.crc32(benchmark.encode()) % len(values)
        value = values[which]
        if value is not None and math.isfinite(value):
            yield f"{benchmark}[{which}]", float(value), str(cells.get("version", ""))


def _github_action(file: Path) -> Histories:
    text = file.read_text(encoding="utf-8")
    document, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    points: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for suite, entries in document["entries"].items():
        for entry in entries:
            for bench in entry["benches"]:
                value = float(bench["value"])
                points[f"{suite}/{bench['name']}"].append((float(entry["date"]), value))
    return _series(points)


def _series(points: _Points) -> Histories:
    found = {}
    for name, own in sorted(points.items()):
        values = np.array([value for _, value in sorted(own, key=lambda point: point[0])])
        if len(values) >= FEWEST and np.all(values > 0):
            found[name] = values
    return found


def chosen(histories: Histories, count: int, seed: int) -> list[str]:
    """Return so many names, drawn at random; the same ones every time."""
    names = sorted(histories)
    drawn = np.random.default_rng(seed).choice(len(names), min(count, len(names)), replace=False)
    return [names[at] for at in sorted(drawn)]
