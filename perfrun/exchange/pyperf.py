"""Results of pyperf: `python bench.py -o FILE`, `pyperf timeit -o FILE`.

A run of pyperf is a process, so it is a trial here, and its values are the samples. Runs that only
calibrate have no values and are no trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from perfrun.exchange.exported import Exported
from perfrun.exchange.foreign import (
    Figure,
    ForeignTrial,
    Machine,
    Source,
    Timing,
    short_text,
    whole,
)
from perfrun.worker.measure.statistics import median

TOOL = "pyperf"
_FORMAT = "1.0"  # of the file
# What a value counts, by the unit that pyperf states; a time is no figure but the result.
_COUNTS = {
    "byte": ("memory_bytes", "bytes"),
    "integer": ("value", ""),
}


class _Run(Struct):
    metadata: dict[str, Any] = {}
    values: list[float] | None = None
    warmups: list[tuple[int, float]] | None = None


class _Benchmark(Struct):
    runs: list[_Run]
    metadata: dict[str, Any] = {}


class _File(Struct):
    benchmarks: list[_Benchmark]
    version: str
    metadata: dict[str, Any] = {}


def read(source: Source) -> list[ForeignTrial]:
    """Return the trials of a file. Raises ForeignError."""
    file = source.convert(_File)
    if file.version != _FORMAT:
        raise source.wrong("version", f"is {file.version!r}; this perfrun reads {_FORMAT}")
    found: list[ForeignTrial] = []
    names: set[str] = set()
    for at, one in enumerate(file.benchmarks):
        place, facts = f"benchmarks[{at}]", {**file.metadata, **one.metadata}
        stated = facts.get("name", source.path.stem)  # of one benchmark alone, it may be left out
        if not isinstance(stated, str):
            raise source.wrong(f"{place}.metadata.name", "is no text")
        name = source.name(stated, f"{place}.metadata.name")
        if name in names:
            raise source.wrong(f"{place}.metadata.name", f"is there twice: {name}")
        names.add(name)
        for number, run in enumerate(one.runs):
            if run.values:
                where = f"{place}.runs[{number}]"
                found.append(_trial(source, name, run, {**facts, **run.metadata}, where))
    return found


def _trial(
    source: Source, name: str, run: _Run, facts: Mapping[str, Any], where: str
) -> ForeignTrial:
    unit = facts.get("unit", "second")
    values = source.numbers(run.values or (), f"{where}.values", 0)
    timing: Timing | None = None
    figures: tuple[Figure, ...] = ()
    if unit == "second":
        timing = Timing(median_s=median(values), times_s=values, steps=whole(facts.get("loops")))
    elif isinstance(unit, str) and unit in _COUNTS:
        named, stated = _COUNTS[unit]
        figures = (Figure(name=named, value=median(values), unit=stated, direction="lower"),)
    else:
        raise source.wrong(f"{where}: unit", f"is none of second, byte, integer: {unit!r:.60}")
    date = facts.get("date")
    return ForeignTrial(
        method=name,
        timestamp=source.time(date if isinstance(date, str) else None, f"{where}.metadata.date"),
        timing=timing,
        figures=figures,
        extras=_description(facts),
        peak_rss_bytes=whole(facts.get("mem_max_rss")) or whole(facts.get("command_max_rss")),
        machine=Machine(
            hostname=short_text(facts.get("hostname")),
            cpu_model=short_text(facts.get("cpu_model_name")),
            platform=short_text(facts.get("platform")),
            logical_cpus=whole(facts.get("cpu_count")),
            python=short_text(facts.get("python_version")).partition(" ")[0],
            implementation=short_text(facts.get("python_implementation")),
        ),
        tool_version=short_text(facts.get("perf_version")),
    )


def _description(facts: Mapping[str, Any]) -> dict[str, float | str]:
    told = {key: short_text(facts.get(key)) for key in ("description", "command", "tags")}
    return {key: value for key, value in told.items() if value}


def write(results: Sequence[Exported]) -> dict[str, Any]:
    """Return the document with one benchmark a method and one run a trial."""
    return {
        "version": _FORMAT,
        "metadata": {"unit": "second"},
        "benchmarks": [
            {"metadata": {"name": one.name}, "runs": [_run(trial) for trial in one.trials]}
            for one in results
            if one.times_s
        ],
    }


def _run(trial: Exported) -> dict[str, Any]:
    machine = trial.machine
    facts = {
        "date": datetime.fromtimestamp(trial.timestamp).isoformat(" "),
        "loops": trial.steps,
        "mem_max_rss": trial.peak_rss_bytes,
        "hostname": machine.hostname,
        "cpu_model_name": machine.cpu_model,
        "platform": machine.platform,
        "cpu_count": machine.logical_cpus,
        "python_version": machine.python,
        "python_implementation": machine.implementation,
    }
    return {
        "metadata": {key: value for key, value in facts.items() if value},
        "values": list(trial.times_s),
    }
