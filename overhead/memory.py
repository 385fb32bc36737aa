"""Measure how true the reported memory is: processes that hold known amounts read their own."""

from __future__ import annotations

from typing import Any

from overhead.processes import MeasurementError, Settings, perfrun
from overhead.table import Goal, Row, Rule

CALIBRATION = "benchmarks.python.calibration.Calibration"
SHARING = {
    "sharing.Sharing.forked": "peak memory of the tree, 400 MB shared by fork, 4 x 50 MB own",
    "sharing.Sharing.shared_memory": "peak memory of the tree, 400 MB of shared memory in 5",
}
MEGABYTE = 1e6


def memory_rows(settings: Settings) -> list[Row]:
    """Measure 500 MB held for 0.2 s by the benchmark itself, and 400 MB for 0.5 s by its child."""
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
        *_sharing_rows(settings, trials),
    ]


def _sharing_rows(settings: Settings, trials: str) -> list[Row]:
    """Compare the PSS of trees that share memory with what their processes read of themselves."""
    run = perfrun(settings.scratch / "sharing", list(SHARING), trials)
    rows = []
    for method, what in SHARING.items():
        own = [s for s in run.summaries if s["benchmark_result"]["name"] == method]
        rows.append(
            Row(
                what=what,
                unit="MB",
                values=tuple(s["process_info"]["max_tree_pss"] / MEGABYTE for s in own),
                reference="the processes' own",
                references=tuple(_metric(s, "reference_bytes") / MEGABYTE for s in own),
                goal=Goal(rule=Rule.RATIO_WITHIN, limit=0.03),
            )
        )
    shares = [
        100 * s["perfrun"]["usage"]["observer_cpu_s"] / s["perfrun"]["usage"]["elapsed_s"]
        for s in run.summaries
    ]
    rows.append(
        Row(what="CPU of the sampler on these trees", unit="% of a core", values=tuple(shares))
    )
    return rows


def _both(summary: dict[str, Any]) -> float:
    """Return the child's peak plus the benchmark's, which does not rise while it waits."""
    own: float = summary["process_info"]["max_rss"]
    return own + _metric(summary, "child_peak_rss_bytes")


def _metric(summary: dict[str, Any], name: str) -> float:
    for metric in summary["benchmark_result"]["metrics"]:
        if metric["name"] == name:
            return float(metric["value"])
    raise MeasurementError(f"no {name}: this kernel does not tell a process its peak")
