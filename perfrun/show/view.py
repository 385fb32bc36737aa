"""The facts about a trial that `perfrun show` shows, taken from its record as values.

A summary may come from anywhere: what is of another type than perfrun writes counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfrun.show.histogram import Bin, histogram
from perfrun.summary.metrics import FIRST_CALL, MEDIAN, PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import is_number, objects, section, text
from perfrun.summary.series_times import intervals, series_of_wall_time, steady_times

_MOST_TEXT = 600  # characters of a fact
_MOST_ITEMS = 100  # of a list
# Of the derived metrics, those that people compare.
_DERIVED = ("latency_p90_s", "latency_p99_s", "device_time_median_s", "throughput")
_FIRST = (WALL_TIME, THROUGHPUT, MEDIAN, FIRST_CALL, "latency_p90_s", "latency_p99_s")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A metric of the trial. The interval is that of a median within the trial, at 95 %."""

    name: str
    value: float
    unit: str
    direction: str  # the better one: lower, higher or none
    is_primary: bool
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The timed part of the series that is shown."""

    name: str
    intervals: int  # that were timed
    steps_each: int  # steps in one interval
    steady: str  # flat, warmup, ...; '' when unknown
    times: int  # that the histogram is of
    bins: tuple[Bin, ...]
    few_s: tuple[float, ...]  # the times themselves where there is no histogram
    others: tuple[str, ...]  # names of the trial's other series


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A finding that lessens the trust in the figures."""

    severity: str
    text: str
    mend: str


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """All that one screen shows of a trial, except how to run it again."""

    method: str
    execution_id: str
    run_id: str
    trial_id: int
    timestamp: float
    label: str
    summary: str
    outcome: str
    reason: str
    error: tuple[str, ...]  # the last lines that explain a failure
    grade: str
    disturbed: bool
    doubts: tuple[Doubt, ...]
    remarks: int  # findings that cost nothing
    figures: tuple[Figure, ...]
    more_figures: int
    steps: Steps | None
    memory: tuple[tuple[str, float], ...]  # name, bytes
    phases: tuple[tuple[str, float], ...]  # name, seconds
    method_parts: tuple[tuple[str, float, int], ...]  # of the method: name, seconds, steps
    versions: tuple[tuple[str, str], ...]
    machine: tuple[str, ...]
    commits: tuple[str, ...]
    container: str
    settings: str


def view(record: SummaryRecord) -> TrialView:
    """Return the facts about a trial."""
    document = record.document
    own = section(document, "perfrun")
    chosen, others = _chosen_series(record, own)
    figures = _figures(record)
    return TrialView(
        method=record.method,
        execution_id=record.execution_id,
        run_id=record.run_id,
        trial_id=record.trial_id,
        timestamp=record.timestamp,
        label=record.label,
        summary=str(record.path) if record.path.name else "",
        outcome=record.status.value,
        reason=_short(record.reason),
        error=_error(own, ran=record.ran),
        grade=record.grade,
        disturbed=record.disturbed,
        doubts=tuple(_doubts(own)),
        remarks=sum(one.get("severity") == "info" for one in _findings(own)),
        figures=figures,
        more_figures=len(record.metrics) - len(figures) - (PEAK_RSS in record.metrics),
        steps=None if chosen is None else _steps(chosen, others),
        memory=tuple(_memory(document, own)),
        phases=tuple(_phases(own)),
        method_parts=tuple(_method_parts(chosen or {})),
        versions=tuple(_versions(document, own)),
        machine=tuple(_machine(document, own)),
        commits=tuple(_commits(record, own)),
        container=_container(document, own),
        settings=_short(record.subject.settings),
    )


def _short(value: Any) -> str:
    return text(value)[:_MOST_TEXT] if isinstance(value, str | int | float) else ""


