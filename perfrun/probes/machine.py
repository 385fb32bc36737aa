"""Facts about this machine, asked once a run. Absent is None, never zero."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from perfrun.checks import readings
from perfrun.checks.sysfs import Sysfs
from perfrun.dataclass import dataclass
from perfrun.probes.gpu import Accelerators, accelerators


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What PerfZero's `system_info` needs, and more."""

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


def machine() -> Machine:
    """Ask the system. Takes a few milliseconds where /proc/cpuinfo names the processor."""
    processors = _proc_cpuinfo()
    sockets = {value for key, value in processors if key == "physical id"}
    affinity = getattr(os, "sched_getaffinity", None)
    return Machine(
        cpu_model=_cpu_model(processors),
        physical_cpu_count=readings.core_count(Sysfs()) or _physical_cpu_count(),
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
    )


def _proc_cpuinfo() -> list[tuple[str, str]]:
    text = _read("/proc/cpuinfo") or ""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def _logical_cpu_count() -> int | None:
    """The kernel's number: os.cpu_count obeys PYTHON_CPU_COUNT and -X cpu_count (Python 3.13)."""
    try:
        count = os.sysconf("SC_NPROCESSORS_ONLN")
    except (AttributeError, OSError, ValueError):
        return os.cpu_count()
    return count if count > 0 else os.cpu_count()


def _physical_cpu_count() -> int | None:
    """Where the kernel shows no siblings. psutil's import is a tenth of a run of one no-op."""
    import psutil

    return psutil.cpu_count(logical=False)


def _memory_bytes() -> int:
    """What the kernel has to give, by MemTotal; psutil's figure where there is none."""
    words = (_read("/proc/meminfo") or "").split(None, 2)
    if len(words) > 1 and words[0] == "MemTotal:" and words[1].isdigit():
        return int(words[1]) * 1024
    import psutil

    return int(psutil.virtual_memory().total)


def _cpu_model(processors: list[tuple[str, str]]) -> str:
    """The kernel's name of the processor, as PerfZero's.

    Where /proc/cpuinfo has none (ARM, macOS), py-cpuinfo finds it in other ways; it takes about a
    second, which is why it is not asked first.
    """
    named = [value for key, value in processors if key == "model name" and value]
    if named:
        return named[0]
    try:
        import cpuinfo

        return str(cpuinfo.get_cpu_info().get("brand_raw") or platform.processor())
    except Exception:  # py-cpuinfo raises plain Exceptions on processors it does not know
        return platform.processor()


def _operating_system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _memory_limit() -> int | None:
    """The memory limit of this process's cgroup, v2 or v1, as seen from where we are."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(path)
        # cgroup v1 says "no limit" with a number near 2**63.
        if text and text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _cpu_limit() -> float | None:
    quota, period = _read("/sys/fs/cgroup/cpu.max"), None
    if quota:
        quota, _, period = quota.partition(" ")
    else:
        quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota and period and quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _user() -> str | None:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        return str(os.getuid())


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
