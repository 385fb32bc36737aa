"""Define the values of a summary and write them as JSON.

Schema history of the `perfrun` section of a summary:
    1   first version
    2   `usage` keeps times and the cost of watching; its peaks and CPU times went to the new
        sections `memory` and `cpu`; new sections `devices` and `energy`
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from perfrun.dataclass import dataclass, field
from perfrun.text import redacted

SCHEMA_VERSION = 2
LARGEST_BYTES = 64 * 2**20  # no summary is near it; a larger file is something else


class Status(str, Enum):
    """The ways in which a trial can end."""

    PASSED = "passed"
    OUT_OF_BOUNDS = "out_of_bounds"  # it ran, and a metric missed its bounds
    FAILED = "failed"  # it raised an exception, or could not be started
    EXITED = "exited"  # sys.exit or os._exit, with any status
    CRASHED = "crashed"  # by a signal that perfrun did not send
    OOM_KILLED = "oom_killed"  # the kernel killed it for lack of memory
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"  # Ctrl-C, or the harness itself was killed

    @property
    def ran(self) -> bool:
        """True when the method ended by itself, so that its figures are complete."""
        return self in (Status.PASSED, Status.OUT_OF_BOUNDS)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a trial and all that explains it."""

    status: Status
    reason: str | None = None  # one line; None when passed
    phase: str | None = None  # the last phase: start, import, construct, method
    exit_code: int | None = None
    signal: str | None = None  # name, as SIGSEGV
    exception: Mapping[str, str] | None = None  # type, message, traceback
    stack: str | None = None  # dump of all threads, when a signal or the deadline ended it
    stderr_tail: str | None = None  # None when passed
    stray_processes: tuple[str, ...] = ()  # left behind by the benchmark and killed


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of a report. `keys` is the order of the keys on the wire (see `summary`)."""

    name: str
    value: float
    min_value: float | None = None
    max_value: float | None = None
    keys: tuple[str, ...] = ("name", "value")

    @property
    def in_bounds(self) -> bool:
        """True when the value meets its bounds, which are inclusive; a NaN meets none."""
        if math.isnan(self.value):
            return self.min_value is None and self.max_value is None
        low = -math.inf if self.min_value is None else self.min_value
        high = math.inf if self.max_value is None else self.max_value
        return low <= self.value <= high


@dataclass(frozen=True, kw_only=True)
class Report:
    """One call of `report_benchmark`."""

    name: str  # Class.method, or Class.<name=>
    iters: int = 0
    cpu_time: float = 0.0  # seconds
    wall_time: float = 0.0  # seconds
    throughput: float = 0.0  # 1/s
    extras: tuple[Mapping[str, Any], ...] = ()
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The duration of a trial and the cost of watching it. None is unknown.

    The sections `memory`, `cpu`, `devices` and `energy` hold the use by the trial itself.
    """

    elapsed_s: float | None = None  # from starting the worker to its end
    samples: int = 0  # of the process tree
    sampling_rate_hz: float | None = None  # as achieved
    observer_cpu_s: float | None = None  # CPU time that watching took
    harness_cpu_s: float | None = None  # CPU time of perfrun itself, watching included


@dataclass(frozen=True, kw_only=True)
class Order:
    """The place of a trial in its run."""

    seed: int | None = None  # the rounds were shuffled with it; None = in the order given
    position: int = 1  # in the run, from 1
    round: int = 1  # from 1
    rerun_of: int | None = None  # id of the disturbed trial that this one replaces
    profile: str | None = None  # kind of profiler; with one, the figures do not count


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The software under test, as a temporary worker found it."""

    python: Mapping[str, Any] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)  # name -> version
    distributions_sha256: str | None = None
    direct_url_commits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A finished trial, as the terminal, the journal and `--format=json` need it."""

    name: str
    trial_id: int
    status: Status
    summary: str  # path of the file
    document: Mapping[str, Any]
    closing_s: float | None = None  # from the end of its process: summary and uploads

    @property
    def grade(self) -> str | None:
        """The quality of its figures, A to F; None when nothing was watched."""
        return (self.document["perfrun"].get("quality") or {}).get("grade")

    @property
    def disturbed(self) -> bool:
        """True when something disturbed the trial, so that it is worth running again."""
        return bool((self.document["perfrun"].get("quality") or {}).get("disturbed"))


def json_ready(value: Any) -> Any:
    """Convert a value to what JSON can hold: NaN and infinities become PerfZero's strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return value


def to_json(document: Mapping[str, Any], *, is_redacted: bool = False) -> str:
    """Serialise a document as PerfZero does: indent 2, ASCII, no newline at the end, no secrets.

    `is_redacted` says that they have been left out before: it takes a millisecond of each trial.
    """
    shown = document if is_redacted else redacted(document)
    return json.dumps(json_ready(shown), indent=2, allow_nan=False)
