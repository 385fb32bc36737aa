"""The chosen trials as other tools see them: one result a method, its times, facts of the machine.

A format with processes gets each trial with its samples. For one without, the times of a method are
the samples of its only trial; of several trials they are the trials' wall times, since samples of
different processes are no sample of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfrun.errors import UsageError
from perfrun.exchange.foreign import Commit, Figure, Machine, short_text, whole
from perfrun.summary.metrics import PEAK_RSS, WALL_TIME, MetricValue
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import is_number, objects, section
from perfrun.summary.series_times import median_interval_of, steady_times
from perfrun.worker.measure.statistics import median, median_interval


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of one method, over all trials or of one of them."""

    name: str
    timestamp: float
    median_s: float | None  # wall time; None when there is none
    times_s: tuple[float, ...]  # seconds a step; empty without a wall time
    steps: int | None = None  # in each time
    interval_s: tuple[float, float] | None = None  # 95 % confidence interval of the median
    cpu_s: float | None = None  # a step
    figures: tuple[Figure, ...] = ()
    peak_rss_bytes: int | None = None
    machine: Machine = field(default_factory=Machine)
    commit: Commit | None = None
    source: str = ""
    environment: str = ""
    trials: tuple[Exported, ...] = ()


def exported(records: Iterable[SummaryRecord], checkout: str | None) -> list[Exported]:
    """Return one result a method, in the order of names. Raises UsageError.

    `checkout` names the one whose commit counts; without it, there must be one alone.
    """
    groups: dict[str, dict[Any, list[SummaryRecord]]] = {}
    for record in sorted(records, key=lambda one: (one.timestamp, one.execution_id)):
        if record.ran:
            groups.setdefault(record.method, {}).setdefault(record.subject, []).append(record)
    found = []
    for method, subjects in sorted(groups.items()):
        for subject, trials in subjects.items():
            # One name for two series would be one result; the settings say what differs.
            several = len(subjects) > 1
            name = f"{method} [{subject.settings or subject.environment}]" if several else method
            found.append(_of_trials([_of_trial(one, name, checkout) for one in trials]))
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(
            f"{twice}: the results are of several machines or sources; choose one kind of them"
        )
    return found


def _of_trials(trials: Sequence[Exported]) -> Exported:
    first = trials[0]
    if len(trials) == 1:
        return replace(first, trials=(first,))
    medians = [one.median_s for one in trials if one.median_s is not None]
    interval = median_interval(sorted(medians)) if medians else None
    cpu = [one.cpu_s for one in trials if one.cpu_s is not None]
    return replace(
        first,
        median_s=median(medians) if medians else None,
        times_s=tuple(medians),
        interval_s=None if interval is None else (interval.low, interval.high),
        cpu_s=median(cpu) if cpu else None,
        figures=_medians([one.figures for one in trials]),
        trials=tuple(trials),
    )


def _medians(each: Sequence[Sequence[Figure]]) -> tuple[Figure, ...]:
    values: dict[str, list[float]] = {}
    for figures in each:
        for figure in figures:
            values.setdefault(figure.name, []).append(figure.value)
    return tuple(
        replace(figure, value=median(values[figure.name]))
        for figure in each[0]
        if len(values[figure.name]) == len(each)
    )


def _of_trial(record: SummaryRecord, name: str, checkout: str | None) -> Exported:
    wall_time = record.values.get(WALL_TIME)
    series = _series(record, wall_time)
    peak = record.values.get(PEAK_RSS)
    return Exported(
        name=name,
        timestamp=record.timestamp,
        median_s=wall_time,
        times_s=steady_times(series) or (() if wall_time is None else (wall_time,)),
        steps=whole(series.get("block_size")),
        interval_s=median_interval_of(series),
        cpu_s=_cpu_s(series),
        figures=_figures(record.metrics),
        peak_rss_bytes=None if peak is None else int(peak),
        machine=_machine(record),
        commit=_commit(record, checkout),
        source=record.subject.source,
        environment=_environment(record),
    )


def _environment(record: SummaryRecord) -> str:
    """Return the environment's name; of asv's results, the one that asv gave it."""
    own = section(record.document, "perfrun")
    flags = own.get("benchmark_flags")
    if section(own, "imported").get("format") == "asv" and isinstance(flags, list) and flags:
        return short_text(flags[0]).removeprefix("--environment=")
    return record.subject.environment


def _series(record: SummaryRecord, wall_time: float | None) -> Mapping[str, Any]:
    """Return the series whose median is the wall time; an empty one without."""
    for one in objects(section(record.document, "perfrun").get("series")):
        if wall_time is not None and section(one, "statistics").get("median_s") == wall_time:
            return one
    return {}


def _cpu_s(series: Mapping[str, Any]) -> float | None:
    value = series.get("cpu_s")
    return float(value) if is_number(value) and value > 0 else None


def _figures(metrics: Mapping[str, MetricValue]) -> tuple[Figure, ...]:
    return tuple(
        Figure(name=name, value=one.value, unit=one.unit, direction=one.direction)
        for name, one in metrics.items()
        if name != WALL_TIME and (not one.derived_from or one.direction == "higher")
    )


def _machine(record: SummaryRecord) -> Machine:
    system, own = section(record.document, "system_info"), section(record.document, "perfrun")
    machine = section(own, "machine")
    python = section(section(own, "environment"), "python")
    return Machine(
        hostname=record.hostname,
        cpu_model=short_text(system.get("cpu_model")),
        platform=short_text(system.get("platform_name")),
        kernel=short_text(machine.get("kernel")),
        logical_cpus=whole(system.get("logical_cpu_count")),
        memory_bytes=whole(machine.get("memory_bytes")),
        python=short_text(python.get("version")),
        implementation=short_text(python.get("implementation")),
    )


def _commit(record: SummaryRecord, checkout: str | None) -> Commit | None:
    commits = record.commits
    if checkout is None:
        names = list(commits) if len(commits) == 1 else []
    else:
        names = [checkout] if checkout in commits else []
    if not names:
        return None
    for one in objects(section(record.document, "perfrun").get("git")):
        if one.get("directory") == names[0]:
            dirty = one.get("dirty")
            return Commit(
                project=names[0],
                git_hash=commits[names[0]],
                branch=short_text(one.get("branch")),
                is_dirty=dirty if isinstance(dirty, bool) else None,
            )
    return Commit(project=names[0], git_hash=commits[names[0]])
