"""Results of asv: a `results` folder, or single files `results/MACHINE/COMMIT-ENVIRONMENT.json`.

A file of results is a run: one commit in one environment on one machine. Each benchmark with each
combination of its parameters is a trial, and its samples are there if asv recorded them
(`asv run --record-samples`). What is timed, and the unit of what is tracked, stands in
`benchmarks.json`; without that file, the name tells, as it tells asv.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfrun.errors import UsageError
from perfrun.exchange.exported import Exported
from perfrun.exchange.foreign import (
    Commit,
    Figure,
    ForeignTrial,
    Machine,
    Source,
    Timing,
    read_source,
    short_text,
    whole,
)
from perfrun.summary.result_folder import safe_name
from perfrun.summary.series_identity import is_number
from perfrun.worker.measure.statistics import median, median_interval, quantile

TOOL = "asv"
_BENCHMARKS, _MACHINE = "benchmarks.json", "machine.json"
_VERSION = 2  # of the files
_MOST_COMBINATIONS = 10_000  # of the parameters of a benchmark
_HASH = re.compile(r"[0-9a-f]{4,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# The kinds of benchmarks, by asv's `type` and by the beginning of a name: metric and unit.
_TIMES = {"time", "timeraw"}
_KINDS = {
    "memory": ("memory_bytes", "bytes"),
    "peakmemory": ("peak_memory_bytes", "bytes"),
    "track": ("tracked", ""),
}
_PREFIXES = {"time": "time", "timeraw": "timeraw", "mem": "memory", "peakmem": "peakmemory",
             "track": "track"}  # fmt: skip
_PREFIX = re.compile(r"(timeraw|time|mem|peakmem|track)(?:_|(?=[A-Z]))", re.IGNORECASE)
_COLUMNS = (
    *("result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"),
    *("stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"),
)


class _File(Struct):
    commit_hash: str
    results: dict[str, list[Any] | None]
    result_columns: list[str]
    version: int
    env_name: str = ""
    date: int | None = None  # of the commit, in milliseconds
    params: dict[str, Any] = {}
    requirements: dict[str, Any] = {}
    python: str | None = None


@dataclass(frozen=True)
class _Kind:
    """The kind of a benchmark and the unit of what it tracks."""

    name: str
    unit: str


def files_of(path: Path) -> list[Path]:
    """Return the files of results in a folder `results`, or a machine's folder below it."""
    if not path.is_dir():
        return [path]
    found = sorted(p for pattern in ("*.json", "*/*.json") for p in path.glob(pattern))
    return [p for p in found if p.name not in (_BENCHMARKS, _MACHINE)]


def read(source: Source) -> list[ForeignTrial]:
    """Return the trials of a file. Raises ForeignError."""
    file = source.convert(_File)
    if file.version != _VERSION:
        raise source.wrong("version", f"is {file.version}; this perfrun reads {_VERSION}")
    if not _HASH.fullmatch(file.commit_hash):
        raise source.wrong("commit_hash", "is no hash of a commit")
    kinds = _kinds(source.path)
    found: list[ForeignTrial] = []
    for name, values in file.results.items():
        place = f"results: {source.name(name, 'results: a name')}"
        columns = dict(zip(file.result_columns, values or (), strict=False))
        found += _trials(source, file, name, columns, kinds.get(name), place)
    return found


def _kinds(path: Path) -> dict[str, _Kind]:
    """Return the kinds of all benchmarks, from the `benchmarks.json` that stands above a file."""
    above = path.absolute().parent.parent / _BENCHMARKS
    if not above.is_file():
        return {}
    source = read_source(above, follow=False)
    found = {}
    for name, one in source.convert(dict[str, Any]).items():
        if isinstance(one, dict):
            found[name] = _Kind(short_text(one.get("type")), short_text(one.get("unit")))
    return found


def _kind(name: str, known: _Kind | None) -> _Kind | None:
    """Return the kind as stated, else by the beginning of the function's name; None for neither."""
    if known and (known.name in _TIMES or known.name in _KINDS):
        return known
    found = _PREFIX.match(name.rpartition(".")[2])
    return _Kind(_PREFIXES[found[1].lower()], "") if found else None


