"""Measure how an index grows: made-up stores of ten thousand to five million trials.

    python -m overhead.store_growth --scratch=DIR [--trials=10000,100000] [--postgresql=URL]

Rows are written by `store.writing`, as a recorder writes them, but not read from files: a test
compares both. Times are CPU seconds, so they hold on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import itertools
import hashlib
import json
import math
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perfrun.options.store_address import Address, parse_address
from perfrun.store.database import Database
from perfrun.store.places import FileKey
from perfrun.store.writing import Batch, TrialRows, rows_of, write_batch, write_roots
from perfrun.summary.record import SummaryRecord, record_of

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
NIGHTS = {10_000: 50, 100_000: 100, 1_000_000: 250, 5_000_000: 365}  # both ways of growth
_NODES = 20  # workspaces that the results come from
_BATCH = 2000
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
        "execution_id": f"night-{night:03}-{method:05}",
        "execution_timestamp": _FIRST_S + night * _NIGHT_S + method,
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


def figures(method: int, night: int, nights: int) -> tuple[float, int]:
    """Return the wall time and the peak memory of a trial."""
    draw = random.Random(method * 1000 + night)  # noqa: S311
    slower = _STEP if method % _CHANGED_METHODS == 0 and 2 * night >= nights else 1.0
    return slower * draw.lognormvariate(0, _NOISE), round(5e7 * draw.lognormvariate(0, 0.002))


def fill(address: Address, made: Made) -> float:
    """Write the rows of a store; return the seconds of CPU time of this process."""
    begin_s = time.process_time()
    rows = _rows(made)
    with Database(address) as database:
        with database.writing() as connection:
            write_roots(connection, {_place(n): f"/nodes/{n:04}" for n in range(_NODES)})
        while part := dict(itertools.islice(rows, _BATCH)):
            with database.writing() as connection:
                write_batch(connection, Batch(good=part), keep_gone=True)
    return time.process_time() - begin_s


def _rows(made: Made) -> Iterator[tuple[FileKey, tuple[str, TrialRows]]]:
    """Yield what the recorder makes of `document`, night after night, ten times as fast."""
    first = [_recorded(made, method, 0) for method in range(made.methods)]
    for night in range(made.nights):
        shared = [_recorded(made, node, night) for node in range(min(_NODES, made.methods))]
        for method, (record, rows) in enumerate(first):
            wall_time, peak = figures(method, night, made.nights)
            own, like = document_names(method, night), shared[method % len(shared)][1]
            parts = (own["execution_id"], own["timestamp"], record.method, 1, record.hostname)
            uid = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
            trial = {
                **rows.trial,
                **own,
                "uid": uid,
                "run_id": like.trial["run_id"],
                "label": like.trial["label"],
            }
            values = {"wall_time": wall_time, "peak_rss_bytes": float(peak)}
            yield (
                FileKey(_place(method % _NODES), path_of(method, night)),
                (
                    "1:1:1",
                    TrialRows(
                        path=path_of(method, night),
                        uid=uid,
                        subject=rows.subject,
                        context=like.context,
                        trial=trial,
                        figures=[(metric, values[metric[0]]) for metric, _ in rows.figures],
                    ),
                ),
            )


def document_names(method: int, night: int) -> dict[str, Any]:
    return {
        "execution_id": f"night-{night:03}-{method:05}",
        "timestamp": _FIRST_S + night * _NIGHT_S + method,
    }


def path_of(method: int, night: int) -> str:
    """Return the path of a summary within its workspace."""
    return f"output/night-{night:03}-{method:05}/perfzero_summary.json"


def _place(node: int) -> str:
    return f"workspace:{node:032x}"


def _recorded(made: Made, method: int, night: int) -> tuple[SummaryRecord, TrialRows]:
    values = figures(method, night, made.nights)
    record = record_of(document(method, night, *values), Path(path_of(method, night)))
    return record, rows_of(record)
