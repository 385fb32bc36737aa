"""Read a summary into the one record from which the index is filled and that all commands use.

It reads PerfZero's summaries and perfrun's of every schema version up to its own. A summary may
come from anywhere: whatever it holds, the result is a record or `BadSummary` with one line.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from perfrun.analysis.directions import Direction
from perfrun.errors import PerfrunError
from perfrun.summary.document import LARGEST_BYTES as LARGEST_BYTES
from perfrun.summary.document import SCHEMA_VERSION, Status
from perfrun.summary.metrics import MetricValue, metrics_of
from perfrun.summary.series_identity import Subject, is_number, section, subject, text
from perfrun.summary.trial_environment import batch_size_of, checkouts, context
from perfrun.untrusted import Refused, opened, parse_json

SUMMARY = "perfzero_summary.json"
_LATEST_S = 1e11  # a larger time stamp is in milliseconds
_OBJECTS = {
    "": ("benchmark_result", "benchmark_info", "setup_info", "ml_framework_info", "system_info",
         "process_info", "perfrun"),
    "benchmark_info": ("harness_info", "env_vars", "flags", "site_package_info"),
    "perfrun": ("order", "outcome", "quality", "container", "environment", "machine", "memory",
                "env", "allocator"),
}  # fmt: skip
_LISTS = {
    "benchmark_result": ("metrics", "extras"),
    "perfrun": ("reports", "series", "git", "benchmark_flags"),
}
# A number of more than 64 bits, half of a surrogate pair, another encoding: such a text is taken
# apart slowly. Of 100,000 summaries hardly one is.
_ODD = re.compile(rb"[0-9]{20}|\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\x00")
_UNUSABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_STATUSES = frozenset(status.value for status in Status)


class BadSummary(PerfrunError, ValueError):  # noqa: N818 - it is a finding about a file
    """A summary that cannot be used; the text says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class SummaryRecord:
    """One trial, passed or failed, as its summary describes it."""

    path: Path  # of the summary; `Path()` where none is known
    uid: str  # the same for every copy of the trial's summary
    subject: Subject
    execution_id: str
    run_id: str  # '' in PerfZero's summaries
    trial_id: int
    timestamp: float  # seconds since the epoch
    status: Status
    reason: str | None  # why it did not pass, if known
    grade: str  # '' when not judged
    disturbed: bool
    label: str
    hostname: str
    batch_size: str | None  # None when unknown
    metrics: Mapping[str, MetricValue]  # by name; empty when the method did not end by itself
    extras: Mapping[str, Any]  # of the reports, besides the metrics
    commits: Mapping[str, str]  # folder of the checkout to commit
    urls: Mapping[str, str]  # folder of the checkout to its repository
    context: Mapping[str, Any]  # versions, image, machine, flags, code: `surroundings.context`
    document: Mapping[str, Any]  # the summary; if the file is gone, a part made from `context`

    @property
    def method(self) -> str:
        """The method that was measured."""
        return self.subject.method

    @property
    def ran(self) -> bool:
        """True when the method ended by itself."""
        return self.status.ran

    @cached_property
    def values(self) -> Mapping[str, float]:
        """The value of each metric, by name."""
        return {name: metric.value for name, metric in self.metrics.items()}

    @cached_property
    def directions(self) -> Mapping[str, Direction]:
        """The better direction of each metric, by name."""
        return {name: metric.direction for name, metric in self.metrics.items()}

    @property
    def primaries(self) -> tuple[str, ...]:
        """The metrics that are judged by default."""
        return tuple(name for name, one in self.metrics.items() if not one.derived_from)

    def derived(self, primary: str) -> tuple[str, ...]:
        """Return the metrics that are derived from a primary one."""
        return tuple(name for name, one in self.metrics.items() if one.derived_from == primary)


def read_record(path: Path) -> SummaryRecord:
    """Read a summary. Raises OSError or BadSummary."""
    return parse_record(read_content(path), path)


def read_content(path: Path) -> bytes:
    """Read a summary's bytes. Raises OSError, or BadSummary for what is no file of its size."""
    try:
        with opened(path) as (number, size), open(number, "rb", closefd=False) as file:
            if size > LARGEST_BYTES:
                raise BadSummary(f"is larger than {LARGEST_BYTES // 2**20} MiB: no summary")
            return file.read(size)
    except Refused:
        raise BadSummary("is no file") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BadSummary("is a link") from None
        raise


