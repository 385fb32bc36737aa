"""Measure how an index grows: made-up stores of a thousand to five million trials.

    python -m overhead.store_growth --scratch=DIR [--trials=10000,100000] [--postgresql=URL]

Rows are sent to the tables in bulk: a test compares them with those that the recorder writes. Times
are CPU seconds of perfrun, so they hold on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sqlalchemy import Connection, Table, func, select

from overhead.processes import ROOT, MeasurementError
from perfrun.options.store_address import Address, parse_address
from perfrun.store import schema
from perfrun.store.database import Database
from perfrun.store.writing import TrialRows, ids_of, rows_of, write_roots
from perfrun.summary.record import SummaryRecord, record_of

# Both ways of growth, and a year of 200 methods.
NIGHTS = {1000: 50, 10_000: 50, 73_000: 365, 100_000: 100, 1_000_000: 250, 5_000_000: 365}
_NODES = 20  # workspaces that the results come from
STAMP = "1:1:1"  # of files that nobody looks for
_TRIAL_COLUMNS = [column.name for column in schema.trials.columns]
_FIRST_S = 1.75e9  # seconds since the epoch
_NIGHT_S = 86400.0
_NOISE = 0.02
_CHANGED_METHODS, _STEP = 50, 1.1  # one method in so many becomes slower, in the middle


@dataclass(frozen=True, kw_only=True)
class Made:
    """A store that was made: so many methods, a trial of each in each night."""

    trials: int
    methods: int
    nights: int


def shape_of(trials: int) -> Made:
    """Return the methods and nights of a store of so many trials."""
    nights = NIGHTS.get(trials, max(30, min(365, round(trials**0.5 / 4))))
    methods = math.ceil(trials / nights)
    return Made(trials=methods * nights, methods=methods, nights=nights)


def document(method: int, night: int, wall_time: float, peak: int) -> dict[str, Any]:
    """Return the summary of one trial, as far as an index reads it."""
    return {
        "execution_id": execution_of(method, night),
        "execution_timestamp": time_of(method, night),
        "benchmark_result": {
            "name": f"package.module.Class.method_{method:05}",
            "wall_time": wall_time,
            "succeeded": True,
            "extras": [],
            "metrics": [],
            "trial_id": 1,
        },
        "benchmark_info": {
            "harness_name": "perfrun",
            "harness_info": {},
            "has_exception": False,
            "execution_label": f"night-{night:03}",
            "flags": {},
            "site_package_info": {},
        },
        "setup_info": {},
        "ml_framework_info": {"name": "torch", "version": "2.9.0", "build_version": None},
        "system_info": {
            "cpu_model": "A Processor",
            "physical_cpu_count": 4,
            "logical_cpu_count": 8,
            "cpu_socket_count": 1,
            "hostname": f"node-{method % _NODES:04}",
        },
        "process_info": {"max_rss": peak},
        "perfrun": {
            "schema_version": 2,
            "version": "0.1.0",
            "run_id": f"run-{night:03}-{method % _NODES:04}",
            "benchmark_flags": [],
            "outcome": {"status": "passed"},
            "reports": [],
            "series": [],
            "quality": {"grade": "A", "disturbed": False, "findings": []},
            "module_sha256": "5" * 64,
            "git": [{"directory": "models", "url": "https://host/r", "git_hash": f"{night:040x}"}],
            "container": None,
            "machine": {
                "usable_cpu_count": 8,
                "memory_bytes": 16_500_000_000,
                "cgroup_cpu_limit": None,
                "cgroup_memory_limit_bytes": None,
            },
            "environment": {
                "python": {"version": "3.11.7", "build": "main", "prefix": "/envs/torch"},
                "distributions": {"torch": "2.9.0", "numpy": "2.4.6"},
                "direct_url_commits": {},
            },
        },
    }


@lru_cache(2)
def figures(night: int, made: Made) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the wall time and the peak memory of each method's trial of a night."""
    draw = np.random.default_rng([20261123, night])
    methods = made.methods
    is_slower = (np.arange(methods) % _CHANGED_METHODS == 0) & (2 * night >= made.nights)
    level = np.where(is_slower, _STEP, 1.0)
    peaks = np.rint(5e7 * draw.lognormal(0, 0.002, methods)).astype(np.int64)
    return level * draw.lognormal(0, _NOISE, methods), peaks