def _chosen_series(
    record: SummaryRecord, own: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Return the series whose median is the wall time, else the first, and the others' names."""
    series = objects(own.get("series"))[:_MOST_ITEMS]
    chosen = series_of_wall_time(series, record.values.get(WALL_TIME))
    return chosen, [_short(one.get("name")) for one in series if one is not chosen]


def _figures(record: SummaryRecord) -> tuple[Figure, ...]:
    """Return the primary metrics, and of the derived ones those that people compare."""
    within = intervals(record.document, record.metrics)
    found = []
    for name, metric in record.metrics.items():
        last = name.rpartition("/")[2]
        is_rate = metric.direction == "higher" and not last.endswith(("_per_device", "_std"))
        if name == PEAK_RSS or (metric.derived_from and not (last in _DERIVED or is_rate)):
            continue
        low, high = within.get(name, (None, None))
        found.append(
            Figure(
                name=name,
                value=metric.value,
                unit=metric.unit,
                direction=metric.direction,
                is_primary=not metric.derived_from,
                low=low,
                high=high,
            )
        )
    # One figure under two names is shown once: `wall_time` and `latency_median_s`. Of a rate the
    # name that tells of what it is, `images_per_second`.
    different: dict[tuple[float, str], Figure] = {}
    for one in sorted(found, key=_place):
        first = different.setdefault((one.value, one.direction), one)
        if first.name.endswith(THROUGHPUT) and one.name.endswith("_per_second"):
            different[one.value, one.direction] = replace(one, is_primary=first.is_primary)
    return tuple(different.values())


def _place(figure: Figure) -> tuple[bool, int]:
    """Return what figures are sorted by: primary ones first, the best known of them before all."""
    last = figure.name.rpartition("/")[2]
    return not figure.is_primary, _FIRST.index(last) if last in _FIRST else len(_FIRST)


def _steps(series: Mapping[str, Any], others: Sequence[str]) -> Steps | None:
    times = steady_times(series)
    if not times:
        return None
    bins = histogram(times)
    each, timed = series.get("block_size"), series.get("iterations")
    return Steps(
        name=_short(series.get("name")),
        intervals=timed if isinstance(timed, int) else len(times),
        steps_each=each if isinstance(each, int) and each > 0 else 1,
        steady=_short(section(series, "steadiness").get("kind")),
        times=len(times),
        bins=bins,
        few_s=() if bins else times if len(set(times)) > 1 else times[:1],
        others=tuple(others),
    )


def _findings(own: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return objects(section(own, "quality").get("findings"))[:_MOST_ITEMS]


def _doubts(own: Mapping[str, Any]) -> Iterator[Doubt]:
    """Yield the findings that cost points, disturbances first, each code once."""
    found: dict[str, Doubt] = {}
    for one in sorted(_findings(own), key=lambda one: one.get("severity") != "disturbed"):
        severity = _short(one.get("severity"))
        if severity != "info":
            doubt = Doubt(
                severity=severity, text=_short(one.get("text")), mend=_short(one.get("mend"))
            )
            found.setdefault(_short(one.get("code")), doubt)
    yield from found.values()


def _error(own: Mapping[str, Any], *, ran: bool) -> tuple[str, ...]:
    """Return the last lines of the exception, or of what the worker wrote to its standard error."""
    outcome = section(own, "outcome")
    if ran:
        return ()
    said = text(section(outcome, "exception").get("traceback")) or text(outcome.get("stderr_tail"))
    lines = [line.strip() for line in said[-4000:].splitlines() if line.strip()]
    return tuple(line[:_MOST_TEXT] for line in lines[-3:])


def _memory(document: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    memory = section(own, "memory")
    peak = section(document, "process_info").get("max_rss")
    known = [
        ("peak", peak),
        ("after imports", section(memory, "import_rss").get("bytes")),
        ("with its processes", section(memory, "tree_pss").get("bytes")),
        ("control group", section(section(memory, "cgroup"), "peak").get("bytes")),
    ]
    for name, size in known:
        if is_number(size) and size > 0:
            yield name, float(size)
    for one in objects(memory.get("device"))[:4]:
        size = one.get("allocated_bytes") or one.get("used_bytes")
        if is_number(size) and size > 0:
            yield f"device {_short(one.get('index'))}".strip(), float(size)


def _phases(own: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    phases = section(own, "phases")
    for name, shown in (("import", "import"), ("construct", "setup"), ("method", "method")):
        seconds = section(phases, name).get("wall_s")
        if is_number(seconds) and seconds >= 0:
            yield shown, float(seconds)


def _method_parts(series: Mapping[str, Any]) -> Iterator[tuple[str, float, int]]:
    warmup = section(series, "warmup")
    for name, seconds, steps in (
        ("first call", series.get("first_call_s"), 1),
        ("warm-up", warmup.get("time_s"), warmup.get("steps")),
        ("timed part", series.get("timed_s"), series.get("steps")),
    ):
        if is_number(seconds) and seconds >= 0:
            yield name, float(seconds), steps if isinstance(steps, int) else 0


def _versions(document: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    named = section(document, "ml_framework_info")
    frameworks = [named, *objects(own.get("frameworks"))[:5]]
    seen = set()
    for one in frameworks:
        name, version = _short(one.get("name")), _short(one.get("version"))
        if name and name != "none" and name not in seen:
            seen.add(name)
            yield name, version or "of unknown version"
    python = section(section(own, "environment"), "python")
    if python.get("version"):
        implementation = _short(python.get("implementation")) or "python"
        known = {"cpython": "Python", "pypy": "PyPy"}
        yield known.get(implementation, implementation), _short(python["version"])
    driver = _short(section(document, "system_info").get("accelerator_driver_version"))
    if driver:
        yield "driver", driver
    if own.get("version"):
        yield "perfrun", _short(own["version"])


def _machine(document: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    system, machine = section(document, "system_info"), section(own, "machine")
    yield from filter(None, [_short(system.get("hostname")), _short(system.get("cpu_model"))])
    cpus, memory = system.get("logical_cpu_count"), machine.get("memory_bytes")
    if is_number(cpus):
        yield f"{cpus:g} CPU{'' if cpus == 1 else 's'}"
    if is_number(memory):
        yield f"{memory / 2**30:.1f} GiB"
    model = _short(system.get("accelerator_model"))
    if model:
        yield f"{_short(system.get('accelerator_count')) or '1'} x {model}"


def _commits(record: SummaryRecord, own: Mapping[str, Any]) -> Iterator[str]:
    checkouts = {text(one.get("directory")): one for one in objects(own.get("git"))}
    for name, commit in list(record.commits.items())[:_MOST_ITEMS]:
        checkout = checkouts.get(name, {})
        branch = _short(checkout.get("branch"))
        words = [name[:_MOST_TEXT], commit[:12], f"({branch})" if branch else ""]
        words.append("with local edits" if checkout.get("dirty") is True else "")
        yield " ".join(word for word in words if word)


def _container(document: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    container = section(own, "container")
    if container:
        image, number = _short(container.get("image")), _short(container.get("image_id"))
        shown = number.removeprefix("sha256:")[:12]
        return f"{image} ({shown})" if shown and shown not in image else image
    return "an image that setup.py built" if section(document, "setup_info") else ""
