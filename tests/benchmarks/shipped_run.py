"""Run one shipped benchmark method as a class of its own, without the harness.

The class is built as PerfZero builds it and reports into a `test_log` file, in the interpreter that
has its framework.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perfrun.worker.test_log import decode_entries

ROOT = Path(__file__).parents[2]

# argv: module, class, method, output folder, constructor keywords as JSON, benchmark flags
DRIVER = """
import importlib, json, os, sys
module, class_name, method, folder, keywords, *flags = sys.argv[1:]
found = getattr(importlib.import_module(module), class_name)
if flags:
    from absl import flags as absl_flags
    absl_flags.FLAGS([sys.argv[0], *flags])
keywords = json.loads(keywords)
getattr(found(output_dir=folder, root_data_dir="", tpu=None, **keywords), method)()
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method's only report, and the seconds of its process."""

    returncode: int
    stderr: str
    process_s: float
    entry: dict[str, Any]

    @property
    def metrics(self) -> dict[str, float]:
        return {metric["name"]: metric.get("value", 0.0) for metric in self.entry["metrics"]}

    @property
    def extras(self) -> dict[str, Any]:
        return {extra["name"]: extra["value"] for extra in self.entry["extras"]}

    def bounds(self, name: str) -> tuple[float | None, float | None]:
        metric = next(metric for metric in self.entry["metrics"] if metric["name"] == name)
        return metric.get("min_value"), metric.get("max_value")


RunMethod = Callable[..., Run]


def run_method(
    folder: Path,
    target: str,
    *flags: str,
    python: str = sys.executable,
    fails: bool = False,
    **keywords: object,
) -> Run:
    """Run `package.module.Class.method`; the report is read back from its file."""
    module, class_name, method = target.rsplit(".", 2)
    folder.mkdir(exist_ok=True)
    prefix = f"{folder}/proto_"
    names = [module, class_name, method, str(folder), json.dumps(keywords), *flags]
    started = time.perf_counter()
    done = subprocess.run(
        [python, "-c", DRIVER, *names],
        capture_output=True,
        text=True,
        env={
            "OMP_NUM_THREADS": "1",  # on a busy machine threads mostly wait for each other
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TEST_REPORT_FILE_PREFIX": prefix,
        },
    )
    process_s = time.perf_counter() - started
    assert fails or done.returncode == 0, done.stderr
    reports = sorted(folder.glob("proto_*"))
    assert [report.name for report in reports] == (
        [] if fails else [f"proto_{class_name}.{method}"]
    )
    entries = [entry for report in reports for entry in decode_entries(report.read_bytes())]
    assert len(entries) == len(reports)
    return Run(
        returncode=done.returncode,
        stderr=done.stderr,
        process_s=process_s,
        entry=entries[0] if entries else {},
    )


def assert_plausible(
    run: Run, *, examples_per_step: int, iterations: int, item: str = "example"
) -> None:
    """Assert what physics says about any report: wrong units or a lost factor fail."""
    entry, metrics = run.entry, run.metrics
    assert entry["iters"] == iterations
    assert entry["wall_time"] == metrics["latency_median_s"]
    assert entry["throughput"] == metrics[f"{item}s_per_second"]
    assert entry["wall_time"] * entry["throughput"] == pytest.approx(examples_per_step, rel=1e-9)
    assert 0 < metrics["latency_min_s"] <= metrics["latency_median_s"] <= metrics["latency_max_s"]
    assert ("latency_p99_s" in metrics) <= (iterations >= 299)
    assert metrics["first_call_s"] > 0
    # No step took less than the fastest, and all fit into the process's life.
    least_s = (
        metrics["first_call_s"]
        + metrics.get("warmup_s", 0.0)
        + metrics["latency_min_s"] * iterations
    )
    assert least_s < run.process_s
    assert 0 <= entry["cpu_time"] * iterations < run.process_s * (os.cpu_count() or 1)
