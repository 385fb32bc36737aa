"""Reported memory against the kernel's own high-water mark, read by the process itself."""

from __future__ import annotations

from typing import Any

from bench.processes import BenchError, perfrun
from bench.settings import Settings
from bench.table import Goal, Row, Rule

CALIBRATION = "benchmarks.python.calibration.Calibration"
MEGABYTE = 1e6


def memory_rows(settings: Settings) -> list[Row]:
    """500 MB held for 0.2 s by the benchmark itself; 400 MB for 0.5 s by its child."""
    trials = f"--benchmark_num_trials={settings.rounds}"
    run = perfrun(
        settings.scratch / "memory",
        [f"{CALIBRATION}.allocate", f"{CALIBRATION}.child_allocation"],
        trials,
    )
    own = [s for s in run.summaries if s["benchmark_result"]["name"].endswith(".allocate")]
    with_child = [s for s in run.summaries if s not in own]
    return [
        Row(
            what="peak memory, 500 MB held 0.2 s",
            unit="MB",
            values=tuple(s["process_info"]["max_rss"] / MEGABYTE for s in own),
            reference="VmHWM",
            references=tuple(_metric(s, "peak_rss_bytes") / MEGABYTE for s in own),
            goal=Goal(rule=Rule.RATIO_WITHIN, limit=0.01),
        ),
        Row(
            what="peak memory of the tree, 400 MB in a child",
            unit="MB",
            values=tuple(s["process_info"]["max_tree_rss"] / MEGABYTE for s in with_child),
            reference="VmHWM of both",
            references=tuple(_both(s) / MEGABYTE for s in with_child),
            goal=Goal(rule=Rule.RATIO_WITHIN, limit=0.03),
        ),
    ]


def _both(summary: dict[str, Any]) -> float:
    """The child's mark, and the benchmark's, which does not move while it waits."""
    own: float = summary["process_info"]["max_rss"]
    return own + _metric(summary, "child_peak_rss_bytes")


def _metric(summary: dict[str, Any], name: str) -> float:
    for metric in summary["benchmark_result"]["metrics"]:
        if metric["name"] == name:
            return float(metric["value"])
    raise BenchError(f"no {name}: this kernel does not tell a process its peak")
