"""The most floating-point operations a second that this machine's processors can do.

A bound, not an estimate: cores times the highest clock times what the widest instructions can do in
a cycle. A measured rate above it is wrong.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

# Single-precision operations per core and cycle: two units of fused multiply-add (two operations)
# on as many numbers as a register holds, which no core of the kind exceeds. Sources: "Intel 64 and
# IA-32 Architectures Optimization Reference Manual"; AMD "Software Optimization Guide" (Zen 5);
# Arm "Neoverse V1" and "A64FX" guides.
_BY_FLAG = (("avx512f", 64), ("avx2", 32), ("avx", 16), ("sve", 64), ("asimd", 32), ("sse2", 8))
_FASTEST_HZ = 6.2e9  # no processor is sold with a higher clock
_CPUS = Path("/sys/devices/system/cpu")
_BOOSTS = ("cpufreq/boost", "cpu0/cpufreq/boost")  # of all; since Linux 6.11 of each, too


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The bound, and how it comes about; or why it is not known."""

    flops_per_s: float | None
    cores: int
    how: str = ""
    why_unknown: str | None = None


def read_peak() -> Peak:
    """Ask this machine. Containers on it have the same processors."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    max_khz = highest_khz(_CPUS)
    return peak(_text(Path("/proc/cpuinfo")), max_khz, cores, platform.machine())


def highest_khz(cpus: Path) -> str:
    """Read cpuinfo_max_freq below `cpus`; empty where processors may run faster than it says.

    The driver acpi-cpufreq leaves the boost out of it (Documentation/admin-guide/pm/cpufreq.rst).
    """
    if any(_text(cpus / boost).strip() == "1" for boost in _BOOSTS):
        return ""
    return _text(cpus / "cpu0/cpufreq/cpuinfo_max_freq")


def peak(cpuinfo: str, max_khz: str, cores: int, architecture: str) -> Peak:
    """Work it out from the text of /proc/cpuinfo and cpuinfo_max_freq (kHz; empty: not known)."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    known = [(flag, operations) for flag, operations in _BY_FLAG if flag in flags]
    if not known:
        why = f"what a core of this {architecture} machine does in a cycle is not known"
        return Peak(flops_per_s=None, cores=cores, why_unknown=why)
    flag, operations = max(known, key=lambda pair: pair[1])
    hertz, clock = _FASTEST_HZ, f"{_FASTEST_HZ / 1e9:g} GHz, as no core is faster"
    if max_khz.strip().isdigit():
        hertz = int(max_khz) * 1e3
        clock = f"{hertz / 1e9:g} GHz"
    return Peak(
        flops_per_s=cores * operations * hertz,
        cores=cores,
        how=f"{cores} cores x {operations} a cycle ({flag}) x {clock}",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
