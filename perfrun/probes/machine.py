"""Read facts about this machine, once a run, and its state before and after each trial.

An unknown figure is None, never zero; outside Linux most figures are. Reading a state takes about
a millisecond. Sources: clock_gettime(2), getrusage(2); `probes.counters` has those of the counters.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from functools import lru_cache
from pathlib import Path

from perfrun.dataclass import dataclass
from perfrun.probes.accelerators import Accelerators
from perfrun.probes.amd import amd_accelerators
from perfrun.probes.counters import Snapshot, take_snapshot
from perfrun.probes.nvidia import nvidia_accelerators
from perfrun.probes.processor import (
    Cache,
    Frequency,
    cpu_caches,
    cpu_frequency,
    cpu_identity,
    cpu_microcode,
    numa_node_count,
    read_cpuinfo,
)
from perfrun.probes.sysfs import (
    Sysfs,
    core_count,
    frequency_khz,
    governors,
    read_meminfo,
    smt_active,
    top_frequencies_khz,
)
from perfrun.worker.cgroups import Cgroup, find_cgroup, whole_number

_read = Sysfs().text
_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
_MOST_POLICIES = 16  # of frequency: reading hundreds would take milliseconds


@dataclass(frozen=True, kw_only=True)
class AtStart:
    """The state of the machine when the run began. None is unknown."""

    memory_used_bytes: int | None  # what programs could not get without swapping
    memory_available_bytes: int | None
    swap_used_bytes: int | None
    cpu_frequency: Frequency


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts about this machine: those of PerfZero's `system_info`, and more."""

    cpu_model: str
    physical_cpu_count: int | None
    logical_cpu_count: int | None
    cpu_socket_count: int | None
    hostname: str
    accelerators: Accelerators | None
    usable_cpu_count: int | None  # this process's affinity mask
    memory_bytes: int | None
    kernel: str
    operating_system: str | None  # PRETTY_NAME of os-release
    architecture: str
    cgroup_memory_limit_bytes: int | None
    cgroup_cpu_limit: float | None  # cores
    user: str | None  # who started the run
    frequency_governor: str | None
    cpu_flags: str | None = None
    cpu_caches: tuple[Cache, ...] = ()
    microcode: str | None = None  # the revision that the first CPU runs
    numa_node_count: int | None = None
    at_start: AtStart | None = None  # it differs from run to run: no part of a series' key


def accelerators() -> Accelerators | None:
    """Return the NVIDIA devices, else the AMD ones; None without a driver or device."""
    return nvidia_accelerators() or amd_accelerators(Sysfs())


def machine() -> Machine:
    """Read the facts. It takes a few milliseconds where /proc/cpuinfo names the processor."""
    processors = read_cpuinfo(_read("/proc/cpuinfo"))
    model, flags = cpu_identity(processors)
    sockets = {value for key, value in processors if key == "physical id"}
    affinity = getattr(os, "sched_getaffinity", None)
    return Machine(
        cpu_model=model,
        physical_cpu_count=core_count(Sysfs()) or _physical_cpu_count(),
        logical_cpu_count=_logical_cpu_count(),
        cpu_socket_count=len(sockets) or None,
        hostname=platform.node(),
        accelerators=accelerators(),
        usable_cpu_count=len(affinity(0)) if affinity else None,
        memory_bytes=_memory_bytes(),
        kernel=platform.release(),
        operating_system=_operating_system(),
        architecture=platform.machine(),
        cgroup_memory_limit_bytes=_memory_limit(),
        cgroup_cpu_limit=_cpu_limit(),
        user=_user(),
        frequency_governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        cpu_flags=flags,
        cpu_caches=cpu_caches(Sysfs()),
        microcode=cpu_microcode(processors),
        numa_node_count=numa_node_count(Sysfs()),
        at_start=AtStart(**_memory_in_use(), cpu_frequency=cpu_frequency(Sysfs(), processors)),
    )


def _memory_in_use() -> dict[str, int | None]:
    """Return memory and swap in use by the kernel's word; by psutil where it has no meminfo."""
    found = read_meminfo(Sysfs())
    if found is not None:
        total, available = found.total_bytes, found.available_bytes
        swap_used = found.swap_used_bytes
    else:
        import psutil

        memory = psutil.virtual_memory()
        total, available, swap_used = memory.total, memory.available, psutil.swap_memory().used
    return {
        "memory_used_bytes": None if available is None else total - available,
        "memory_available_bytes": available,
        "swap_used_bytes": swap_used,
    }


