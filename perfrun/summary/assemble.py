"""Build `perfzero_summary.json`: PerfZero's keys, order and types, then the key `perfrun`.

It takes values and returns a document. docs/reference/results.md explains every field; the
reference is PerfZero's code at its last commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfrun import __version__
from perfrun.dataclass import asdict, dataclass, field
from perfrun.options.plan import RunPlan
from perfrun.probes.machine import Machine
from perfrun.schema import short
from perfrun.summary.cpu import MeasuredSections, process_info
from perfrun.summary.document import SCHEMA_VERSION, Environment, Metric, Order, Outcome, Report
from perfrun.summary.quality import Quality
from perfrun.text import redacted

HARNESS_NAME = "perfrun"
_MOST_NAMED = 20  # of the metrics that miss their bounds
_LONGEST_NAME = 100  # characters, in a reason


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """The facts that only one trial has."""

    name: str
    trial_id: int
    execution_id: str
    timestamp: float  # seconds since the epoch, just before the method began
    outcome: Outcome
    measured: MeasuredSections
    reports: tuple[Report, ...] = ()
    unsaved_reports: tuple[Mapping[str, Any], ...] = ()
    series: tuple[Mapping[str, Any], ...] = ()  # one for each call of `Benchmark.measure`
    phases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    framework: Mapping[str, Any] | None = None
    frameworks: tuple[Mapping[str, Any], ...] = ()
    allocator: Mapping[str, Any] = field(default_factory=dict)  # `trial_allocator`'s
    module_file: str | None = None
    module_sha256: str | None = None
    benchmark_version: str | None = None  # that the author gave the class
    notes: tuple[str, ...] = ()
    order: Order = field(default_factory=Order)
    profiles: tuple[Mapping[str, Any], ...] = ()  # recorded in this trial
    container: Mapping[str, Any] | None = None  # of this trial; see RunFacts
    quality: Quality | None = None  # None when nothing was watched


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The facts that all trials of a run share."""

    plan: RunPlan
    run_id: str
    machine: Machine
    environment: Environment
    harness_info: Mapping[str, str]
    env_vars: Mapping[str, str]
    setup_info: Mapping[str, Any]
    checkouts: tuple[Mapping[str, Any], ...] = ()
    data: tuple[Mapping[str, Any], ...] = ()
    container: Mapping[str, Any] | None = None  # image, engine and limits; None outside containers
    setup_s: Mapping[str, float] = field(default_factory=dict)  # what came before the trials


def build_summary(run: RunFacts, trial: TrialFacts) -> dict[str, Any]:
    """Return the document of one trial, without secrets."""
    document: dict[str, Any] = redacted(_document(run, trial))
    return document


def _document(run: RunFacts, trial: TrialFacts) -> dict[str, Any]:
    return {
        "execution_id": trial.execution_id,
        "execution_timestamp": trial.timestamp,
        "benchmark_result": _benchmark_result(trial),
        "benchmark_info": _benchmark_info(run, trial),
        "setup_info": dict(run.setup_info),
        "ml_framework_info": _ml_framework_info(run, trial),
        "system_info": _system_info(run),
        "process_info": process_info(trial.measured),
        "perfrun": _perfrun(run, trial),
    }


def _benchmark_result(trial: TrialFacts) -> dict[str, Any]:
    """Return the first report, or PerfZero's `wall_time: -1` without one or without its end."""
    report = trial.reports[0] if trial.reports and trial.outcome.status.ran else None
    return {
        "name": trial.name,
        "wall_time": report.wall_time if report else -1,
        "succeeded": trial.outcome.status == "passed",
        "extras": [dict(extra) for extra in report.extras] if report else [],
        "metrics": [_perfzero_metric(metric) for metric in report.metrics] if report else [],
        "trial_id": trial.trial_id,
    }


def _perfzero_metric(metric: Metric) -> dict[str, Any]:
    """Return protobuf's JSON: the written fields in field order, then those left at zero."""
    values = {
        "name": metric.name,
        "value": metric.value,
        "min_value": metric.min_value,
        "max_value": metric.max_value,
    }
    order = [*metric.keys, *(key for key in ("name", "value") if key not in metric.keys)]
    return {key: values[key] for key in order}


