"""The three JSON documents that PerfZero prints when a run ends, for programs that read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.summary.document import TrialResult
from perfrun.summary.estimates import RunResult

# PerfZero's operations, in its order; perfrun activates no Google Cloud service.
OPERATIONS = ("activate_gcloud_service", "download_data", "checkout_repository")


def closing_prints(result: RunResult) -> str:
    """Return the three documents with PerfZero's headings, keys, order and layout."""
    spent_s = {name: result.setup_s.get(name, 0.0) for name in OPERATIONS}
    times = {**spent_s, **_by_trial(result.trials, _times)}
    succeeded = _by_trial(result.trials, lambda trial: trial.status == "passed")
    folders = _by_trial(result.trials, lambda trial: str(Path(trial.summary).absolute().parent))
    return (
        f"Benchmark execution time in seconds by operation:\n {_indented(times)}\n"
        f"Benchmark success results:\n{_indented(succeeded)}\n"
        f"Benchmark local output directories:\n{_indented(folders)}\n"
    )


def _by_trial(
    trials: Sequence[TrialResult], fact: Callable[[TrialResult], Any]
) -> dict[str, dict[str, Any]]:
    """Return trial -> method -> fact; of a method that was asked for twice, the last one's."""
    found: dict[str, dict[str, Any]] = {}
    for trial in trials:
        found.setdefault(f"trial_{trial.trial_id}", {})[trial.name] = fact(trial)
    return found


def _times(trial: TrialResult) -> dict[str, float]:
    """Return PerfZero's parts of a trial; a phase that was not reached took no time."""
    own = trial.document["perfrun"]
    phases: Mapping[str, Mapping[str, float]] = own["phases"]
    elapsed_s = own["usage"]["elapsed_s"] or 0.0
    method_s = phases.get("method", {}).get("wall_s")
    if method_s is None:  # it has not ended: killed in the method, or not that far
        before_s = sum(phase.get("wall_s") or 0.0 for phase in phases.values())
        method_s = elapsed_s - before_s if own["outcome"]["phase"] == "method" else 0.0
    return {
        "class_initialization": max(0.0, elapsed_s - method_s),
        "method_execution": method_s,
        "log_upload": trial.closing_s or 0.0,
    }


def _indented(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2)
