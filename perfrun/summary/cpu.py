"""Section `cpu` of a summary: time, switches, faults, input, output, what held it up. Pure.

Everything that was measured of a trial but the method's own reports, brought together. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfrun.dataclass import dataclass, field
from perfrun.launchers.launcher import Exit
from perfrun.probes.accelerators import DevicesUsage
from perfrun.probes.counters import Counters, counters_between
from perfrun.probes.process_tree import TreeUsage
from perfrun.probes.watch import Energy, Watched, cgroup_between
from perfrun.summary.document import Usage
from perfrun.summary.memory import Memory, memory_section

_SHORTEST_S = 0.01  # below this, CPU time over wall time says more of the clocks than of the method
_COUNTS = (
    "user_s",
    "system_s",
    "voluntary_switches",
    "involuntary_switches",
    "minor_faults",
    "major_faults",
)
_BYTES = (
    "read_bytes",
    "written_bytes",
    "cancelled_bytes",
    "read_call_bytes",
    "written_call_bytes",
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the kernel counted of one stretch of work, waited-for children included."""

    user_s: float | None = None
    system_s: float | None = None
    voluntary_switches: int | None = None  # it waited
    involuntary_switches: int | None = None  # it was made to wait
    minor_faults: int | None = None  # no disk was needed
    major_faults: int | None = None
    read_bytes: int | None = None  # from storage
    written_bytes: int | None = None  # that will go to storage
    cancelled_bytes: int | None = None  # of these, dropped again before they got there
    read_call_bytes: int | None = None  # by read(2) and the like, from wherever
    written_call_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """CPU, input and output of a trial. None is unknown; `reasons` says why."""

    trial: Work  # from the worker's start to its end
    method: Work  # the method alone
    max_percent: float | None  # of one core, largest window of 0.1 s or more
    # Of the control group that the worker ran in: throttling and pressure.
    cgroup_path: str | None
    cgroup_own: bool  # the trial's alone
    cgroup: Mapping[str, float | None] = field(default_factory=dict)
    machine: Counters | None = None  # all that happened on the machine meanwhile
    others_busy_s: float | None = None  # CPU time of all but the trial and perfrun
    reasons: Mapping[str, str] = field(default_factory=dict)


def cpu_section(record: Mapping[str, Any], end: Exit | None, watched: Watched | None) -> Cpu:
    """Bring together what the kernel said of the worker, and what was read of the machine."""
    trial = _trial(end)
    method = _method(record.get("resources", {}))
    machine = counters_between(watched.before.snapshot, watched.after.snapshot) if watched else None
    path, own, cgroup = _cgroup(end, watched)
    return Cpu(
        trial=trial,
        method=method,
        max_percent=_max_percent(record, end, watched.tree if watched else None),
        cgroup_path=path,
        cgroup_own=own,
        cgroup=cgroup,
        machine=machine,
        others_busy_s=_others(machine, trial, watched),
        reasons=_reasons(trial, method, cgroup, machine),
    )


def _trial(end: Exit | None) -> Work:
    if end is None:
        return Work()
    counted = {"user_s": end.user_cpu_s, "system_s": end.system_cpu_s, **(end.resources or {})}
    return Work(**{name: counted.get(name) for name in (*_COUNTS, *_BYTES)})


def _method(said: Mapping[str, Any]) -> Work:
    before, after = said.get("before"), said.get("after")
    if not before or not after:
        return Work()
    return Work(
        **{
            name: None
            if before.get(name) is None or after.get(name) is None
            else after[name] - before[name]
            for name in (*_COUNTS, *_BYTES)
        }
    )


def _cgroup(
    end: Exit | None, watched: Watched | None
) -> tuple[str | None, bool, Mapping[str, float | None]]:
    """From inside the container if it had one, whose counters began with the trial."""
    inside = (end.cgroup if end else None) or {}
    if inside:
        zero = dict.fromkeys(inside, 0)
        return inside.get("path"), True, cgroup_between(zero, inside)
    if not watched or not watched.before.snapshot.cgroup:
        return None, False, {}
    before, after = (state.snapshot.cgroup for state in (watched.before, watched.after))
    return after.get("path"), watched.own_cgroup, cgroup_between(before, after)


def _others(machine: Counters | None, trial: Work, watched: Watched | None) -> float | None:
    """Steps of 10 ms a core make this a little less than nothing at times: then it is nothing."""
    if not watched or not machine or machine.busy_s is None or trial.user_s is None:
        return None
    # An orphan of the trial is in the second figure only, a container's process in the first.
    of_trial = max(trial.user_s + (trial.system_s or 0.0), watched.children_cpu_s)
    return max(0.0, machine.busy_s - of_trial - watched.harness_cpu_s)


