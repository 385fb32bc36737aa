"""The outcome of a trial, from the files that its worker left and from how its process ended.

A worker that was killed leaves files, too: its series count up to that moment.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.launchers.launcher import Exit
from perfrun.run.worker_words import check_rows, outcome_of, series_of
from perfrun.schema import Wrong
from perfrun.summary.assemble import out_of_bounds
from perfrun.summary.document import Metric, Outcome, Report, Status
from perfrun.untrusted import Folder, Refused, parse_json
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
_MIB = 2**20
_PHASE = rb'"phase": "(start|import|construct|method)"'
_OUTCOME_BYTES = _MIB  # perfrun's own has 128 KiB, more with long notes
_HEADER_BYTES = _MIB // 2  # of one series; perfrun's own has 30 KB
_HEADERS_BYTES = 16 * _MIB  # of all series
_ROWS_BYTES = 256 * _MIB  # of all series: eight million intervals
_EVALUATED_ROWS = 2_000_000  # of a series whose worker died: two seconds
_REPORT_BYTES = 4 * _MIB
_REPORTS_BYTES = 8 * _MIB
_REPORTS_FIELDS = 200_000
_MOST_TIMES = 1_000_000  # of all series, in a summary: a hundred long series
_MOST_FILES = 1000  # series, and files of reports
_NOTE = 300  # characters of one on a file that was not read
_MOST_NOTES = 20  # on files


class _Reader:
    """Reads a folder's files until a number of bytes is used up."""

    def __init__(self, folder: Folder, most_bytes: int) -> None:
        self._folder, self._left = folder, most_bytes

    def read(self, name: str, most_bytes: int | None = None) -> bytes:
        """Return a file's content. Raises OSError or Refused."""
        limit = self._left if most_bytes is None else min(most_bytes, self._left)
        data = self._folder.read(name, limit)
        self._left -= len(data)
        return data


