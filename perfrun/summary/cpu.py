"""Build the measured sections of a summary; that of the CPU is here, memory's in `memory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfrun.dataclass import dataclass, field
from perfrun.launchers.launcher import Exit
from perfrun.probes.accelerators import DevicesUsage
from perfrun.probes.counters import Counters, counters_between, increase
from perfrun.probes.process_tree import TreeUsage
from perfrun.probes.watch import Energy, Watched, cgroup_between
from perfrun.summary.document import Usage
from perfrun.summary.memory import Memory, memory_section

_SHORTEST_S = 0.01  # of shorter methods, CPU over wall time shows the clocks' steps
_NOT_WATCHED = "perfrun did not watch this trial"


@dataclass(frozen=True, kw_only=True)
class Work:
    """The kernel's counts for a trial or its method, children that were waited for included."""

    user_s: float | None = None
    system_s: float | None = None
    voluntary_switches: int | None = None  # the process waited
    involuntary_switches: int | None = None  # the kernel preempted it
    minor_faults: int | None = None  # page faults that needed no disk
    major_faults: int | None = None
    read_bytes: int | None = None  # from storage
    written_bytes: int | None = None  # to storage, sooner or later
    cancelled_bytes: int | None = None  # of these, dropped before they reached storage
    read_call_bytes: int | None = None  # by read(2) and the like, from any source
    written_call_bytes: int | None = None


_COUNTS = tuple(Work.__annotations__)


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """The section `cpu`: CPU time, input and output. None is unknown; `reasons` says why."""

    trial: Work  # from the worker's start to its end
    method: Work  # the method alone
    max_percent: float | None  # of one core, largest window of 0.1 s or more
    # The control group that the worker ran in: its throttling and pressure.
    cgroup_path: str | None
    cgroup_own: bool  # nothing but the trial ran in it
    cgroup: Mapping[str, float | None] = field(default_factory=dict)
    machine: Counters | None = None  # of the whole machine during the trial
    others_busy_s: float | None = None  # CPU time of all but the trial and perfrun
    reasons: Mapping[str, str] = field(default_factory=dict)


def cpu_section(reported: Mapping[str, Any], end: Exit | None, watched: Watched | None) -> Cpu:
    """Build the section from the kernel's figures of the worker and of the machine."""
    trial = _trial(end)
    method = _method(reported.get("resources", {}))
    machine = counters_between(watched.before.snapshot, watched.after.snapshot) if watched else None
    path, own, cgroup = _cgroup(end, watched)
    return Cpu(
        trial=trial,
        method=method,
        max_percent=_max_percent(reported, end, watched.tree if watched else None),
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
    return Work(**{name: counted.get(name) for name in _COUNTS})


def _method(resources: Mapping[str, Any]) -> Work:
    before, after = resources.get("before"), resources.get("after")
    if not before or not after:
        return Work()
    return Work(**{name: increase(before.get(name), after.get(name)) for name in _COUNTS})


def _cgroup(
    end: Exit | None, watched: Watched | None
) -> tuple[str | None, bool, Mapping[str, float | None]]:
    """Return path, ownership and added counts of the trial's control group.

    A container's own figures go first: its counters began with the trial.
    """
    inside = (end.cgroup if end else None) or {}
    if inside:
        zero = dict.fromkeys(inside, 0)
        return inside.get("path"), True, cgroup_between(zero, inside)
    if not watched or not watched.before.snapshot.cgroup:
        return None, False, {}
    before, after = (state.snapshot.cgroup for state in (watched.before, watched.after))
    return after.get("path"), watched.own_cgroup, cgroup_between(before, after)


def _others(machine: Counters | None, trial: Work, watched: Watched | None) -> float | None:
    """Return the CPU time of other processes; the counters' steps of 10 ms can make it negative."""
    if not watched or not machine or machine.busy_s is None or trial.user_s is None:
        return None
    # The first figure lacks the trial's orphans, the second the processes of a container.
    of_trial = max(trial.user_s + (trial.system_s or 0.0), watched.children_cpu_s)
    return max(0.0, machine.busy_s - of_trial - watched.harness_cpu_s)


def _max_percent(
    reported: Mapping[str, Any], end: Exit | None, tree: TreeUsage | None
) -> float | None:
    """Return the busiest window of 0.1 s; for shorter trials the method's mean, or the trial's."""
    method = reported.get("phases", {}).get("method", {})
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
        reasons["trial"] = "perfrun did not see the worker end"
    elif trial.read_bytes is None:
        reasons["trial.read_bytes"] = "the kernel did not show /proc/PID/io of the ended worker"
    if method.user_s is None:
        reasons["method"] = "the method did not end in the worker"
    if cgroup.get("throttled_s") is None:
        reasons["cgroup.throttled_s"] = (
            "the worker ran in no control group with the cpu controller except the root"
        )
    if cgroup.get("cpu_pressure_s") is None:
        reasons["cgroup.cpu_pressure_s"] = (
            "only control groups of version 2 have pressure figures, and the root has none"
        )
    if machine is None:
        reasons["machine"] = "the machine was not watched"
        return reasons
    if machine.cpu_pressure_s is None:
        reasons["machine.cpu_pressure_s"] = "this kernel has no /proc/pressure"
    if machine.thermal_throttles is None:
        reasons["machine.thermal_throttles"] = (
            "/sys has no such counter on this machine, as on most virtual machines"
        )
    return reasons


@dataclass(frozen=True, kw_only=True)
class MeasuredSections:
    """The sections `usage`, `memory`, `cpu`, `devices` and `energy` of a summary."""

    usage: Usage = field(default_factory=Usage)
    memory: Memory
    cpu: Cpu
    devices: DevicesUsage
    energy: Energy


def bring_together(
    reported: Mapping[str, Any],
    end: Exit | None,
    watched: Watched | None,
    *,
    own_peak_rss_bytes: int,
) -> MeasuredSections:
    """Build the sections from the worker's own figures, its end and the observations outside.

    `end` and `watched` are None when the worker did not start or the harness was killed.
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
        memory=memory_section(reported, end, tree, devices, own_peak_rss_bytes=own_peak_rss_bytes),
        cpu=cpu_section(reported, end, watched),
        devices=devices,
        energy=watched.energy if watched else Energy(reasons={"all": _NOT_WATCHED}),
    )


def process_info(measured: MeasuredSections) -> dict[str, float]:
    """Return PerfZero's three keys and more; all are numbers, as a known consumer expects."""
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
