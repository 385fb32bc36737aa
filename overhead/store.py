"""Measure an index over many summaries: filling it, finding nothing new, and queries."""

from __future__ import annotations

import json
import random
import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from overhead.processes import NOOP, PERFRUN, MeasurementError, Settings, finish, perfrun
from overhead.table import Goal, Row, Rule
from perfrun.options.store_address import parse_address
from perfrun.store.index import Store, open_store
from perfrun.store.query import Series

METHODS = 200
WHOLE = 100_000  # summaries that the goals are for
Times = tuple[float, float]  # seconds of wall time, and of CPU time
METRICS = 5  # a report's own, beside wall time and memory
_NOISE = 0.02  # of a night's figure
_CHANGED_METHODS, _STEP = 50, 1.1  # one method in so many becomes slower, in the middle
_FIRST = 1.75e9  # seconds since the epoch


def store_rows(settings: Settings) -> list[Row]:
    """Measure the index; all figures are scaled to 100,000 summaries, by their number."""
    workspace = settings.scratch / "store"
    template = perfrun(settings.scratch / "one", [NOOP]).summaries[0]
    sizes = [_write(workspace / "output", document) for document in _nights(template, settings)]
    scale = WHOLE / len(sizes)
    about = f"from {len(sizes)} of {statistics.mean(sizes) / 1024:.0f} KiB"
    taken = {
        f"index of 100,000 summaries ({about})": (60.0, _index(workspace, len(sizes))),
        "index again, nothing new": (3.0, _index(workspace, 0)),
        "history of one method": (3.0, _history(workspace)),
        "query: history of one method": (3.0, _asked(workspace, _one_series)),
        "query: one metric of all methods": (3.0, _asked(workspace, _one_metric)),
        "query: all metrics of all methods": (3.0, _asked(workspace, _everything)),
        "detect, all": (3.0, _detected(workspace)),
        "detect, --since=2d": (3.0, _detected(workspace, "--since=2d")),
        "a night's report": (3.0, _report(workspace, len(sizes))),
    }
    if settings.postgresql:
        url = f"--store={settings.postgresql}"
        taken |= {
            "PostgreSQL: index of 100,000 summaries": (60.0, _index(workspace, len(sizes), url)),
            "PostgreSQL: index again, nothing new": (3.0, _index(workspace, 0, url)),
            "PostgreSQL: detect, all": (3.0, _detected(workspace, url)),
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
    """Yield the summaries of many methods, night after night, each night at another commit."""
    result = template["benchmark_result"]
    generator = random.Random(20261121)  # noqa: S311
    nights = -(-settings.summaries // METHODS)
    for number in range(settings.summaries):
        night, method = divmod(number, METHODS)
        is_slower = method % _CHANGED_METHODS == 0 and 2 * night >= nights
        level = _STEP if is_slower else 1.0
        own = {**template["perfrun"], "run_id": f"run-{night}"}
        own["git"] = [{"directory": "models", "url": "https://host/r", "git_hash": f"{night:040x}"}]
        values = [level * generator.lognormvariate(0, _NOISE) for _ in range(METRICS + 1)]
        metrics = [{"name": f"metric_{i}_s", "value": values[i]} for i in range(METRICS)]
        yield {
            **template,
            "execution_id": f"{number:08}",
            "execution_timestamp": _begun(night) + method,
            "benchmark_info": {**template["benchmark_info"], "execution_label": _label(night)},
            "benchmark_result": {
                **result,
                "name": f"package.module.Class.method_{method:03}",
                "wall_time": values[METRICS],
                "metrics": metrics,
            },
            "perfrun": own,
        }


def _label(night: int) -> str:
    return f"night-{night}"


def _begun(night: int) -> float:
    return _FIRST + night * 86400.0


def _write(output: Path, document: dict[str, Any]) -> int:
    path = output / str(document["execution_id"]) / "perfzero_summary.json"
    path.parent.mkdir(parents=True)
    return path.write_text(json.dumps(document, indent=2), encoding="utf-8")


def _index(workspace: Path, expected: int, *flags: str) -> Times:
    times, text = _ran(*_perfrun("index", workspace, *flags))
    if json.loads(text)["read"] != expected:
        raise MeasurementError(f"the index did not read what it should: {text}")
    return times


def _history(workspace: Path) -> Times:
    times, text = _ran(*_perfrun("history", workspace, "package.module.Class.method_007"))
    if not json.loads(text)["series"]:
        raise MeasurementError("there is no history")
    return times


def _detected(workspace: Path, *flags: str) -> Times:
    """Time `perfrun detect` over all series as a whole process."""
    times, text = _ran(*_perfrun("detect", workspace, *flags), allowed=(0, 1))  # 1: found something
    found = json.loads(text)
    if not found["series"] + sum(found["left_out"].values()):
        raise MeasurementError("detect found no series")
    return times


def _report(workspace: Path, summaries: int) -> Times:
    """Time what `perfrun nightly` does after the trials of the last night, as a whole process."""
    last = (summaries - 1) // METHODS
    night = (_label(last), str(_begun(last)))
    times, text = _ran(sys.executable, "-m", "overhead.nightreport", str(workspace), *night)
    if _label(last) not in text:
        raise MeasurementError("the night's report does not name the night")
    return times


def _perfrun(command: str, workspace: Path, *words: str) -> tuple[str, ...]:
    return (*PERFRUN, command, f"--workspace={workspace}", "--format=json", *words)


def _ran(*argv: str, allowed: tuple[int, ...] = (0,)) -> tuple[Times, str]:
    before_s = _cpu_s(resource.RUSAGE_CHILDREN)
    done = finish(argv, allowed=allowed)
    return (done.wall_s, _cpu_s(resource.RUSAGE_CHILDREN) - before_s), done.stdout


def _cpu_s(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _asked(workspace: Path, question: Callable[[Store], int]) -> Times:
    """Time one query: open the index and read all points. Its module is imported already."""
    address = parse_address(None, workspace)
    begin, before_s = perf_counter(), _cpu_s(resource.RUSAGE_SELF)
    with open_store(address) as store:
        if not question(store):
            raise MeasurementError("the index has no points")
    return perf_counter() - begin, _cpu_s(resource.RUSAGE_SELF) - before_s


def _one_series(store: Store) -> int:
    return _points(store.series("package.module.Class.method_007"))


def _one_metric(store: Store) -> int:
    return _points(store.series(metric="wall_time"))


def _everything(store: Store) -> int:
    return _points(store.series())


def _points(series: Iterable[Series]) -> int:
    return sum([len(one.points) for one in series])