def read_series(private: Path, notes: list[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the series of a trial in the order in which they began.

    A series that cannot be read is left out, and `notes` gets a line.
    """
    own, found = _Notes(), tuple[Mapping[str, Any], ...]()
    try:
        with Folder(private) as folder:
            found = _series(folder, own)
    except OSError as error:
        own.unopened(private, error)
    notes += own
    return found


def _series(folder: Folder, notes: _Notes) -> tuple[Mapping[str, Any], ...]:
    headers, rows = _Reader(folder, _HEADERS_BYTES), _Reader(folder, _ROWS_BYTES)
    found: list[Mapping[str, Any]] = []
    left = _MOST_TIMES
    for name in _numbered(folder, SERIES, rf"{SERIES}(\d{{1,18}})\.json", notes):
        try:
            facts = _read(name, headers, rows, notes)
            found.append(_with_fewer_times(facts, left))
            left -= len(found[-1]["times_s"])
        except Exception as error:  # figures are computed from what the benchmark could write
            notes.unread(name, error)
    return tuple(found)


def _numbered(folder: Folder, prefix: str, pattern: str, notes: list[str]) -> list[str]:
    """Return the names that the pattern matches by the number in it; 1 where there is none."""
    names = folder.names(prefix)
    matches = filter(None, (re.fullmatch(pattern, name, flags=re.DOTALL) for name in names))
    found = sorted((int(match[1] or 1), match[0]) for match in matches)
    if len(found) > _MOST_FILES:
        notes.append(
            f"{len(found)} files {prefix}* are more than {_MOST_FILES}; the others are not read"
        )
    return [name for _, name in found[:_MOST_FILES]]


def _read(name: str, headers: _Reader, raw: _Reader, notes: list[str]) -> Mapping[str, Any]:
    # Imported here: a run without series starts faster.
    from perfrun.worker.measure.measurement import derive, evaluate, kept_times
    from perfrun.worker.measure.series_files import SUFFIX, parse_rows

    facts = series_of(parse_json(headers.read(name, _HEADER_BYTES)), name, notes)
    file = name.removesuffix(".json") + SUFFIX
    rows = parse_rows(raw.read(file))
    check_rows(rows)
    facts["rows_file"] = file
    if "statistics" in facts:  # complete; its times are in the rows
        return {**facts, **kept_times(rows)}
    if len(rows.steps) > _EVALUATED_ROWS:
        notes.append(f"{file}: only the first {_EVALUATED_ROWS} intervals are evaluated")
        rows = rows.part(0, _EVALUATED_ROWS)
    facts = {**dict.fromkeys(_LATER), **facts, **evaluate(rows)}
    facts["devices"] = facts["devices"] or 1
    facts["report"] = None  # the trial ended before the report
    return derive(facts)


def _with_fewer_times(facts: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """Return the series with at most so many of its times, evenly taken."""
    times = facts["times_s"]
    if len(times) <= most:
        return facts
    every = -(-len(times) // most) if most > 0 else len(times)
    kept = times[::every][:most]
    return {**facts, "times_s": kept, "times_every": facts["times_every"] * every}


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """Contents of the files that a trial left on disk."""

    record: Mapping[str, Any]  # the worker's outcome; empty when it wrote none
    reports: tuple[Report, ...]
    series: tuple[Mapping[str, Any], ...]
    stack: str | None
    stderr_tail: str | None
    notes: tuple[str, ...]
    unusable: str = ""  # why an outcome that there is cannot be used

    @property
    def complete(self) -> bool:
        """True when the worker wrote its final outcome."""
        return bool(self.record.get("complete"))


def read_leftovers(folder: Path, private: Path) -> Leftovers:
    """Read a trial's folder; `private` lies in it. Missing or broken files never raise.

    What is refused (a link, a pipe, a file beyond its limit) is left out and noted. An error of the
    disk may pass, so all is read once more then.
    """
    notes = _Notes()
    left = _read_leftovers(folder, private, notes)
    return _read_leftovers(folder, private, _Notes()) if notes.disk_failed else left


class _Notes(list[str]):
    """Notes on files that were not read."""

    disk_failed = False

    def unread(self, name: str, error: Exception) -> str:
        """Add a note on a file, and return it."""
        self._take_in(error)
        self.append(_unread(name, error))
        return self[-1]

    def unopened(self, folder: Path, error: OSError) -> str:
        """Add a note on a folder that is there, such as a link that a trial made of it."""
        self._take_in(error)
        if isinstance(error, FileNotFoundError):
            return ""
        self.append(f"the folder {folder.name} cannot be read: {error.strerror}")
        return self[-1]

    def _take_in(self, error: Exception) -> None:
        self.disk_failed |= isinstance(error, OSError) and error.errno == errno.EIO


def _read_leftovers(folder: Path, private: Path, notes: _Notes) -> Leftovers:
    record: Mapping[str, Any] = {}
    reports: tuple[Report, ...] = ()
    series: tuple[Mapping[str, Any], ...] = ()
    stack = stderr_tail = None
    unusable = ""
    below = private.relative_to(folder).parts
    try:
        with Folder(folder, *below) as inner:
            record, unusable = _record(inner, notes)
            series = _series(inner, notes)
            stack = _text(inner, STACK, _STACK_BYTES, notes)
    except OSError as error:
        why = notes.unopened(private, error)
        unusable = unusable or why
    try:
        with Folder(folder) as outer:
            reports = _reports(outer, notes)
            stderr_tail = _text(outer, "stderr.log", _TAIL_BYTES, notes)
    except OSError as error:
        notes.unopened(folder, error)
    return Leftovers(
        record=record,
        reports=reports,
        series=series,
        stack=stack,
        stderr_tail=stderr_tail,
        notes=_bounded(notes),
        unusable=unusable,
    )


def _bounded(notes: list[str]) -> tuple[str, ...]:
    left_out = len(notes) - _MOST_NOTES
    more = [f"{left_out} more notes on files are left out"] if left_out > 0 else []
    return (*notes[:_MOST_NOTES], *more)


def read_phase(private: Path) -> str | None:
    """Return the phase that a running trial has reached, as its worker says; None if unknown."""
    try:
        with Folder(private) as folder:
            said = re.search(_PHASE, folder.read(ASIDE, _OUTCOME_BYTES))
    except (OSError, Refused):
        return None
    return said[1].decode() if said else None


def _record(private: Folder, notes: _Notes) -> tuple[Mapping[str, Any], str]:
    """Read the worker's outcome: under its final name, or the name it has while it is written.

    The second value says why there is none that can be used, if there is one.
    """
    unusable = ""
    for name in (OUTCOME, ASIDE):
        try:
            data = private.read(name, _OUTCOME_BYTES)
            if data.strip():  # else the worker wrote nothing
                return outcome_of(parse_json(data), name, notes), ""
        except FileNotFoundError:
            continue
        except (OSError, Refused, Wrong) as error:
            why = notes.unread(name, error)
            unusable = unusable or why
    return {}, unusable


def _text(folder: Folder, name: str, limit: int, notes: _Notes) -> str | None:
    """Return the last lines of a text file; None when it is empty or absent."""
    try:
        data, is_cut = folder.tail(name, limit)
    except FileNotFoundError:
        return None
    except (OSError, Refused) as error:
        notes.unread(name, error)
        return None
    text = data.decode("utf-8", "replace").replace("\0", "")  # the holes of a sparse file
    if is_cut:
        text = text.partition("\n")[2] or text
    return text.strip() or None


def _reports(folder: Folder, notes: _Notes) -> tuple[Report, ...]:
    """Return all reports of the method in the order in which it made them."""
    reader = _Reader(folder, _REPORTS_BYTES)
    reports: list[Report] = []
    left = [_REPORTS_FIELDS]
    for name in _numbered(folder, "proto_", r"proto_(?:(\d{1,18})_)?.*", notes):
        try:
            entries = decode_entries(reader.read(name, _REPORT_BYTES), left)
            reports += [_report(entry) for entry in entries]
        except (OSError, Refused, TestLogError) as error:
            notes.unread(name, error)
    return tuple(reports)


def _unread(name: str, error: Exception) -> str:
    """Return a note on a file that was not read."""
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
    elif isinstance(error, Refused | TestLogError | Wrong):
        reason = str(error)
    else:
        reason = f"{type(error).__name__}: {error}"
    whole = f"{name} cannot be read: {reason}"[:_NOTE]
    return whole.encode("utf-8", "backslashreplace").decode()  # a name need not be UTF-8


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
        return Status.FAILED, left.unusable or _not_started(left, end)
    return Status.EXITED, f"the process ended with status {end.exit_code} during {phase}"


def _not_started(left: Leftovers, end: Exit) -> str:
    last = (left.stderr_tail or "").splitlines()[-1:]
    reason = f": {last[0]}" if last else ""
    return f"the worker did not start (exit status {end.exit_code}){reason}"


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
    notes = [*left.record.get("notes", ()), *left.notes, *end.notes]
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
