"""Results of pytest-benchmark: `pytest --benchmark-json=FILE`, or a file that it has saved.

All benchmarks of a file were measured by one process, so each has one trial. A round is a sample;
rounds are in the file only with `--benchmark-save-data`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct

from perfrun.exchange.exported import Exported
from perfrun.exchange.foreign import (
    Commit,
    Figure,
    ForeignTrial,
    Machine,
    Source,
    Timing,
    short_text,
    whole,
)
from perfrun.summary.series_identity import is_number

TOOL = "pytest-benchmark"
_HASH = re.compile(r"[0-9a-f]{4,64}")
_TUKEY = 1.5  # interquartile ranges beyond which a value is an outlier


class _Stats(Struct):
    median: float
    min: float
    max: float
    mean: float
    stddev: float | None = None
    iterations: int = 1
    data: list[float] | None = None


class _Benchmark(Struct):
    fullname: str
    stats: _Stats
    extra_info: dict[str, Any] = {}
    group: str | None = None


class _CommitInfo(Struct, frozen=True):
    id: str | None = None
    project: str | None = None
    branch: str | None = None
    dirty: bool | None = None


class _File(Struct):
    benchmarks: list[_Benchmark]
    datetime: str
    machine_info: dict[str, Any] = {}
    commit_info: _CommitInfo = _CommitInfo()
    version: str = ""


def read(source: Source) -> list[ForeignTrial]:
    """Return the trials of a file. Raises ForeignError."""
    file = source.convert(_File)
    timestamp = source.time(file.datetime, "datetime", in_utc=True)
    machine, commit = _machine(file.machine_info), _commit(source, file.commit_info)
    found: dict[str, ForeignTrial] = {}
    for at, one in enumerate(file.benchmarks):
        place = f"benchmarks[{at}]"
        name = source.name(one.fullname, f"{place}.fullname")
        if name in found:
            raise source.wrong(f"{place}.fullname", f"is there twice: {name}")
        figures, extras = _extra_info(source, one.extra_info, f"{place}.extra_info")
        if one.group:
            extras["group"] = source.name(one.group, f"{place}.group")
        found[name] = ForeignTrial(
            method=name,
            timestamp=timestamp,
            timing=_timing(source, one.stats, f"{place}.stats"),
            figures=figures,
            extras=extras,
            machine=machine,
            commit=commit,
            tool_version=short_text(file.version),
        )
    return list(found.values())


def _timing(source: Source, stats: _Stats, place: str) -> Timing:
    steps = stats.iterations
    if not 0 < steps < 2**62:
        raise source.wrong(f"{place}.iterations", "is no number of calls")
    return Timing(
        median_s=source.number(stats.median, f"{place}.median", 0),
        times_s=source.numbers(stats.data or (), f"{place}.data", 0),
        steps=steps,
        mean_s=source.number(stats.mean, f"{place}.mean", 0),
        min_s=source.number(stats.min, f"{place}.min", 0),
        max_s=source.number(stats.max, f"{place}.max", 0),
    )


def _extra_info(
    source: Source, info: Mapping[str, Any], place: str
) -> tuple[tuple[Figure, ...], dict[str, float | str]]:
    """Return the user's numbers as figures, and all else that is short as notes."""
    figures: list[Figure] = []
    extras: dict[str, float | str] = {}
    for key, value in info.items():
        name = source.name(key, f"{place}: a key")
        if is_number(value):
            figures.append(Figure(name=name, value=float(value)))
        elif isinstance(value, str | float):
            extras[name] = short_text(value)
    return tuple(figures), extras


def _machine(info: Mapping[str, Any]) -> Machine:
    cpu = info.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    return Machine(
        hostname=short_text(info.get("node")),
        cpu_model=short_text(cpu.get("brand_raw") or cpu.get("brand")),
        kernel=short_text(info.get("release")),
        logical_cpus=whole(cpu.get("count")),
        python=short_text(info.get("python_version")),
        implementation=short_text(info.get("python_implementation")).lower(),
    )


def _commit(source: Source, info: _CommitInfo) -> Commit | None:
    if not info.id or not _HASH.fullmatch(info.id):
        return None  # outside a repository it is "unversioned"
    return Commit(
        project=source.name(info.project or "project", "commit_info.project"),
        git_hash=source.name(info.id, "commit_info.id"),
        branch=short_text(info.branch),
        is_dirty=info.dirty,
    )


def write(results: Sequence[Exported]) -> dict[str, Any]:
    """Return the document with one benchmark a method, as pytest-benchmark compares them."""
    first = results[0]
    return {
        "machine_info": {
            "node": first.machine.hostname,
            "processor": "",
            "machine": first.machine.platform,
            "python_implementation": first.machine.implementation,
            "python_version": first.machine.python,
            "release": first.machine.kernel,
            "system": "Linux",
            "cpu": {
                "brand_raw": first.machine.cpu_model,
                "count": first.machine.logical_cpus,
            },
        },
        "commit_info": {
            "id": first.commit.git_hash if first.commit else "unversioned",
            "project": first.commit.project if first.commit else "",
            "branch": first.commit.branch if first.commit else "",
            "dirty": first.commit.is_dirty if first.commit else False,
        },
        "benchmarks": [_benchmark(one) for one in results if one.times_s],
        "datetime": datetime.fromtimestamp(first.timestamp, timezone.utc).isoformat(),
        "version": "5.3.1",  # whose format this is
    }


def _benchmark(one: Exported) -> dict[str, Any]:
    return {
        "group": None,
        "name": one.name.rpartition("::")[2] or one.name,
        "fullname": one.name,
        "params": None,
        "param": None,
        "extra_info": {figure.name: figure.value for figure in one.figures},
        "options": {
            "disable_gc": False,
            "timer": "perf_counter",
            "min_rounds": 1,
            "max_time": 0.0,
            "min_time": 0.0,
            "warmup": False,
        },
        "stats": _stats(one.times_s, one.steps or 1),
    }


def _stats(times: Sequence[float], iterations: int) -> dict[str, Any]:
    ordered = sorted(times)
    mean = math.fsum(ordered) / len(ordered)
    spread = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    cuts = statistics.quantiles(ordered, method="inclusive") if len(ordered) > 1 else ordered * 3
    low, high = cuts[0], cuts[2]
    fence = _TUKEY * (high - low)
    within = [value for value in ordered if low - fence <= value <= high + fence] or ordered
    beyond = sum(abs(value - mean) > spread for value in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": spread,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": high - low,
        "q1": low,
        "q3": high,
        "iqr_outliers": len(ordered) - len(within),
        "stddev_outliers": beyond,
        "outliers": f"{beyond};{len(ordered) - len(within)}",
        "ld15iqr": within[0],
        "hd15iqr": within[-1],
        "ops": 1 / mean if mean else 0.0,
        "total": math.fsum(ordered),
        "data": list(times),
        "iterations": iterations,
    }
