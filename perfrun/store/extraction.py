"""From a summary to what the index holds of it. Pure.

Takes perfrun's summaries of every schema version up to its own, and PerfZero's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perfrun.analysis.directions import direction_of
from perfrun.document import SCHEMA_VERSION, Status
from perfrun.store.identity import Subject, is_number, rows, section, subject, text

_LONGEST_EXTRA = 1000  # characters; some benchmarks report whole logs
_LATEST_S = 1e11  # a time stamp above it is in milliseconds


class BadSummary(Exception):  # noqa: N818 - it is a finding about a file
    """The text says what is wrong with a summary, in one line."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One figure of a trial. Unit and direction are '' where the summary does not say."""

    name: str
    value: float
    unit: str = ""
    direction: str = ""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trial, as the index holds it."""

    uid: str  # the same for every copy of the trial's summary
    subject: Subject
    context: str  # JSON: what differs between trials of a series; docs/store.md
    commits: str  # JSON: folder of the checkout to commit
    urls: str  # JSON: folder of the checkout to its repository
    execution_id: str
    run_id: str  # '' in PerfZero's
    trial_id: int
    timestamp: float  # seconds since the epoch
    status: str
    grade: str  # '' when not judged
    disturbed: bool
    label: str
    hostname: str
    extras: str  # JSON: what a report said besides its metrics; '' for nothing
    measurements: tuple[Measurement, ...]


def parse(content: bytes) -> Record:
    """Read the text of a summary. Raises BadSummary."""
    try:
        document = json.loads(content)
    except UnicodeDecodeError:
        raise BadSummary("is not UTF-8 text") from None
    except RecursionError:
        raise BadSummary("is JSON nested too deep") from None
    except ValueError as error:
        what = "is empty" if not content.strip() else f"is not JSON, or cut short: {error}"
        raise BadSummary(what) from None
    return extract(document)


def extract(document: Any) -> Record:
    """Take from a summary what the index holds. Raises BadSummary."""
    if not isinstance(document, dict):
        raise BadSummary("is JSON, but no summary: not an object")
    result, own = section(document, "benchmark_result"), section(document, "perfrun")
    info = section(document, "benchmark_info")
    _refuse_newer(own)
    if section(own, "order").get("profile"):
        raise BadSummary("is of a trial under a profiler: its figures do not count")
    name, execution_id = text(result.get("name")), text(document.get("execution_id"))
    timestamp = document.get("execution_timestamp")
    if not name or not execution_id:
        missing = "execution_id" if name else "benchmark_result.name"
        raise BadSummary(f"is JSON, but no summary: {missing} is missing")
    if not is_number(timestamp) or not 0 <= timestamp < _LATEST_S:
        raise BadSummary(f"execution_timestamp is {str(timestamp)[:40]}, not seconds")
    trial_id = result.get("trial_id")
    quality = section(own, "quality")
    found = _Metrics()
    found.take(document)
    hostname = text(section(document, "system_info").get("hostname"))
    return Record(
        uid=_uid(execution_id, timestamp, name, trial_id, hostname),
        subject=subject(document, name),
        context=json.dumps(context(document), sort_keys=True),
        commits=json.dumps(checkouts(document, "hash", "git_hash"), sort_keys=True),
        urls=json.dumps(checkouts(document, "url", "url"), sort_keys=True),
        execution_id=execution_id,
        run_id=text(own.get("run_id")),
        trial_id=trial_id if isinstance(trial_id, int) and 0 < trial_id < 2**31 else 1,
        timestamp=float(timestamp),
        status=status(document),
        grade=text(quality.get("grade")),
        disturbed=bool(quality.get("disturbed")),
        label=text(info.get("execution_label")),
        hostname=hostname,
        extras=json.dumps(found.extras, sort_keys=True) if found.extras else "",
        measurements=tuple(found.measurements.values()),
    )


def _refuse_newer(own: Mapping[str, Any]) -> None:
    version = own.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BadSummary(
            f"was written by a newer perfrun (schema {version}; this one reads {SCHEMA_VERSION})"
        )


def _uid(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def status(document: Mapping[str, Any]) -> str:
    """How the trial ended, in perfrun's words; PerfZero knows three cases of them."""
    outcome = section(section(document, "perfrun"), "outcome").get("status")
    if isinstance(outcome, str) and outcome in set(Status):
        return str(Status(outcome).value)
    if section(document, "benchmark_info").get("has_exception"):
        return Status.FAILED.value
    succeeded = section(document, "benchmark_result").get("succeeded")
    return Status.PASSED.value if succeeded else Status.OUT_OF_BOUNDS.value


def checkouts(document: Mapping[str, Any], perfzero_key: str, own_key: str) -> dict[str, str]:
    """Folder of each checkout to one fact about it."""
    info = section(section(document, "benchmark_info"), "site_package_info")
    found = {text(name): text(section(info, name).get(perfzero_key)) for name in info}
    for checkout in rows(section(document, "perfrun").get("git")):
        found[text(checkout.get("directory"))] = text(checkout.get(own_key))
    return {name: fact for name, fact in found.items() if name and fact}