def _benchmark_info(run: RunFacts, trial: TrialFacts) -> dict[str, Any]:
    info: dict[str, Any] = {
        "harness_name": HARNESS_NAME,
        "harness_info": dict(run.harness_info),
        "has_exception": not trial.outcome.status.ran,
    }
    if run.plan.execution_label:
        info["execution_label"] = run.plan.execution_label
    if run.env_vars:
        info["env_vars"] = dict(run.env_vars)
    info["flags"] = dict(run.plan.flags)
    info["site_package_info"] = {
        checkout["directory"]: _git_info(checkout) for checkout in run.checkouts
    }
    return info


def _git_info(checkout: Mapping[str, Any]) -> dict[str, str]:
    """Return PerfZero's three facts; nothing for a folder that is no checkout."""
    if not checkout["git_hash"]:
        return {}
    return {
        "url": checkout["url"],
        "branch": checkout["branch"],
        "hash": checkout["git_hash"],
    }


def _ml_framework_info(run: RunFacts, trial: TrialFacts) -> dict[str, Any]:
    framework = trial.framework or {"name": "none", "version": None, "build_version": None}
    info = {key: framework.get(key) for key in ("name", "version", "build_version")}
    if run.plan.ml_framework_build_label:
        info["build_label"] = run.plan.ml_framework_build_label
    return info


def _system_info(run: RunFacts) -> dict[str, Any]:
    info: dict[str, Any] = {}
    if run.plan.platform_name:
        info["platform_name"] = run.plan.platform_name
    if run.plan.system_name:
        info["system_name"] = run.plan.system_name
    devices = run.machine.accelerators
    if devices:
        info["accelerator_driver_version"] = devices.driver_version
        info["accelerator_model"] = devices.model
        info["accelerator_count"] = devices.count
    info["cpu_model"] = run.machine.cpu_model
    info["physical_cpu_count"] = run.machine.physical_cpu_count
    info["logical_cpu_count"] = run.machine.logical_cpu_count
    info["cpu_socket_count"] = run.machine.cpu_socket_count
    info["hostname"] = run.machine.hostname
    return info


def _perfrun(run: RunFacts, trial: TrialFacts) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "run_id": run.run_id,
        "argv": list(run.plan.argv),
        "benchmark_flags": list(run.plan.benchmark_flags),
        "env": dict(run.plan.env),
        "order": asdict(trial.order),
        "outcome": asdict(trial.outcome),
        "phases": {name: dict(phase) for name, phase in trial.phases.items()},
        "reports": [_report(report) for report in trial.reports],
        "unsaved_reports": [dict(report) for report in trial.unsaved_reports],
        "series": [dict(series) for series in trial.series],
        **asdict(trial.measured),
        "allocator": dict(trial.allocator),
        "module_file": trial.module_file,
        "module_sha256": trial.module_sha256,
        "benchmark_version": trial.benchmark_version,
        "frameworks": [dict(framework) for framework in trial.frameworks],
        "profiles": [dict(profile) for profile in trial.profiles],
        "notes": list(trial.notes),
        "quality": asdict(trial.quality) if trial.quality else None,
        "git": [dict(checkout) for checkout in run.checkouts],
        "data": [dict(item) for item in run.data],
        "container": None
        if run.container is None
        else {**run.container, **(trial.container or {})},
        "machine": asdict(run.machine),
        "environment": asdict(run.environment),
        "uploads": [],
    }


def _report(report: Report) -> dict[str, Any]:
    whole = asdict(report)
    whole["extras"] = [dict(extra) for extra in report.extras]
    whole["metrics"] = [
        {
            "name": metric.name,
            "value": metric.value,
            "min_value": metric.min_value,
            "max_value": metric.max_value,
            "in_bounds": metric.in_bounds,
        }
        for metric in report.metrics
    ]
    return whole


def out_of_bounds(reports: Sequence[Report]) -> str | None:
    """Name the metrics that miss their bounds, in one line; return None when all meet them."""
    missed = [
        f"{short(metric.name, _LONGEST_NAME)} = {metric.value:g} is not in "
        f"[{_bound(metric.min_value, '-inf')}, {_bound(metric.max_value, 'inf')}]"
        for report in reports
        for metric in report.metrics
        if not metric.in_bounds
    ]
    if len(missed) > _MOST_NAMED:
        missed[_MOST_NAMED:] = [f"and {len(missed) - _MOST_NAMED} more"]
    return "; ".join(missed) or None


def _bound(value: float | None, unset: str) -> str:
    return unset if value is None else f"{value:g}"
