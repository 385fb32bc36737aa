"""Results of Google Benchmark: `--benchmark_out=FILE --benchmark_out_format=json`.

A file is that of one process. The repetitions of a benchmark are its samples; of aggregates, only
the median and the mean are read, and only where the repetitions themselves were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from perfrun.exchange.exported import Exported
from perfrun.exchange.foreign import (
    Figure,
    ForeignError,
    ForeignTrial,
    Machine,
    Source,
    Timing,
    short_text,
    whole,
)
from perfrun.summary.series_identity import is_number
from perfrun.worker.measure.statistics import median

TOOL = "google-benchmark"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATES = {"items_per_second": "1/s", "bytes_per_second": "bytes/s"}
# All keys of an entry that are Google Benchmark's own; any other is a counter of the user's.
_OWN = {
    *("name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions"),
    *("repetition_index", "threads", "aggregate_name", "aggregate_unit", "iterations", "real_time"),
    *("cpu_time", "time_unit", "label", "error_occurred", "error_message", "skipped"),
    *("skip_message", "big_o", "cpu_coefficient", "real_coefficient", "rms", "allocs_per_iter"),
    *("max_bytes_used", "total_allocated_bytes", "net_heap_growth", *_RATES),
}


class _Entry:
    """One object of `benchmarks`, checked."""

    def __init__(self, source: Source, entry: Any, place: str) -> None:
        if not isinstance(entry, dict):
            raise source.wrong(place, "is no object")
        self._source, self._entry, self.place = source, entry, place
        stated = entry.get("run_name", entry.get("name"))
        if not isinstance(stated, str):
            raise source.wrong(f"{place}.name", "is no text")
        self.name = source.name(stated, f"{place}.name")
        # Versions before 1.5 do not say what an entry is; their aggregates end in such a name.
        self.aggregate = short_text(entry.get("aggregate_name"))
        self.repetition = entry.get("repetition_index", 0)
        self.iterations = whole(entry.get("iterations"))

    @property
    def failure(self) -> str | None:
        entry = self._entry
        if entry.get("error_occurred"):
            return short_text(entry.get("error_message")) or "failed without a message"
        return None

    @property
    def is_skipped(self) -> bool:
        return bool(self._entry.get("skipped"))

    @property
    def has_cpu_time(self) -> bool:
        return "cpu_time" in self._entry

    def seconds(self, key: str) -> float:
        """Return a time in seconds. Raises ForeignError."""
        unit = self._entry.get("time_unit", "ns")
        if not isinstance(unit, str) or unit not in _SECONDS:
            raise self._source.wrong(f"{self.place}.time_unit", "is none of ns, us, ms, s")
        value = self._source.number(self._entry.get(key), f"{self.place}.{key}", 0)
        return value * _SECONDS[unit]

    def rates(self) -> dict[str, float]:
        """Return the rates that follow from the time."""
        return {
            key: self._source.number(self._entry[key], f"{self.place}.{key}", 0)
            for key in _RATES
            if key in self._entry
        }

    def counters(self) -> dict[str, float]:
        """Return the user's counters; those that are no finite numbers are left out."""
        return {
            self._source.name(key, f"{self.place}: a key"): float(value)
            for key, value in self._entry.items()
            if key not in _OWN and is_number(value)
        }

    @property
    def label(self) -> dict[str, float | str]:
        told = short_text(self._entry.get("label"))
        return {"label": told} if told else {}


def read(source: Source) -> list[ForeignTrial]:
    """Return the trials of a file, one a benchmark. Raises ForeignError."""
    document = source.convert(dict[str, Any])
    context, entries = document.get("context"), document.get("benchmarks")
    if not isinstance(context, dict) or not isinstance(entries, list):
        raise source.wrong("", "is JSON, but not of Google Benchmark: no context or benchmarks")
    groups: dict[str, list[_Entry]] = {}
    for at, entry in enumerate(entries):
        checked = _Entry(source, entry, f"benchmarks[{at}]")
        if not checked.is_skipped:
            groups.setdefault(checked.name, []).append(checked)
    date = context.get("date")
    timestamp = source.time(date if isinstance(date, str) else None, "context.date")
    machine = Machine(
        hostname=short_text(context.get("host_name")), logical_cpus=whole(context.get("num_cpus"))
    )
    version = short_text(context.get("library_version"))
    found = [_trial(source, group, timestamp, machine, version) for group in groups.values()]
    return [trial for trial in found if trial]