def _trials(
    source: Source,
    file: _File,
    name: str,
    columns: Mapping[str, Any],
    known: _Kind | None,
    place: str,
) -> Iterator[ForeignTrial]:
    kind = _kind(name, known)
    if kind is None:
        raise source.wrong(place, f"is of no kind that asv documents, and not in {_BENCHMARKS}")
    started = columns.get("started_at")
    stated = started if is_number(started) else file.date
    timestamp = None if stated is None else source.seconds(stated / 1000, f"{place}.started_at")
    version = short_text(columns.get("version"))
    shared: dict[str, Any] = {
        "timestamp": timestamp,
        "run": f"{file.commit_hash} {file.env_name} {short_text(file.params.get('machine'))}",
        "machine": _machine(file),
        "commit": Commit(project="project", git_hash=file.commit_hash),
        "source": version if _SHA256.fullmatch(version) else "",
        # asv's own flag: the same commit is measured in each environment of a matrix.
        "flags": (f"--environment={source.name(file.env_name, 'env_name')}",)
        if file.env_name
        else (),
        "packages": {
            source.name(key, "requirements: a name"): short_text(value)
            for key, value in file.requirements.items()
            if short_text(value)
        },
    }
    combinations = _combinations(source, columns.get("params"), f"{place}.params")
    results = columns.get("result")
    if results is None:  # the benchmark failed as a whole
        yield ForeignTrial(method=name, failure="failed under asv", **shared)
        return
    if not isinstance(results, list) or len(results) != len(combinations):
        raise source.wrong(f"{place}.result", "is no list with a value for each combination")
    for at, (words, value) in enumerate(zip(combinations, results, strict=True)):
        method = source.name(f"{name}({', '.join(words)})" if words else name, place)
        if isinstance(value, float) and math.isnan(value):
            continue  # asv's value for a benchmark that skipped itself
        if value is None:
            yield ForeignTrial(method=method, failure="failed under asv", **shared)
        else:
            yield _measured(source, method, kind, value, columns, at, place, shared)


def _measured(
    source: Source,
    method: str,
    kind: _Kind,
    value: Any,
    columns: Mapping[str, Any],
    at: int,
    place: str,
    shared: Mapping[str, Any],
) -> ForeignTrial:
    where = f"{place}.result[{at}]"
    if kind.name in _TIMES:
        samples = _item(columns.get("samples"), at)
        timing = Timing(
            median_s=source.number(value, where, 0),
            times_s=source.numbers(samples, f"{place}.samples[{at}]", 0)
            if isinstance(samples, list)
            else (),
            steps=whole(_item(columns.get("stats_number"), at)),
        )
        return ForeignTrial(method=method, timing=timing, **shared)
    name, unit = _KINDS[kind.name]
    # A rise is what asv reports as a regression, whatever is tracked.
    figure = Figure(
        name=name,
        value=source.number(value, where),
        unit=unit or kind.unit,
        direction="lower",
    )
    return ForeignTrial(method=method, figures=(figure,), **shared)


def _item(column: Any, at: int) -> Any:
    return column[at] if isinstance(column, list) and at < len(column) else None


def _combinations(source: Source, params: Any, place: str) -> list[tuple[str, ...]]:
    params = [] if params is None else params
    if not isinstance(params, list) or not all(isinstance(one, list) for one in params):
        raise source.wrong(place, "is no list of lists")
    if math.prod(len(one) for one in params) > _MOST_COMBINATIONS:
        raise source.wrong(place, f"has more than {_MOST_COMBINATIONS:,} combinations")
    return [tuple(map(short_text, one)) for one in itertools.product(*params)]


def _machine(file: _File) -> Machine:
    facts = file.params
    python = short_text(file.python or facts.get("python"))
    return Machine(
        hostname=short_text(facts.get("machine")),
        cpu_model=short_text(facts.get("cpu")),
        kernel=short_text(facts.get("os")),
        logical_cpus=whole(facts.get("num_cpu")),
        memory_bytes=whole(facts.get("ram")),
        python=python
        if re.fullmatch(r"\d{1,9}(\.\d{1,9}){1,9}", python)
        else "",  # else it is a path
    )