def fill(address: Address, made: Made, nights: Iterable[int]) -> None:
    """Add nights to a store: what trials share as the recorder does, and their own rows in bulk."""
    templates = [(method, record(made, method, 0)) for method in range(made.methods)]
    with Database(address) as database:
        with database.writing() as connection:
            write_roots(connection, {_place(n): f"/nodes/{n:04}" for n in range(_NODES)})
            own = _Own.of(connection, templates)
        for night in nights:
            with database.writing() as connection:
                _add_night(connection, made, night, own)


@dataclass(frozen=True, kw_only=True)
class _Own:
    """What the trials of each method and metric have in common."""

    methods: Sequence[tuple[str, str, TrialRows]]  # name, host and rows of the first trial
    subjects: Mapping[tuple[str, ...], int]
    metrics: Sequence[tuple[str, int]]

    @classmethod
    def of(cls, connection: Connection, first: Sequence[tuple[int, SummaryRecord]]) -> _Own:
        methods = [(one.method, one.hostname, rows_of(one)) for _, one in first]
        named = [metric for metric, _ in methods[0][2].figures]
        ids = ids_of(connection, schema.metrics, named)
        subjects = [rows.subject for _, _, rows in methods]
        return cls(
            methods=methods,
            subjects=ids_of(connection, schema.subjects, subjects),
            metrics=[(name[0], ids[name]) for name in named],
        )


def _add_night(connection: Connection, made: Made, night: int, own: _Own) -> None:
    shared = [rows_of(record(made, node, night)) for node in range(min(_NODES, made.methods))]
    contexts = ids_of(connection, schema.contexts, [one.context for one in shared])
    values = dict(zip(("wall_time", "peak_rss_bytes"), figures(night, made), strict=True))
    measured = [(number, values[name].tolist()) for name, number in own.metrics]
    first = (connection.execute(select(func.max(schema.trials.c.id))).scalar() or 0) + 1
    trials, files, measurements = [], [], []
    for method, (name, host, rows) in enumerate(own.methods):
        like, number = shared[method % len(shared)], first + method
        execution_id, began = execution_of(method, night), time_of(method, night)
        parts = json.dumps((execution_id, began, name, 1, host)).encode()
        trial = {
            **rows.trial,
            "id": number,
            "uid": hashlib.sha256(parts).hexdigest(),
            "subject_id": own.subjects[rows.subject],
            "context_id": contexts[like.context],
            "execution_id": execution_id,
            "run_id": like.trial["run_id"],
            "timestamp": began,
            "label": like.trial["label"],
        }
        trials.append([trial[column] for column in _TRIAL_COLUMNS])
        files.append((_place(method % _NODES), path_of(method, night), STAMP, number, False))
        measurements += [(number, metric, float(every[method])) for metric, every in measured]
    _send(connection, schema.trials, _TRIAL_COLUMNS, trials)
    _send(connection, schema.files, [column.name for column in schema.files.columns], files)
    _send(connection, schema.measurements, ["trial_id", "metric_id", "value"], measurements)


def record(made: Made, method: int, night: int) -> SummaryRecord:
    """Return the record of a trial, as it is read from its summary."""
    walls, peaks = figures(night, made)
    own = document(method, night, float(walls[method]), int(peaks[method]))
    return record_of(own, Path(path_of(method, night)))


def path_of(method: int, night: int) -> str:
    """Return the path of a summary within the workspace of its node."""
    return f"output/{execution_of(method, night)}/perfzero_summary.json"


def execution_of(method: int, night: int) -> str:
    """Return the id of a trial."""
    return f"night-{night:03}-{method:05}"


def time_of(method: int, night: int) -> float:
    """Return the time at which a trial began, in seconds since the epoch."""
    return _FIRST_S + night * _NIGHT_S + method


def _place(node: int) -> str:
    return f"workspace:{node:032x}"