def _max_percent(
    record: Mapping[str, Any], end: Exit | None, tree: TreeUsage | None
) -> float | None:
    """The busiest window of 0.1 s; for shorter trials the method's own mean, or the trial's."""
    method = record.get("phases", {}).get("method", {})
    candidates = [tree.max_cpu_percent] if tree and tree.max_cpu_percent is not None else []
    if method.get("wall_s", 0.0) >= _SHORTEST_S:
        candidates.append(round(method["cpu_s"] / method["wall_s"] * 100.0, 1))
    if not candidates and end and end.elapsed_s > 0:
        candidates.append(round((end.user_cpu_s + end.system_cpu_s) / end.elapsed_s * 100.0, 1))
    return max(candidates, default=None)


def _reasons(
    trial: Work, method: Work, cgroup: Mapping[str, float | None], machine: Counters | None
) -> Mapping[str, str]:
    reasons = {}
    if trial.user_s is None:
        reasons["trial"] = "perfrun did not see the worker's end"
    elif trial.read_bytes is None:
        reasons["trial.read_bytes"] = "the kernel did not show /proc/PID/io of the ended worker"
    if method.user_s is None:
        reasons["method"] = "the method did not come to its end in the worker"
    if cgroup.get("throttled_s") is None:
        reasons["cgroup.throttled_s"] = (
            "the worker ran in no control group of the cpu controller but the root"
        )
    if cgroup.get("cpu_pressure_s") is None:
        reasons["cgroup.cpu_pressure_s"] = (
            "control groups have pressure in version 2 only, and not the root"
        )
    if machine is None:
        reasons["machine"] = "the machine was not watched"
        return reasons
    if machine.cpu_pressure_s is None:
        reasons["machine.cpu_pressure_s"] = "this kernel has no /proc/pressure"
    if machine.thermal_throttles is None:
        reasons["machine.thermal_throttles"] = (
            "no processor of this machine counts them in /sys, as in most virtual machines"
        )
    return reasons


_NOT_WATCHED = "perfrun did not watch this trial"


@dataclass(frozen=True, kw_only=True)
class MeasuredSections:
    """The sections `usage`, `memory`, `cpu`, `devices` and `energy` of a summary."""

    usage: Usage = field(default_factory=Usage)
    memory: Memory
    cpu: Cpu
    devices: DevicesUsage
    energy: Energy


def bring_together(
    record: Mapping[str, Any],
    end: Exit | None,
    watched: Watched | None,
    *,
    own_peak_rss_bytes: int,
) -> MeasuredSections:
    """Make the sections from what the worker said, how it ended, and what was watched.

    `end` and `watched` are None of a trial whose worker did not start, or whose harness was killed.
    """
    tree = watched.tree if watched else None
    devices = watched.devices if watched else DevicesUsage(reason=_NOT_WATCHED)
    observer = [
        seconds
        for seconds in (tree.observer_cpu_s if tree else None, devices.observer_cpu_s)
        if seconds is not None
    ]
    return MeasuredSections(
        usage=Usage(
            elapsed_s=end.elapsed_s if end else None,
            samples=tree.samples if tree else 0,
            sampling_rate_hz=tree.rate_hz if tree else None,
            observer_cpu_s=sum(observer) if observer else None,
            harness_cpu_s=watched.harness_cpu_s if watched else None,
        ),
        memory=memory_section(record, end, tree, devices, own_peak_rss_bytes=own_peak_rss_bytes),
        cpu=cpu_section(record, end, watched),
        devices=devices,
        energy=watched.energy if watched else Energy(reasons={"all": _NOT_WATCHED}),
    )


def process_info(measured: MeasuredSections) -> dict[str, float]:
    """PerfZero's three keys, then numbers only: a known consumer reads every value as one."""
    memory, cpu = measured.memory, measured.cpu
    allocated = [item.peak.bytes for item in memory.device if item.what == "allocated"]
    used = [item.peak.bytes for item in memory.device if item.what == "device"]
    values = {
        "max_rss": memory.process_rss.bytes,
        "max_vms": memory.process_vms.bytes,
        "max_cpu_percent": cpu.max_percent,
        "max_tree_rss": memory.tree_rss.bytes,
        "max_tree_pss": memory.tree_pss.bytes,
        "max_cgroup_memory": memory.cgroup.peak.bytes,
        "max_device_allocated": _sum(allocated),
        "max_device_used": _sum(used),
        "user_cpu_time": cpu.trial.user_s,
        "system_cpu_time": cpu.trial.system_s,
        "voluntary_context_switches": cpu.trial.voluntary_switches,
        "involuntary_context_switches": cpu.trial.involuntary_switches,
        "major_page_faults": cpu.trial.major_faults,
        "read_bytes": cpu.trial.read_bytes,
        "written_bytes": cpu.trial.written_bytes,
    }
    return {key: value for key, value in values.items() if value is not None}


def _sum(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None