def parse_record(content: bytes, path: Path) -> SummaryRecord:
    """Make the record from a summary's text. Raises BadSummary."""
    try:
        document = json.loads(content)
        if _ODD.search(content):
            document = parse_json(content)
    except Refused as error:
        raise BadSummary(f"cannot be used: {error}") from None
    except UnicodeDecodeError:
        raise BadSummary("is not UTF-8 text") from None
    except RecursionError:
        raise BadSummary("is JSON nested too deep") from None
    except ValueError as error:
        what = "is empty" if not content.strip() else f"is not JSON, or cut short: {error}"
        raise BadSummary(what) from None
    return record_of(document, path)


def record_of(document: Any, path: Path) -> SummaryRecord:
    """Make the record from a parsed summary. Raises BadSummary."""
    try:
        return _record_of(document, path)
    except BadSummary:
        raise
    except _UNUSABLE as error:
        raise BadSummary(f"cannot be used: {type(error).__name__}: {error}") from None


def _record_of(document: Any, path: Path) -> SummaryRecord:
    if not isinstance(document, dict):
        raise BadSummary("is JSON, but no summary: not an object")
    _check(document)
    result, own = section(document, "benchmark_result"), section(document, "perfrun")
    info, quality = section(document, "benchmark_info"), section(own, "quality")
    name, execution_id = text(result.get("name")), text(document.get("execution_id"))
    if not name or not execution_id:
        missing = "execution_id" if name else "benchmark_result.name"
        raise BadSummary(f"is JSON, but no summary: {missing} is missing")
    timestamp = document.get("execution_timestamp")
    if not is_number(timestamp) or not 0 <= timestamp < _LATEST_S:
        raise BadSummary(f"execution_timestamp is {_short(timestamp)}, not seconds")
    trial_id = result.get("trial_id")
    hostname = text(section(document, "system_info").get("hostname"))
    status = _status(document)
    # Figures of a method that did not end by itself are not those of the method.
    metrics, extras = metrics_of(document) if status.ran else ({}, {})
    return SummaryRecord(
        path=path,
        uid=_uid(execution_id, timestamp, name, trial_id, hostname),
        subject=subject(document, name),
        execution_id=execution_id,
        run_id=text(own.get("run_id")),
        trial_id=trial_id if isinstance(trial_id, int) and 0 < trial_id < 2**31 else 1,
        timestamp=float(timestamp),
        status=status,
        reason=text(section(own, "outcome").get("reason")) or None,
        grade=text(quality.get("grade")),
        disturbed=bool(quality.get("disturbed")),
        label=text(info.get("execution_label")),
        hostname=hostname,
        batch_size=batch_size_of(document),
        metrics=metrics,
        extras=extras,
        commits=checkouts(document, "hash", "git_hash"),
        urls=checkouts(document, "url", "url"),
        context=context(document),
        document=document,
    )


def _check(document: Mapping[str, Any]) -> None:
    """Refuse a newer schema, a trial under a profiler, and keys of the wrong kind."""
    _check_kinds(document)
    own = document.get("perfrun") or {}
    version = own.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BadSummary(
            f"was written by a newer perfrun (schema {_short(version)}; this one reads "
            f"{SCHEMA_VERSION})"
        )
    if (own.get("order") or {}).get("profile"):
        raise BadSummary("is of a trial under a profiler: its figures do not count")


def _check_kinds(document: Mapping[str, Any]) -> None:
    for place, names in _OBJECTS.items():
        part = (document.get(place) or {}) if place else document
        for name in names:
            if not isinstance(part.get(name), dict | None):
                raise _wrong(place, name, part[name], "an object")
    for place, names in _LISTS.items():
        part = document.get(place) or {}
        for name in names:
            if not isinstance(part.get(name), list | None):
                raise _wrong(place, name, part[name], "a list")
            for item in part.get(name) or ():
                if not isinstance(item, dict) and name != "benchmark_flags":
                    raise _wrong(place, name, item, "a list of objects")


def _wrong(place: str, name: str, value: Any, wanted: str) -> BadSummary:
    where = f"{place}.{name}" if place else name
    return BadSummary(f"is JSON, but no summary: {where} is {_short(value)}, not {wanted}")


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a huge number"  # Python refuses to convert its digits
    shown = text(value if isinstance(value, str) else repr(value))
    return " ".join(shown.split())[:40] or "empty"


def _uid(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _status(document: Mapping[str, Any]) -> Status:
    """Return the trial's outcome; PerfZero's summaries have only three of them."""
    outcome = section(section(document, "perfrun"), "outcome").get("status")
    if isinstance(outcome, str) and outcome in _STATUSES:
        return Status(outcome)
    if section(document, "benchmark_info").get("has_exception"):
        return Status.FAILED
    succeeded = section(document, "benchmark_result").get("succeeded")
    return Status.PASSED if succeeded else Status.OUT_OF_BOUNDS