def _send(
    connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    driver: Any = connection.connection.driver_connection
    names = ", ".join(f'"{column}"' for column in columns)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        driver.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows)  # noqa: S608
        return
    with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one command took; None where it was ended."""

    cpu_s: float
    peak_mib: float
    output: bytes


def command(*words: str, without_columns: bool = False) -> Cost:
    """Run a command of perfrun as a process of its own. Raises MeasurementError when it fails."""
    program = [
        "import sys",
        "from perfrun.store import index",
        f"index.COLUMNS_FROM = {10**15 if without_columns else 'index.COLUMNS_FROM'}",
        "from perfrun.benchmark import main",
        "sys.exit(main(sys.argv[1:]))",
    ]
    argv = [sys.executable, "-c", "; ".join(program), *words]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: detect found something
        raise MeasurementError(f"{' '.join(words)} ended with {process.returncode}")
    cpu_s = used.ru_utime + used.ru_stime
    return Cost(cpu_s=cpu_s, peak_mib=used.ru_maxrss / 1024, output=output)


def measure(store: str, trials: int, scratch: Path, *, with_report: bool) -> dict[str, float]:
    """Make a store, and return what its commands take: seconds of CPU time, MiB, bytes a trial."""
    made, address = shape_of(trials), parse_address(store, scratch)
    place = scratch / "workspace"
    (place / "runs").mkdir(parents=True, exist_ok=True)
    own = (f"--workspace={place}", f"--store={store}", "--format=json")
    begin_s = time.process_time()
    fill(address, made, range(made.nights - 1))
    found = {"bulk_load_s": time.process_time() - begin_s}
    first = command("detect", *own)
    fill(address, made, [made.nights - 1])
    night, again = command("detect", *own), command("detect", *own)
    whole = command("detect", *own, without_columns=True)
    if not night.output == again.output == whole.output or b"package" not in whole.output:
        raise MeasurementError("detect says something else with columns than without")
    for name, cost in (("first", first), ("night", night), ("again", again), ("whole", whole)):
        found |= {f"detect_{name}_s": cost.cpu_s, f"detect_{name}_mib": cost.peak_mib}
    found["history_s"] = command("history", "package.module.Class.method_00007", *own).cpu_s
    if with_report:
        report = command("report", *own, f"--output={scratch / 'page.html'}")
        found |= {"report_s": report.cpu_s, "report_mib": report.peak_mib}
        found["report_bytes"] = (scratch / "page.html").stat().st_size
    found["add_s"] = _added(address, made, scratch)
    return {"trials": made.trials, "methods": made.methods, "nights": made.nights, **found} | (
        _sizes(address, made.trials)
    )


def _added(address: Address, made: Made, scratch: Path) -> float:
    """Return the CPU time of this process in which a run adds a result; of several, the median."""
    from perfrun.store.recorder import IndexRecorder

    notes: list[str] = []
    recorder, times = IndexRecorder(address, notes.append), []
    for method in range(min(21, made.methods)):
        night = made.nights
        path = scratch / "node" / path_of(method, night)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document(method, night, 1.0, 50_000_000)), encoding="utf-8")
        begin_s = time.process_time()
        recorder.add(path)
        times.append(time.process_time() - begin_s)
    if notes:
        raise MeasurementError(notes[0])
    return statistics.median(times)


def _sizes(address: Address, trials: int) -> dict[str, float]:
    if address.file is not None:
        beside = address.file.with_name(f"{address.file.name}-columns")
        beside_bytes = beside.stat().st_size if beside.exists() else 0
        size = address.file.stat().st_size
        return {"bytes_a_trial": size / trials, "columns_bytes_a_trial": beside_bytes / trials}
    with Database(address) as database, database.reading() as connection:
        query = "SELECT pg_database_size(current_database())"
        size = connection.exec_driver_sql(query).scalar_one()
    return {"bytes_a_trial": size / trials}


def exponent(trials: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """Return the power of the number of trials that costs grow with, and half its 95 % interval.

    It is the slope of a line through the logarithms, by least squares.
    """
    x, y = np.log(trials), np.log(costs)
    slope, level = np.polyfit(x, y, 1)
    rest = y - level - slope * x
    error = math.sqrt(float(rest @ rest) / (len(x) - 2) / float(((x - x.mean()) ** 2).sum()))
    return float(slope), float(special.stdtrit(len(x) - 2, 0.975)) * error


def main(argv: Sequence[str]) -> int:
    """Measure the stores, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True, help="a folder with some GB")
    parser.add_argument("--trials", default="1000,10000,100000,1000000,5000000")
    parser.add_argument("--postgresql", help="address of an empty database; one size only")
    parser.add_argument("--no-report", action="store_true", help="leave out the page")
    given = parser.parse_args(argv)
    for trials in map(int, given.trials.split(",")):
        place = given.scratch / str(trials)
        place.mkdir(parents=True)
        store = given.postgresql or str(place / "store.db")
        found = measure(store, trials, place, with_report=not given.no_report)
        line = json.dumps({key: round(value, 4) for key, value in found.items()})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
