"""Everything that was measured of a trial but the method's own reports, brought together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfrun.cpu import Cpu, cpu_section
from perfrun.dataclass import dataclass, field
from perfrun.document import Usage
from perfrun.launchers.contract import Exit
from perfrun.memory import Memory, memory_section
from perfrun.probes.devices import DevicesUsage
from perfrun.probes.watch import Energy, Watched

_NOT_WATCHED = "perfrun did not watch this trial"


@dataclass(frozen=True, kw_only=True)
class Measured:
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
) -> Measured:
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
    return Measured(
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


def process_info(measured: Measured) -> dict[str, float]:
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
