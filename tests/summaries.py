"""Summaries made for a test, written where perfrun would have written them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def summary(
    *,
    method: str = "pkg.cases.Cases.spin",
    wall_time: float = 1.0,
    metrics: Mapping[str, float] | None = None,
    name: str = "2026-11-21-10-00-00-000000",
    timestamp: float = 1795255200.0,
    status: str = "passed",
    disturbed: bool = False,
    label: str | None = None,
    run_id: str = "20261121-100000-000000-abcdef",
    distributions: Mapping[str, str] | None = None,
    commits: Mapping[str, str] | None = None,
    benchmark_flags: Sequence[str] = (),
    machine: Mapping[str, Any] | None = None,
    system: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    max_rss: int = 50 * 2**20,
    module_sha256: str = "a" * 64,
    version: str | None = None,
) -> dict[str, Any]:
    """The document of one trial: what comparing reads of it."""
    ran = status in ("passed", "out_of_bounds")
    return {
        "execution_id": name,
        "execution_timestamp": timestamp,
        "benchmark_result": {
            "name": method,
            "wall_time": wall_time if ran else -1,
            "succeeded": status == "passed",
            "extras": [],
            "metrics": [{"name": k, "value": v} for k, v in (metrics or {}).items()],
            "trial_id": 1,
        },
        "benchmark_info": {
            "harness_name": "perfrun",
            "harness_info": {},
            "has_exception": not ran,
            **({"execution_label": label} if label else {}),
            "flags": dict(flags or {}),
            "site_package_info": {
                k: {"url": "", "branch": "main", "hash": v} for k, v in (commits or {}).items()
            },
        },
        "setup_info": {},
        "ml_framework_info": {"name": "none", "version": None, "build_version": None},
        "system_info": {
            "cpu_model": "AMD EPYC",
            "physical_cpu_count": 2,
            "logical_cpu_count": 2,
            "hostname": "here",
            **(system or {}),
        },
        "process_info": {"max_rss": max_rss},
        "perfrun": {
            "schema_version": 2,
            "version": "0.1.0",
            "run_id": run_id,
            "benchmark_flags": list(benchmark_flags),
            "outcome": {"status": status},
            "reports": [],
            "series": [],
            "quality": {"disturbed": disturbed, "grade": "C" if disturbed else "A"},
            "module_sha256": module_sha256,
            "benchmark_version": version,
            "machine": {"memory_bytes": 25276510208, "kernel": "6.18", **(machine or {})},
            "environment": {
                "python": {"version": "3.11.2", "implementation": "cpython", "build": "x"},
                "distributions": dict({"numpy": "2.2"} if distributions is None else distributions),
            },
            "git": [],
            "container": None,
        },
    }


def write(output: Path, *documents: Mapping[str, Any]) -> Path:
    """Put each into a folder of its own below `output`, which is returned."""
    for number, document in enumerate(documents):
        folder = output / f"{document['execution_id']}-{number}"
        folder.mkdir(parents=True)
        (folder / "perfzero_summary.json").write_text(json.dumps(document), encoding="utf-8")
    return output


def trials(times: Sequence[float], **facts: Any) -> list[dict[str, Any]]:
    """One summary a time."""
    return [summary(wall_time=time, **facts) for time in times]
