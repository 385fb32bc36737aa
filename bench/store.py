"""An index over many summaries: building it, finding nothing new, asking it."""

from __future__ import annotations

import json
import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.processes import NOOP, ROOT, BenchError, finish, perfrun
from bench.settings import Settings
from bench.table import Goal, Row, Rule
from perfrun.store.address import parse_address
from perfrun.store.index import Store, open_store
from perfrun.store.query import Series

METHODS = 200
WHOLE = 100_000  # summaries that the goals are for
Times = tuple[float, float]  # seconds of wall time, and of CPU time
METRICS = 5  # a report's own, beside wall time and memory


def store_rows(settings: Settings) -> list[Row]:
    """All figures are scaled to 100,000 summaries, by their number."""
    workspace = settings.scratch / "store"
    template = perfrun(settings.scratch / "one", [NOOP]).summaries[0]
    sizes = [_write(workspace / "output", document) for document in _nights(template, settings)]
    scale = WHOLE / len(sizes)
    about = f"from {len(sizes)} of {statistics.mean(sizes) / 1024:.0f} KiB"
    taken = {
        f"index of 100,000 summaries ({about})": (60.0, _index(workspace, len(sizes))),
        "index again, nothing new": (3.0, _index(workspace, 0)),
        "query: history of one method": (3.0, _asked(workspace, _one_series)),
        "query: one metric of all methods": (3.0, _asked(workspace, _one_metric)),
        "query: all metrics of all methods": (3.0, _asked(workspace, _everything)),
        "detect, all": (3.0, _detected(workspace)),
        "detect, --since=2d": (3.0, _detected(workspace, "--since=2d")),
    }
    return [
        row
        for what, (limit, times) in taken.items()
        for row in _rows(what, limit, (times[0] * scale, times[1] * scale))
    ]


def _rows(what: str, limit: float, times: Times) -> tuple[Row, Row]:
    goal = Goal(rule=Rule.VALUE_AT_MOST, limit=limit)
    return (
        Row(what=what, unit="s", values=times[:1], goal=goal),
        Row(what=f"{what}: CPU", unit="s", values=times[1:]),
    )


def _nights(template: dict[str, Any], settings: Settings) -> Iterator[dict[str, Any]]:
    """Trials of many methods, night after night, each night at another commit."""
    result = template["benchmark_result"]
    for number in range(settings.summaries):
        night, method = divmod(number, METHODS)
        own = {**template["perfrun"], "run_id": f"run-{night}"}
        own["git"] = [{"directory": "models", "url": "https://host/r", "git_hash": f"{night:040x}"}]
        metrics = [{"name": f"metric_{i}_s", "value": 1 + number / 1e6} for i in range(METRICS)]
        yield {
            **template,
            "execution_id": f"{number:08}",
            "execution_timestamp": 1.75e9 + night * 86400.0 + method,
            "benchmark_result": {
                **result,
                "name": f"package.module.Class.method_{method:03}",
                "wall_time": 1 + number / 1e6,
                "metrics": metrics,
            },
            "perfrun": own,
        }


def _write(output: Path, document: dict[str, Any]) -> int:
    path = output / str(document["execution_id"]) / "perfzero_summary.json"
    path.parent.mkdir(parents=True)
    return path.write_text(json.dumps(document, indent=2), encoding="utf-8")


def _index(workspace: Path, expected: int) -> Times:
    entry = str(ROOT / "perfrun" / "benchmark.py")
    argv = [sys.executable, entry, "index", f"--workspace={workspace}", "--format=json"]
    before_s = _cpu_s(resource.RUSAGE_CHILDREN)
    done = finish(argv)
    if json.loads(done.stdout)["read"] != expected:
        raise BenchError(f"the index did not read what it should: {done.stdout}")
    return done.wall_s, _cpu_s(resource.RUSAGE_CHILDREN) - before_s


def _detected(workspace: Path, *flags: str) -> Times:
    """The whole process, as a user asks for the changes of all series."""
    entry = str(ROOT / "perfrun" / "benchmark.py")
    argv = [sys.executable, entry, "detect", f"--workspace={workspace}", "--format=json", *flags]
    before_s = _cpu_s(resource.RUSAGE_CHILDREN)
    done = finish(argv, allowed=(0, 1))  # 1: it found something
    found = json.loads(done.stdout)
    if not found["series"] + sum(found["left_out"].values()):
        raise BenchError("detect found no series")
    return done.wall_s, _cpu_s(resource.RUSAGE_CHILDREN) - before_s


def _cpu_s(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _asked(workspace: Path, question: Callable[[Store], int]) -> Times:
    """Open, ask, and go through all points; the module is imported already."""
    address = parse_address(None, workspace)
    begin, before_s = perf_counter(), _cpu_s(resource.RUSAGE_SELF)
    with open_store(address) as store:
        if not question(store):
            raise BenchError("the index has no points")
    return perf_counter() - begin, _cpu_s(resource.RUSAGE_SELF) - before_s


def _one_series(store: Store) -> int:
    return _points(store.series("package.module.Class.method_007"))


def _one_metric(store: Store) -> int:
    return _points(store.series(metric="wall_time"))


def _everything(store: Store) -> int:
    return _points(store.series())


def _points(series: Iterable[Series]) -> int:
    return sum([len(one.points) for one in series])
