"""Read what a worker left behind, and say how the trial ended."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.document import Metric, Outcome, Report, Status, Usage
from perfrun.launchers.contract import Exit
from perfrun.probes.process_tree import TreeUsage
from perfrun.series import read_series
from perfrun.summary import out_of_bounds
from perfrun.worker.files import ASIDE, OUTCOME, STACK
from perfrun.worker.test_log import TestLogError, decode_entries

_TAIL_BYTES = 4096
_STACK_BYTES = 64 * 1024
_SHORTEST_S = 0.01  # below this, CPU time over wall time says more of the clocks than of the method


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """What is on disk after a trial."""

    record: Mapping[str, Any]  # the worker's outcome; empty when it wrote none
    reports: tuple[Report, ...]
    series: tuple[Mapping[str, Any], ...]
    stack: str | None
    stderr_tail: str | None
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """True when the worker said its last word."""
        return bool(self.record.get("complete"))


def read_leftovers(folder: Path, private: Path) -> Leftovers:
    """Read a trial's folder. What is missing or broken is left out and noted, never raised."""
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
    """The outcome under its final name, or under the one it has until it is whole."""
    for name in (OUTCOME, ASIDE):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((private / name).read_bytes())
            if isinstance(record, dict):
                return record
    return {}


def _text(path: Path, limit: int) -> str | None:
    """The end of a text file, from the start of a line; None when empty or absent."""
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
    """All reports of the method, in the order in which they were made."""

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


def judge(left: Leftovers, end: Exit, *, oom_kills: int, timeout_s: float | None) -> Outcome:
    """Say how the trial ended, from what the worker wrote and how its process ended.

    `oom_kills`: how many processes the kernel killed for want of memory during the trial, on the
    whole machine; a trial in a cgroup of its own has its own count, which is better.
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
    if end.stopped_for == "interrupt":
        return Status.INTERRUPTED, f"interrupted during {phase}"
    if end.stopped_for == "deadline":
        return Status.TIMED_OUT, f"not finished after {timeout_s:g} s, during {phase}"
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
    if end.signal_number:
        return Status.CRASHED, f"{_signal_name(end.signal_number)} during {phase}"
    if not left.record:
        last = (left.stderr_tail or "").splitlines()[-1:]
        said = f": {last[0]}" if last else ""
        return Status.FAILED, f"the worker did not start (exit status {end.exit_code}){said}"
    return Status.EXITED, f"the process ended with status {end.exit_code} during {phase}"


def _memory_figures(end: Exit) -> str:
    """The limit and the peak of the trial's own cgroup, where they are known."""
    figures = end.cgroup or {}
    named = (("limit", "memory_limit_bytes"), ("peak", "memory_peak_bytes"))
    known = [f"{name} {figures[key] / 2**20:.1f} MiB" for name, key in named if figures.get(key)]
    return f" ({', '.join(known)})" if known else ""


def _signal_name(number: int) -> str:
    """SIGSEGV and the like; real-time signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def findings(left: Leftovers, end: Exit, outcome: Outcome) -> tuple[str, ...]:
    """What was odd about a trial without deciding how it ended."""
    notes = [*left.record.get("notes", ()), *left.notes]
    kills = (end.cgroup or {}).get("oom_kills")
    if kills and outcome.status is not Status.OOM_KILLED:
        notes.append(
            f"the kernel killed {kills} process(es) of the trial for want of memory"
            + _memory_figures(end)
        )
    if left.complete and end.disturbance:
        notes.append(f"{end.disturbance} after the method had ended")
    if left.complete and end.stopped_for == "exit":
        notes.append("the process did not end after its method had; killed")
    elif left.complete and end.signal_number and end.stopped_for is None:
        notes.append(f"the process ended by {_signal_name(end.signal_number)} after its method had")
    if outcome.status.ran and not left.reports:
        notes.append("the method made no report; wall_time is -1")
    if end.strays:
        notes.append(f"left {len(end.strays)} process(es) behind, killed: {', '.join(end.strays)}")
    return tuple(notes)


def usage(
    left: Leftovers, end: Exit | None, tree: TreeUsage | None, *, own_peak_rss_bytes: int
) -> Usage:
    """Bring together the kernel's marks and what was sampled.

    `own_peak_rss_bytes` is the harness's own peak: below it the kernel's ru_maxrss says nothing
    about the worker, because it survives exec (fork copies the parent's mark).
    """
    memory = left.record.get("memory", {})
    at_end, before = memory.get("end", {}), memory.get("before_method", {})
    rss = _largest(at_end.get("peak_rss_bytes"), before.get("peak_rss_bytes"))
    vms = at_end.get("peak_vms_bytes")
    rss_source, vms_source = "VmHWM at end", "VmPeak at end"
    if not at_end.get("peak_rss_bytes"):
        rss_source = "VmHWM polled"
        rss = _largest(rss, tree.peak_rss_bytes if tree else None)
        if end and end.max_rss_bytes > max(rss or 0, own_peak_rss_bytes):
            rss, rss_source = end.max_rss_bytes, "ru_maxrss"
    if not vms:
        vms, vms_source = (tree.peak_vms_bytes if tree else None), "VmPeak polled"
    method = left.record.get("phases", {}).get("method", {})
    return Usage(
        peak_rss_bytes=rss,
        peak_rss_source=rss_source if rss else None,
        peak_rss_exact=bool(rss and rss_source == "VmHWM at end"),
        peak_vms_bytes=vms,
        peak_vms_source=vms_source if vms else None,
        before_method_peak_rss_bytes=before.get("peak_rss_bytes"),
        method_peak_rss_bytes=at_end.get("peak_rss_bytes") if memory.get("reset") else None,
        tree_peak_rss_bytes=_largest(rss, tree.tree_peak_rss_bytes if tree else None),
        tree_peak_processes=tree.tree_peak_processes if tree else None,
        max_cpu_percent=_max_cpu(method, end, tree),
        user_cpu_s=end.user_cpu_s if end else None,
        system_cpu_s=end.system_cpu_s if end else None,
        elapsed_s=end.elapsed_s if end else None,
        samples=tree.samples if tree else 0,
        sampling_rate_hz=tree.rate_hz if tree else None,
        observer_cpu_s=tree.observer_cpu_s if tree else None,
    )


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value), default=None)


def _max_cpu(method: Mapping[str, float], end: Exit | None, tree: TreeUsage | None) -> float | None:
    """The busiest window of 0.1 s; for shorter trials the method's own mean, or the trial's."""
    candidates = [tree.max_cpu_percent] if tree and tree.max_cpu_percent is not None else []
    if method.get("wall_s", 0.0) >= _SHORTEST_S:
        candidates.append(round(method["cpu_s"] / method["wall_s"] * 100.0, 1))
    if not candidates and end and end.elapsed_s > 0:
        candidates.append(round((end.user_cpu_s + end.system_cpu_s) / end.elapsed_s * 100.0, 1))
    return max(candidates, default=None)
