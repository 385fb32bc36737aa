"""Measure how an index grows: made-up stores of ten thousand to five million trials.

    python -m overhead.store_growth --scratch=DIR [--trials=10000,100000] [--postgresql=URL]

Rows are sent to the tables in bulk: a test compares them with those that the recorder writes. Times are CPU seconds, so they hold on a machine that others use, too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Table

from perfrun.options.store_address import Address
from perfrun.store import schema
from perfrun.store.database import Database
from perfrun.store.writing import ids_of, rows_of, write_roots
from perfrun.summary.record import SummaryRecord, record_of

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
NIGHTS = {10_000: 50, 100_000: 100, 1_000_000: 250, 5_000_000: 365}  # both ways of growth
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


def fill(address: Address, made: Made) -> None:
    """Write a store: what trials share as the recorder does, and their own rows in bulk."""
    nodes = min(_NODES, made.methods)
    numbers = itertools.count(1)
    with Database(address) as database, database.writing() as connection:
        if address.is_sqlite:
            connection.exec_driver_sql("PRAGMA cache_size = -1000000")  # in KiB
        write_roots(connection, {_place(n): f"/nodes/{n:04}" for n in range(nodes)})
        records = [record(made, method, 0) for method in range(made.methods)]
        templates = [rows_of(one) for one in records]
        subjects = ids_of(connection, schema.subjects, [one.subject for one in templates])
        own = [
            (one.method, one.hostname, rows) for one, rows in zip(records, templates, strict=True)
        ]
        named = [metric for metric, _ in templates[0].figures]
        metrics = ids_of(connection, schema.metrics, named)
        for night in range(made.nights):
            shared = [rows_of(record(made, node, night)) for node in range(nodes)]
            contexts = ids_of(connection, schema.contexts, [one.context for one in shared])
            values = dict(zip(("wall_time", "peak_rss_bytes"), figures(night, made), strict=True))
            measured = [(metrics[name], values[name[0]].tolist()) for name in named]
            trials, files, measurements = [], [], []
            for method, (name, host, rows) in enumerate(own):
                like, number = shared[method % nodes], next(numbers)
                execution_id, began = execution_of(method, night), time_of(method, night)
                parts = json.dumps((execution_id, began, name, 1, host)).encode()
                uid = hashlib.sha256(parts).hexdigest()
                trial = {
                    **rows.trial,
                    "id": number,
                    "uid": uid,
                    "subject_id": subjects[rows.subject],
                    "context_id": contexts[like.context],
                    "execution_id": execution_id,
                    "run_id": like.trial["run_id"],
                    "timestamp": began,
                    "label": like.trial["label"],
                }
                trials.append([trial[column] for column in _TRIAL_COLUMNS])
                files.append((_place(method % nodes), path_of(method, night), STAMP, number, False))
                measurements += [(number, metric, float(all_[method])) for metric, all_ in measured]
            _send(connection, schema.trials, _TRIAL_COLUMNS, trials)
            _send(connection, schema.files, [c.name for c in schema.files.columns], files)
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
        driver.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows)
        return
    statement = f"COPY {table.name} ({names}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(statement) as stream:
        for row in rows:
            stream.write_row(row)
