"""Summaries that nobody should have written: each field in turn, with each bad value."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.summaries import summary

HUGE = int("9" * 400)
DEEP: Any = []
for _ in range(900):
    DEEP = [DEEP]
VALUES: dict[str, Any] = {
    "null": None,
    "a number of 400 digits": HUGE,
    "minus that": -HUGE,
    "1e400": float("inf"),
    "NaN": float("nan"),
    "a text": "x",
    "a text of a megabyte": "x" * 2**20,
    "half of a surrogate pair": "\ud800",
    "a zero byte": "a\0b",
    "a list": [],
    "a list of lists": [[[]]],
    "a list of numbers": [HUGE, 1.5, True],
    "an object": {},
    "an object of bad values": {"name": HUGE, "value": "\ud800", "hash": HUGE, "url": []},
    "lists in each other": DEEP,
    "true": True,
    "0": 0,
    "-1": -1,
}
FIELDS = (
    "execution_id", "execution_timestamp", "benchmark_result", "benchmark_info", "setup_info",
    "ml_framework_info", "system_info", "process_info", "perfrun",
    "benchmark_result.name", "benchmark_result.wall_time", "benchmark_result.succeeded",
    "benchmark_result.extras", "benchmark_result.metrics", "benchmark_result.trial_id",
    "benchmark_result.metrics.0.name", "benchmark_result.metrics.0.value",
    "benchmark_result.extras.0.value",
    "benchmark_info.execution_label", "benchmark_info.flags",
    "benchmark_info.flags.perfzero_constructor_args", "benchmark_info.site_package_info",
    "benchmark_info.site_package_info.models", "benchmark_info.site_package_info.models.hash",
    "benchmark_info.env_vars", "benchmark_info.harness_info", "benchmark_info.has_exception",
    "ml_framework_info.name", "system_info.cpu_model", "system_info.hostname",
    "system_info.accelerator_count", "system_info.logical_cpu_count", "process_info.max_rss",
    "perfrun.schema_version", "perfrun.run_id", "perfrun.argv", "perfrun.benchmark_flags",
    "perfrun.benchmark_flags.0", "perfrun.env", "perfrun.order", "perfrun.outcome",
    "perfrun.outcome.status", "perfrun.outcome.reason", "perfrun.reports", "perfrun.reports.0",
    "perfrun.reports.0.name", "perfrun.reports.0.throughput", "perfrun.reports.0.metrics",
    "perfrun.series", "perfrun.series.0", "perfrun.series.0.report", "perfrun.series.0.metrics",
    "perfrun.series.0.metrics.latency_median_s", "perfrun.series.0.items_per_step",
    "perfrun.quality", "perfrun.quality.grade", "perfrun.quality.disturbed",
    "perfrun.module_sha256", "perfrun.benchmark_version",
    "perfrun.machine", "perfrun.machine.memory_bytes",
    "perfrun.environment", "perfrun.environment.python", "perfrun.environment.python.version",
    "perfrun.environment.distributions", "perfrun.environment.distributions.numpy",
    "perfrun.git", "perfrun.git.0", "perfrun.git.0.directory", "perfrun.git.0.git_hash",
    "perfrun.git.0.url", "perfrun.container", "perfrun.container.image",
    "perfrun.container.repo_digests", "perfrun.container.limits", "perfrun.allocator",
    "perfrun.allocator.asked", "perfrun.imported",
)  # fmt: skip


def whole(number: int = 0) -> dict[str, Any]:
    """A good summary with every part that is read."""
    document = summary(
        name=f"2026-11-21-10-00-00-{number:06}",
        timestamp=1795255200.0 + number * 3600,
        metrics={"loss": 1.0},
        commits={"models": "a" * 40},
        benchmark_flags=["--batch_size=8"],
        label="nightly",
    )
    document["benchmark_result"]["extras"] = [{"name": "note", "value": "x"}]
    document["benchmark_info"]["env_vars"] = {"PERFZERO_X": "1"}
    document["perfrun"] |= {
        "argv": ["x"],
        "env": {"A": "1"},
        "order": {},
        "reports": [{"name": "Cases.spin", "wall_time": 1.0, "throughput": 2.0, "metrics": []}],
        "series": [{"name": "s", "report": None, "metrics": {"latency_median_s": {"value": 1.0}}}],
        "git": [{"directory": "models", "url": "file:///x", "git_hash": "a" * 40}],
        "container": {"image": "x:1", "image_id": "sha256:1", "repo_digests": [], "limits": {}},
        "allocator": {"asked": "default"},
        "imported": {},
    }
    return document


def with_value(field: str, value: Any, number: int = 0) -> dict[str, Any]:
    """A summary with one value replaced."""
    document = copy.deepcopy(whole(number))
    part: Any = document
    *above, last = field.split(".")
    for name in above:
        part = part[int(name)] if isinstance(part, list) else part.setdefault(name, {})
    if isinstance(part, list):
        part[int(last)] = value
    else:
        part[last] = value
    return document


def text_of(document: Any) -> str:
    """JSON as a careless writer writes it: infinities, and any number of digits."""
    return json.dumps(document)