def write(results: Sequence[Exported]) -> dict[str, Any]:
    """Return the files of a folder `results`, by their names in it. Raises UsageError."""
    benchmarks: dict[str, Any] = {"version": _VERSION}
    files: dict[str, Any] = {}
    for one in results:
        kind = _figure_of(one)
        if kind is None:
            continue
        version = one.source or hashlib.sha256(one.name.encode()).hexdigest()
        benchmarks[one.name] = _description(one.name, *kind[:2], version)
        for commit, environment, trials in _runs(one):
            machine = trials[0].machine
            place = safe_name(machine.hostname or "unknown")
            files.setdefault(f"{place}/{_MACHINE}", _machine_file(machine, place))
            name = f"{place}/{commit.git_hash[:8]}-{safe_name(environment)}.json"
            file = files.setdefault(name, _result_file(commit, environment, machine, place))
            file["results"][one.name] = _columns(trials, version)
    if not files:
        raise UsageError("asv: there is no figure to export")
    return {_BENCHMARKS: benchmarks, **files}


def _runs(one: Exported) -> Iterator[tuple[Commit, str, list[Exported]]]:
    """Group the trials of a method by commit and environment, which are asv's keys."""
    groups: dict[tuple[str, str], list[Exported]] = {}
    for trial in one.trials:
        if trial.commit is None:
            raise UsageError(
                f"{one.name}: asv keeps results by commit, and this one has none, or has several "
                "checkouts; name one with --checkout=NAME"
            )
        groups.setdefault((trial.commit.git_hash, trial.environment), []).append(trial)
    for (_, environment), trials in groups.items():
        commit = trials[0].commit
        assert commit is not None
        yield commit, environment or "environment", trials


def _figure_of(one: Exported) -> tuple[str, str] | None:
    """Return asv's kind and unit of a result; None when it has no figure."""
    if one.median_s is not None:
        return "time", "seconds"
    if not one.figures:
        return None
    figure = one.figures[0]
    kinds = {name: kind for kind, (name, _) in _KINDS.items()}
    return kinds.get(figure.name, "track"), figure.unit or "unit"


def _columns(trials: Sequence[Exported], version: str) -> list[Any]:
    first = trials[0]
    started = int(first.timestamp * 1000)
    if first.median_s is None:
        value = median([trial.figures[0].value for trial in trials])
        return [[value], [], version, started, None]
    times = first.times_s if len(trials) == 1 else [t.median_s or 0.0 for t in trials]
    ordered = sorted(times)
    interval = first.interval_s if len(trials) == 1 else median_interval(ordered)
    low, high = interval if interval else (-math.inf, math.inf)  # as asv says that it is unknown
    value = first.median_s if len(trials) == 1 else median(times)
    shares = [[quantile(ordered, 0.25)], [quantile(ordered, 0.75)]]
    number = first.steps or 1
    return [
        *([value], [], version, started, None, [low], [high], *shares),
        *([number], [len(times)], [list(times)]),
    ]


def _description(name: str, kind: str, unit: str, version: str) -> dict[str, Any]:
    return {
        "code": "",
        "name": name,
        "param_names": [],
        "params": [],
        "type": kind,
        "unit": unit,
        "version": version,
    }


def _machine_file(machine: Machine, name: str) -> dict[str, Any]:
    return {
        "arch": machine.platform,
        "cpu": machine.cpu_model,
        "machine": name,
        "num_cpu": str(machine.logical_cpus or ""),
        "os": machine.kernel,
        "ram": str(machine.memory_bytes or ""),
        "version": 1,
    }


def _result_file(commit: Commit, environment: str, machine: Machine, name: str) -> dict[str, Any]:
    facts = {k: v for k, v in _machine_file(machine, name).items() if k != "version"}
    return {
        "commit_hash": commit.git_hash,
        "env_name": environment,
        "date": None,
        "params": {**facts, "python": machine.python},
        "python": machine.python,
        "requirements": {},
        "env_vars": {},
        "result_columns": list(_COLUMNS),
        "results": {},
        "durations": {},
        "version": _VERSION,
    }
