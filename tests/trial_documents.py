"""Summaries made for a test: those of perfrun, and those of PerfZero."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NIGHT_S = 24 * 3600.0
BEGIN_S = 1_780_000_000.0


def perfzero_summary(number: int = 1, **values: Any) -> dict[str, Any]:
    """What PerfZero writes: the keys and the order of its files."""
    given = {"name": "pkg.mod.Cases.ok", "wall_time": 1.5, "metrics": [], "extras": [], **values}
    return {
        "execution_id": f"2026-06-01-00-00-00-{number:06}",
        "execution_timestamp": BEGIN_S + number * NIGHT_S,
        "benchmark_result": {
            "name": given["name"],
            "wall_time": given["wall_time"],
            "succeeded": True,
            "extras": given["extras"],
            "metrics": given["metrics"],
            "trial_id": 1,
        },
        "benchmark_info": {
            "harness_name": "perfzero",
            "harness_info": {},
            "has_exception": False,
            "flags": {"perfzero_constructor_args": ""},
            "site_package_info": {
                "models": {"url": "file:///r", "branch": "main", "hash": f"{number:040x}"}
            },
        },
        "setup_info": {},
        "ml_framework_info": {
            "name": "tensorflow",
            "version": "2.21.0",
            "build_version": "v2.21.0",
        },
        "system_info": {
            "cpu_model": "A Processor",
            "physical_cpu_count": 4,
            "logical_cpu_count": 8,
            "cpu_socket_count": 1,
            "hostname": "vm",
        },
        "process_info": {"max_rss": 1000, "max_vms": 2000, "max_cpu_percent": 99.0},
    }


def perfrun_summary(number: int = 1, **values: Any) -> dict[str, Any]:
    """What perfrun adds, as far as the index reads it; `own` overrides parts of that."""
    own = values.pop("own", {})
    document = perfzero_summary(number, **values)
    document["benchmark_info"]["harness_name"] = "perfrun"
    document["perfrun"] = {
        "schema_version": 2,
        "version": "0.1.0",
        "run_id": f"run-{number}",
        "benchmark_flags": [],
        "outcome": {"status": "passed"},
        "reports": [],
        "series": [],
        "quality": {"grade": "A", "disturbed": False, "findings": []},
        "module_sha256": "5" * 64,
        "git": [],
        "container": None,
        "machine": {
            "usable_cpu_count": 8,
            "memory_bytes": 16_500_000_000,
            "cgroup_cpu_limit": None,
            "cgroup_memory_limit_bytes": None,
        },
        "environment": {
            "python": {"version": "3.11.7", "build": "main", "prefix": "/envs/tf"},
            "distributions": {"tensorflow": "2.21.0", "numpy": "2.4.6"},
            "direct_url_commits": {},
        },
        **own,
    }
    return document


def write_summary(output: Path, document: Mapping[str, Any]) -> Path:
    """Write a summary where it belongs below an output folder."""
    path = output / str(document["execution_id"]) / "perfzero_summary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name("aside")
    aside.write_text(json.dumps(document, indent=2), encoding="utf-8")
    aside.replace(path)
    return path


def write_nights(output: Path, count: int, **values: Any) -> list[Path]:
    """One trial a night."""
    return [
        write_summary(output, perfrun_summary(number, **values)) for number in range(1, count + 1)
    ]
