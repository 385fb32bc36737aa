"""Read facts about the processor: its name, instructions, caches and frequency.

/proc and /sys come first: they are right and take a fifth of a millisecond. py-cpuinfo names a
processor that the kernel does not (ARM, macOS). It is not asked for caches: on AMD it gives out the
L2 cache of one core, which /proc/cpuinfo calls `cache size`, as L3; and on x86 it takes a second.
Sources: Documentation/ABI/testing/sysfs-devices-system-cpu of the kernel.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from perfrun.dataclass import dataclass
from perfrun.probes.sysfs import Sysfs, frequency_khz, policies
from perfrun.worker.cgroups import whole_number

CpuInfo = Sequence[tuple[str, str]]  # the lines of /proc/cpuinfo
_NODES = "/sys/devices/system/node/online"
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_MOST_POLICIES = 16  # of frequency: reading hundreds would take milliseconds


@dataclass(frozen=True, kw_only=True)
class Cache:
    """One cache of the first CPU."""

    level: int
    kind: str  # data, instruction or unified
    size_bytes: int
    shared_by: int | None  # CPUs that share it, the first one included


@dataclass(frozen=True, kw_only=True)
class Frequency:
    """The frequency of the processor; None is unknown, and `reason` says why."""

    current_mhz: float | None  # the highest of the first four policies, at that moment
    min_mhz: float | None  # the lowest and the highest that the governor may choose
    max_mhz: float | None
    reason: str | None


def read_cpuinfo(text: str | None) -> CpuInfo:
    """Split /proc/cpuinfo into names and values; its lines repeat for each CPU."""
    pairs = (line.partition(":") for line in (text or "").splitlines() if ":" in line)
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def cpu_identity(processors: CpuInfo) -> tuple[str, str | None]:
    """Return the name of the processor, as PerfZero's, and its flags.

    They are the kernel's; where it gives no name, those of py-cpuinfo.
    """
    named, flags = _first(processors, "model name"), cpu_flags(processors)
    if named:
        return named, flags
    try:
        import cpuinfo

        said = cpuinfo.get_cpu_info()
        named = said.get("brand_raw")
        flags = flags or " ".join(said.get("flags") or ()) or None
    except Exception:  # py-cpuinfo raises plain Exceptions on processors it does not know
        named = None
    return str(named or platform.processor()), flags


def cpu_flags(processors: CpuInfo) -> str | None:
    """Return the instruction sets and features of the first CPU in one line, as the kernel does."""
    return _first(processors, "flags") or _first(processors, "Features")


def cpu_microcode(processors: CpuInfo) -> str | None:
    """Return the revision of the first CPU's microcode; None where the kernel does not tell."""
    return _first(processors, "microcode")


def numa_node_count(sysfs: Sysfs) -> int | None:
    """Return the number of NUMA nodes; None where the kernel shows none."""
    return _listed(sysfs.text(_NODES))


def cpu_caches(sysfs: Sysfs) -> tuple[Cache, ...]:
    """Return the caches of the first CPU, by level; empty where the kernel shows none."""
    found = []
    for name in sysfs.names(_CACHES, "index[0-9]*"):
        folder = f"{_CACHES}/{name}"
        level, size = sysfs.number(f"{folder}/level"), _size(sysfs.text(f"{folder}/size"))
        if level is None or size is None:  # ARM's firmware may not tell the sizes
            continue
        cache = Cache(
            level=level,
            kind=(sysfs.text(f"{folder}/type") or "unknown").lower(),
            size_bytes=size,
            shared_by=_listed(sysfs.text(f"{folder}/shared_cpu_list")),
        )
        found.append(cache)
    return tuple(sorted(found, key=lambda cache: (cache.level, cache.kind)))


def cpu_frequency(sysfs: Sysfs, processors: CpuInfo) -> Frequency:
    """Return the frequency by cpufreq; else by /proc/cpuinfo, unless a hypervisor invented it."""
    folders = policies(sysfs)[:_MOST_POLICIES]
    low, high = (
        [khz for folder in folders if (khz := sysfs.number(f"{folder}/scaling_{name}_freq"))]
        for name in ("min", "max")
    )
    now_khz = frequency_khz(sysfs)
    stated = _megahertz(_first(processors, "cpu MHz"))
    reason = None
    if not folders:
        reason = "the kernel has no cpufreq here"
        if "hypervisor" in (cpu_flags(processors) or "").split():
            reason = "the host of this virtual machine decides" + (
                f"; /proc/cpuinfo has a constant {stated:g} MHz" if stated else ""
            )
            stated = None
    return Frequency(
        current_mhz=now_khz / 1e3 if now_khz else stated,
        min_mhz=min(low) / 1e3 if low else None,
        max_mhz=max(high) / 1e3 if high else None,
        reason=reason,
    )


def _first(processors: CpuInfo, wanted: str) -> str | None:
    return next((value for key, value in processors if key == wanted and value), None)


def _megahertz(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _size(text: str | None) -> int | None:
    """Return the bytes of `32K`; None for anything else."""
    count = whole_number(text[:-1]) if text and text[-1] in _UNITS else None
    return count * _UNITS[text[-1]] if text and count is not None else None


def _listed(text: str | None) -> int | None:
    """Count the CPUs of `0-3,8`; None where the list is empty, as some hypervisors leave it."""
    count = 0
    for part in (text or "").split(","):
        ends = [whole_number(end) for end in part.split("-", 1)]
        if ends[0] is None or ends[-1] is None:
            return None
        count += ends[-1] - ends[0] + 1
    return count