def context(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a change of figures can be explained by: versions, image, machine, flags, code.

    Trials of one run share it, so it is stored once for all of them.
    """
    own, info = section(document, "perfrun"), section(document, "benchmark_info")
    container, environment = section(own, "container"), section(own, "environment")
    framework = section(document, "ml_framework_info")
    return {
        "python": dict(section(environment, "python")),
        "distributions": dict(section(environment, "distributions")),
        "direct_url_commits": dict(section(environment, "direct_url_commits")),
        "framework": dict(framework),
        "image": {
            key: container[key] for key in ("image", "image_id", "repo_digests") if key in container
        },
        "limits": dict(section(container, "limits")),
        "engine": {
            key: container[key]
            for key in ("engine_version", "rootless", "storage_driver", "network")
            if key in container
        },
        "setup_info": dict(section(document, "setup_info")),
        "system": dict(section(document, "system_info")),
        "machine": dict(section(own, "machine")),
        "benchmark_flags": own.get("benchmark_flags") or [],
        "constructor_args": section(info, "flags").get("perfzero_constructor_args") or "",
        "env_vars": {**section(info, "env_vars"), **section(own, "env")},
        "harness": {
            "name": info.get("harness_name"),
            "version": own.get("version"),
            **section(info, "harness_info"),
        },
        "git": _git(document),
        "module_sha256": own.get("module_sha256"),
    }


def _git(document: Mapping[str, Any]) -> dict[str, Any]:
    checkouts = rows(section(document, "perfrun").get("git"))
    if not checkouts:
        return dict(section(section(document, "benchmark_info"), "site_package_info"))
    keys = ("url", "branch", "git_hash", "dirty", "diff_sha256")
    return {text(one.get("directory")): {key: one.get(key) for key in keys} for one in checkouts}


class _Metrics:
    """Collects the figures of a summary. The first of a name counts."""

    def __init__(self) -> None:
        self.measurements: dict[str, Measurement] = {}
        self.extras: dict[str, Any] = {}

    def take(self, document: Mapping[str, Any]) -> None:
        own, result = section(document, "perfrun"), section(document, "benchmark_result")
        if not Status(status(document)).ran:
            return  # what a trial took that did not come to its end says nothing of the method
        series = [one for one in rows(own.get("series")) if isinstance(one.get("metrics"), dict)]
        reports = rows(own.get("reports"))
        first = text(reports[0].get("name")) if reports else ""
        self._report(result, "", _stated(series, first))
        self._throughput("", reports[0] if reports else {})
        for number, report in enumerate(reports[1:], 2):
            name = text(report.get("name"))
            prefix = f"{name.rpartition('.')[2] or 'report'}/"
            if f"{prefix}wall_time" in self.measurements:
                prefix = f"{prefix[:-1]}#{number}/"
            self._report(report, prefix, _stated(series, name))
            self._throughput(prefix, report)
        for one in series:
            if one.get("report") is None:
                self._unreported(one)
        # PerfZero's 0 is unknown: the method was over before it looked.
        self._add("peak_rss_bytes", section(document, "process_info").get("max_rss"), least=1)

    def _report(
        self, report: Mapping[str, Any], prefix: str, stated: Mapping[str, tuple[str, str]]
    ) -> None:
        if report.get("wall_time") != 0:  # which is what a report has that says nothing of it
            self._add(f"{prefix}wall_time", report.get("wall_time"), "s", "lower", least=0)
        for metric in rows(report.get("metrics")):
            name = text(metric.get("name"))
            self._add(f"{prefix}{name}", metric.get("value"), *stated.get(name, ("", "")))
        for extra in rows(report.get("extras")):
            self._extra(prefix, text(extra.get("name")), extra.get("value"))

    def _throughput(self, prefix: str, report: Mapping[str, Any]) -> None:
        if report.get("throughput") != 0:  # likewise
            self._add(f"{prefix}throughput", report.get("throughput"))

    def _extra(self, prefix: str, name: str, value: Any) -> None:
        """An extra is a metric when its name says which way is better, as examples_per_second."""
        if is_number(value) and direction_of(name) != "none":
            self._add(f"{prefix}{name}", value)
        elif isinstance(value, int | float) or (
            isinstance(value, str) and len(value) <= _LONGEST_EXTRA
        ):
            self.extras.setdefault(f"{prefix}{name}", value)

    def _unreported(self, series: Mapping[str, Any]) -> None:
        for name, (unit, direction) in _stated_in(series).items():
            value = section(section(series, "metrics"), name).get("value")
            self._add(f"{text(series.get('name'))}/{name}", value, unit, direction)

    def _add(
        self,
        name: str,
        value: Any,
        unit: str = "",
        direction: str = "",
        *,
        least: float = -math.inf,
    ) -> None:
        if not name or name in self.measurements or not is_number(value):
            return
        try:
            number = float(value)
        except OverflowError:
            return
        if math.isfinite(number) and number >= least:
            self.measurements[name] = Measurement(
                name=name, value=number, unit=unit, direction=direction
            )


def _stated(series: list[Mapping[str, Any]], report: str) -> dict[str, tuple[str, str]]:
    """Unit and direction of the metrics of a report, as the series it came from states them."""
    found: dict[str, tuple[str, str]] = {}
    for one in series:
        if one.get("report") is not None and text(one["report"]) in (report, ""):
            found.update(_stated_in(one))
    return found


def _stated_in(series: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return dict(_pairs(section(series, "metrics")))


def _pairs(metrics: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in metrics:
        facts = section(metrics, name)
        direction = text(facts.get("direction"))
        known = direction if direction in ("lower", "higher", "none") else ""
        yield text(name), (text(facts.get("unit")), known)
