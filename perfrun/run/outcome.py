"""The outcome of a trial, from the files that its worker left and from how its process ended.

A worker that was killed leaves files, too: its series count up to that moment.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.launchers.launcher import Exit
from perfrun.summary.assemble import out_of_bounds
from perfrun.summary.document import Metric, Outcome, Report, Status
from perfrun.worker.outcome_file import ASIDE, OUTCOME, SERIES, STACK
from perfrun.worker.test_log import TestLogError, decode_entries

# Fields that the worker writes when the timed part has ended; None in a series without that end.
_LATER = (
    "block_size",
    "device",
    "devices",
    "synchronised_by",
    "cudnn_autotune",
    "timer",
    "gc",
    "recompilations",
    "system_cpu_s",
    "minor_faults_per_step",
    "major_faults_per_step",
)
_TAIL_BYTES = 4096
_STACK_BYTES = 64 * 1024


def read_series(private: Path, notes: list[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the series of a trial in the order in which they began.

    A series that cannot be read is left out, and `notes` gets a line.
    """
    found = []
    for path in _headers(private):
        try:
            found.append(_read(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            notes.append(f"{path.name} cannot be read: {error}")
    return tuple(found)


def _headers(private: Path) -> list[Path]:
    numbered = []
    with contextlib.suppress(OSError):
        for path in private.glob(f"{SERIES}*.json"):
            number = re.fullmatch(rf"{SERIES}(\d+)\.json", path.name)
            if number:
                numbered.append((int(number[1]), path))
    return [path for _, path in sorted(numbered)]


def _read(path: Path) -> Mapping[str, Any]:
    # Imported here: a run without series starts faster.
    from perfrun.worker.measure.measurement import derive, evaluate, kept_times
    from perfrun.worker.measure.series_files import SUFFIX, read_rows

    facts = json.loads(path.read_bytes())
    raw = path.with_suffix(SUFFIX)
    rows = read_rows(str(raw))
    facts["rows_file"] = raw.name
    if "statistics" in facts:  # complete; its times are in the rows
        return {**facts, **kept_times(rows)}
    facts = {**dict.fromkeys(_LATER), **facts, **evaluate(rows)}
    facts["devices"] = facts["devices"] or 1
    facts["report"] = None  # the trial ended before the report
    return derive(facts)


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """Contents of the files that a trial left on disk."""

    record: Mapping[str, Any]  # the worker's outcome; empty when it wrote none
    reports: tuple[Report, ...]
    series: tuple[Mapping[str, Any], ...]
    stack: str | None
    stderr_tail: str | None
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """True when the worker wrote its final outcome."""
        return bool(self.record.get("complete"))


def read_leftovers(folder: Path, private: Path) -> Leftovers:
    """Read a trial's folder. Missing or broken files are noted and never raise."""
    notes: list[str] = []
    return Leftovers(
        record=_record(private),
        reports=_reports(folder, notes),
        series=read_series(private, notes),
        stack=_text(private / STACK, _STACK_BYTES),
        stderr_tail=_text(folder / "stderr.log", _TAIL_BYTES),
        notes=tuple(notes),
    )


def _record(private: Path) -> Mapping[str, Any]:
    """Read the worker's outcome: under its final name, or the name it has while it is written."""
    for name in (OUTCOME, ASIDE):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((private / name).read_bytes())
            if isinstance(record, dict):
                return record
    return {}


def _text(path: Path, limit: int) -> str | None:
    """Return the last lines of a text file; None when it is empty or absent."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    if size > limit:
        text = text.partition("\n")[2] or text
    return text.strip() or None


def _reports(folder: Path, notes: list[str]) -> tuple[Report, ...]:
    """Return all reports of the method in the order in which it made them."""

    def order(path: Path) -> tuple[int, str]:
        number = re.match(r"proto_(\d+)_", path.name)
        return (int(number[1]) if number else 1, path.name)

    reports: list[Report] = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob("proto_*"), key=order):
            try:
                reports += [_report(entry) for entry in decode_entries(path.read_bytes())]
            except (OSError, TestLogError) as error:
                notes.append(f"{path.name} cannot be read: {error}")
    return tuple(reports)


def _report(entry: Mapping[str, Any]) -> Report:
    metrics = tuple(
        Metric(
            name=metric.get("name", ""),
            value=metric.get("value", 0.0),
            min_value=metric.get("min_value"),
            max_value=metric.get("max_value"),
            keys=tuple(metric),
        )
        for metric in entry["metrics"]
    )
    return Report(**{**entry, "extras": tuple(entry["extras"]), "metrics": metrics})


def judge_outcome(
    left: Leftovers, end: Exit, *, oom_kills: int, timeout_s: float | None
) -> Outcome:
    """Return how the trial ended, from what the worker wrote and how its process ended.

    `oom_kills` is the number of processes that the kernel killed for lack of memory during the
    trial; the worker may be one of them. A trial in its own cgroup has a count of its own, which
    is used instead.
    """
    own_kills = (end.cgroup or {}).get("oom_kills")
    oom_kills = oom_kills if own_kills is None else own_kills
    status, reason = _status(left, end, oom_kills, timeout_s)
    error = left.record.get("error") or {}
    return Outcome(
        status=status,
        reason=reason,
        phase=left.record.get("phase", "start"),
        exit_code=error.get("exit_code", end.exit_code) if status.ran is False else end.exit_code,
        signal=_signal_name(end.signal_number) if end.signal_number else None,
        exception=error if error.get("kind") == "exception" else None,
        stack=None if status in (Status.PASSED, Status.OUT_OF_BOUNDS) else left.stack,
        stderr_tail=None if status.ran else left.stderr_tail,
        stray_processes=end.strays,
    )


def _status(
    left: Leftovers, end: Exit, oom_kills: int, timeout_s: float | None
) -> tuple[Status, str | None]:
    error = left.record.get("error") or {}
    phase = left.record.get("phase", "start")
    stopped = {
        "interrupt": (Status.INTERRUPTED, f"interrupted during {phase}"),
        "deadline": (Status.TIMED_OUT, f"not finished after {timeout_s or 0:g} s, during {phase}"),
        "disk": (Status.FAILED, f"ended during {phase}: {end.disturbance}"),
    }
    if end.stopped_for in stopped:
        status, reason = stopped[end.stopped_for]
        return status, f"{reason}; {end.unended}" if end.unended else reason
    if left.complete and error.get("kind") == "exception":
        return Status.FAILED, f"{error['type']}: {error['message']}".splitlines()[0][:300]
    if left.complete and error.get("kind") == "exit":
        return Status.EXITED, f"the benchmark called sys.exit({error['message']})"
    if left.complete:
        missed = out_of_bounds(left.reports)
        return (Status.OUT_OF_BOUNDS, missed) if missed else (Status.PASSED, None)
    if end.signal_number == signal.SIGKILL and oom_kills:
        reason = f"killed by the kernel for want of memory during {phase}"
        return Status.OOM_KILLED, reason + _memory_figures(end)
    if end.disturbance:
        status = Status.CRASHED if end.signal_number else Status.FAILED
        return status, f"{end.disturbance} during {phase}"
    if end.unended:
        return Status.FAILED, f"{end.unended}, during {phase}"
    if end.signal_number:
        return Status.CRASHED, f"{_signal_name(end.signal_number)} during {phase}"
    if not left.record:
        last = (left.stderr_tail or "").splitlines()[-1:]
        reason = f": {last[0]}" if last else ""
        return Status.FAILED, f"the worker did not start (exit status {end.exit_code}){reason}"
    return Status.EXITED, f"the process ended with status {end.exit_code} during {phase}"


def _memory_figures(end: Exit) -> str:
    """Return limit and peak of the trial's own cgroup as text, where they are known."""
    figures = end.cgroup or {}
    named = (("limit", "memory_limit_bytes"), ("peak", "memory_peak_bytes"))
    known = [f"{name} {figures[key] / 2**20:.1f} MiB" for name, key in named if figures.get(key)]
    return f" ({', '.join(known)})" if known else ""


def _signal_name(number: int) -> str:
    """Return a signal's name, such as SIGSEGV; real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def notes_on(
    left: Leftovers, end: Exit, outcome: Outcome, *, knows_victim: bool = True
) -> tuple[str, ...]:
    """Return notes on irregularities of a trial that do not decide its outcome.

    `knows_victim` is True when the `oom_kills` of `judge_outcome` counted only the worker, and
    not all processes of the machine.
    """
    notes = [*left.record.get("notes", ()), *left.notes]
    kills = (end.cgroup or {}).get("oom_kills")
    if kills and outcome.status is not Status.OOM_KILLED:
        notes.append(
            f"the kernel killed {kills} process(es) of the trial for want of memory"
            + _memory_figures(end)
        )
    if kills is None and outcome.status is Status.OOM_KILLED and not knows_victim:
        notes.append(
            "which process the kernel killed for want of memory is in its log (/dev/kmsg), which "
            "cannot be read here: this one's SIGKILL may have come from elsewhere"
        )
    if left.complete and end.disturbance:
        notes.append(f"{end.disturbance} after the method had ended")
    if left.complete and end.unended:
        notes.append(f"the process did not end after its method had; {end.unended}")
    elif left.complete and end.stopped_for == "exit":
        notes.append("the process did not end after its method had; killed")
    elif left.complete and end.signal_number and end.stopped_for is None:
        notes.append(f"the process ended by {_signal_name(end.signal_number)} after its method had")
    if outcome.status.ran and not left.reports:
        notes.append("the method made no report; wall_time is -1")
    if end.strays:
        notes.append(f"left {len(end.strays)} process(es) behind, killed: {', '.join(end.strays)}")
    return tuple(notes)