def _logical_cpu_count() -> int | None:
    """Return the kernel's number: os.cpu_count obeys PYTHON_CPU_COUNT and -X cpu_count (3.13)."""
    try:
        count = os.sysconf("SC_NPROCESSORS_ONLN")
    except (AttributeError, OSError, ValueError):
        return os.cpu_count()
    return count if count > 0 else os.cpu_count()


def _physical_cpu_count() -> int | None:
    """Ask psutil, where /sys has no siblings: importing it takes a tenth of a no-op's run."""
    import psutil

    return psutil.cpu_count(logical=False)


def _memory_bytes() -> int:
    """Return the kernel's MemTotal, or psutil's figure where there is none."""
    words = (_read("/proc/meminfo") or "").split(None, 2)
    total = whole_number(words[1]) if len(words) > 1 and words[0] == "MemTotal:" else None
    if total is not None:
        return total * 1024
    import psutil

    return int(psutil.virtual_memory().total)


def _operating_system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _memory_limit() -> int | None:
    """Return the memory limit of this process's cgroup, v2 or v1, as this process sees it."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = whole_number(_read(path) or "")
        if limit is not None and limit < 1 << 60:  # v1 says "no limit" with a number near 2**63
            return limit
    return None


def _cpu_limit() -> float | None:
    quota, period = _read("/sys/fs/cgroup/cpu.max"), None
    if quota:
        quota, _, period = quota.partition(" ")
    else:
        quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    share, whole = whole_number(quota or ""), whole_number(period or "")
    return share / whole if share is not None and whole else None


def _user() -> str | None:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        return str(os.getuid())


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """The state of the machine at one moment. None is unknown."""

    snapshot: Snapshot
    cpus: int
    cores: int | None = None  # physical
    smt: bool | None = None
    own_cpu_s: float = 0.0  # of this process, since it began
    children_cpu_s: float = 0.0  # of all children that it has waited for
    wall_offset_s: float | None = None  # time of day less the monotonic clock
    suspended_s: float | None = None  # since boot
    governors: tuple[str, ...] = ()
    frequency_khz: int | None = None
    top_frequencies_khz: tuple[int, ...] = ()
    memory_bytes: int | None = None
    free_disk_bytes: int | None = None  # of the workspace


def machine_state(
    folder: Path, sysfs: Sysfs | None = None, *, cgroup: Cgroup | None = None
) -> MachineState:
    """Read the state now; `folder` is where results go, `cgroup` the trial's own group if any."""
    tree = sysfs or Sysfs()
    wall_offset_s, suspended_s = _clock_offsets()
    own, children = (resource.getrusage(who) for who in _WHO)
    return MachineState(
        snapshot=take_snapshot(cgroup or own_cgroup()),
        cpus=os.cpu_count() or 1,
        cores=core_count(tree),
        smt=smt_active(tree),
        own_cpu_s=own.ru_utime + own.ru_stime,
        children_cpu_s=children.ru_utime + children.ru_stime,
        wall_offset_s=wall_offset_s,
        suspended_s=suspended_s,
        governors=governors(tree, _MOST_POLICIES),
        frequency_khz=frequency_khz(tree),
        top_frequencies_khz=top_frequencies_khz(tree, _MOST_POLICIES),
        memory_bytes=_physical_memory_bytes(),
        free_disk_bytes=free_disk_bytes(folder),
    )


@lru_cache(maxsize=1)
def own_cgroup() -> Cgroup | None:
    """Return the control group of perfrun and its local trials, which does not change."""
    return find_cgroup()


def _clock_offsets() -> tuple[float | None, float | None]:
    """Return time of day less monotonic clock, and boot time less monotonic clock, in seconds.

    Of three readings the quickest counts: a busy machine may preempt this thread between two
    clocks for milliseconds.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    best: tuple[int, float, float | None] | None = None
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        booted = None if boot is None else time.clock_gettime_ns(boot)
        after = time.monotonic_ns()
        middle = (before + after) // 2
        offsets = ((wall - middle) / 1e9, None if booted is None else (booted - middle) / 1e9)
        if best is None or after - before < best[0]:
            best = (after - before, *offsets)
    assert best is not None
    return best[1], best[2]


def _physical_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def free_disk_bytes(folder: Path) -> int | None:
    """Return the bytes that an ordinary user may still write to the disk of `folder`."""
    try:
        found = os.statvfs(nearest_folder(folder))
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


def nearest_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    for place in (folder, *folder.parents):
        try:
            if place.exists():
                return place
        except OSError:
            return place
    return folder