def _trial(
    source: Source,
    group: Sequence[_Entry],
    timestamp: float | None,
    machine: Machine,
    version: str,
) -> ForeignTrial | None:
    name = group[0].name
    failure = next((one.failure for one in group if one.failure), None)
    runs = [one for one in group if not one.aggregate]
    if len({str(one.repetition) for one in runs}) < len(runs):
        raise _twice(source, runs[1].place, name)
    aggregates = {one.aggregate: one for one in group if one.aggregate}
    if not failure and not runs and not aggregates.keys() & {"median", "mean"}:
        return None  # a fit of the complexity
    of = runs or [aggregates.get("median") or aggregates.get("mean") or group[0]]
    return ForeignTrial(
        method=name,
        timestamp=timestamp,
        failure=failure,
        timing=None if failure else _timing(of, is_one=not runs),
        figures=() if failure else _figures([one.counters() for one in of]),
        extras=group[0].label,
        machine=machine,
        tool_version=version,
    )


def _timing(of: Sequence[_Entry], *, is_one: bool) -> Timing:
    times = tuple(one.seconds("real_time") for one in of)
    rates = _figures([one.rates() for one in of], _RATES, "higher")
    has_cpu = all(one.has_cpu_time for one in of)
    return Timing(
        median_s=median(times),
        times_s=() if is_one else times,
        steps=None if is_one else of[0].iterations,
        cpu_s=median([one.seconds("cpu_time") for one in of]) if has_cpu else None,
        figures=rates,
    )


def _figures(
    each: Sequence[dict[str, float]], units: dict[str, str] | None = None, direction: str = ""
) -> tuple[Figure, ...]:
    """Return the median over the repetitions of each figure that all of them have."""
    names = [name for name in each[0] if all(name in one for one in each)]
    return tuple(
        Figure(
            name=name,
            value=median([one[name] for one in each]),
            unit=(units or {}).get(name, ""),
            direction=direction,
        )
        for name in names
    )


def _twice(source: Source, place: str, name: str) -> ForeignError:
    return source.wrong(f"{place}.name", f"is there twice, not as a repetition: {name}")


def write(results: Sequence[Exported]) -> dict[str, Any]:
    """Return the document with a repetition for each sample."""
    first = results[0]
    date = datetime.fromtimestamp(first.timestamp, timezone.utc)
    entries: list[dict[str, Any]] = []
    for family, one in enumerate(one for one in results if one.times_s):
        entries += _entries(family, one)
    return {
        "context": {
            "date": date.isoformat(timespec="seconds"),
            "host_name": first.machine.hostname,
            "num_cpus": first.machine.logical_cpus or 0,
            "library_build_type": "release",
            "json_schema_version": 1,
        },
        "benchmarks": entries,
    }


def _entries(family: int, one: Exported) -> list[dict[str, Any]]:
    taken = _OWN - _RATES.keys()
    # A time of the CPU that nobody measured is left out.
    cpu = {} if one.cpu_s is None else {"cpu_time": one.cpu_s * 1e9}
    counters = {figure.name: figure.value for figure in one.figures if figure.name not in taken}
    return [
        {
            "name": one.name,
            "family_index": family,
            "per_family_instance_index": 0,
            "run_name": one.name,
            "run_type": "iteration",
            "repetitions": len(one.times_s),
            "repetition_index": at,
            "threads": 1,
            "iterations": one.steps or 1,
            "real_time": time * 1e9,
            **cpu,
            "time_unit": "ns",
            **counters,
        }
        for at, time in enumerate(one.times_s)
    ]
