"""Read what the kernel shows as files. Whatever cannot be read is None, and nothing raises.

Figures about this machine that `perfrun doctor` and the runner both read.

None where the kernel does not say. Sources: proc(5); Documentation/admin-guide/pm/cpufreq.rst of
the kernel. What a trial adds to its counters is in `probes.system`.
"""

from __future__ import annotations

import fnmatch
import os
from functools import lru_cache

from perfrun.dataclass import dataclass


@dataclass(frozen=True)
class Sysfs:
    """The tree of /proc, /sys and /etc, or one that a test has made.

    Paths are given as they are on a real machine, from `/` on.
    """

    root: str = ""

    def text(self, path: str) -> str | None:
        """The contents of a file without blanks around them."""
        try:
            with open(self.root + path, "rb") as file:
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The whole number that a file begins with."""
        words = (self.text(path) or "").split()
        try:
            return int(words[0]) if words else None
        except ValueError:
            return None

    def exists(self, path: str) -> bool | None:
        """Whether a file or folder is there; None where this user may not look."""
        try:
            os.stat(self.root + path)
        except PermissionError:
            return None
        except (OSError, ValueError):
            return False
        return True

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """Names in a folder that match, `cpu2` before `cpu10`; empty when there is no folder."""
        try:
            found = os.listdir(self.root + folder)
        except OSError:
            return []
        return sorted(fnmatch.filter(found, pattern), key=lambda name: (len(name), name))

    def table(self, path: str) -> dict[str, str]:
        """A file of `name value` or `name: value` lines."""
        lines = (line.split(None, 1) for line in (self.text(path) or "").splitlines())
        return {words[0].rstrip(":"): words[1] for words in lines if len(words) == 2}


_CPUS = "/sys/devices/system/cpu"
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class CpuTimes:
    """Seconds since boot, summed over all CPUs. A tick of 10 ms is the finest step."""

    cpus: int
    busy_s: float  # user, nice and system; guests are part of user
    interrupts_s: float  # hard and soft: nobody's in particular
    idle_s: float  # waiting for disks included
    steal_s: float  # wanted, but the hypervisor ran somebody else


@dataclass(frozen=True, kw_only=True)
class MemInfo:
    """Bytes, as /proc/meminfo has them."""

    total_bytes: int
    available_bytes: int | None
    swap_total_bytes: int | None
    swap_used_bytes: int | None


def cpu_times(sysfs: Sysfs) -> CpuTimes | None:
    """The first line of /proc/stat; None without one, or where a sandbox shows zeros only."""
    lines = (sysfs.text("/proc/stat") or "").splitlines()
    cpus = 0
    for line in lines[1:]:
        if not line.startswith("cpu"):
            break
        cpus += 1
    try:
        ticks = [int(word) for word in lines[0].split()[1:9]]
        user, nice, system, idle, waiting, hard, soft, steal = ticks
    except (IndexError, ValueError):
        return None
    if not any(ticks):
        return None
    return CpuTimes(
        cpus=max(1, cpus),
        busy_s=(user + nice + system) * _TICK_S,
        interrupts_s=(hard + soft) * _TICK_S,
        idle_s=(idle + waiting) * _TICK_S,
        steal_s=steal * _TICK_S,
    )


def load_1min(sysfs: Sysfs) -> float | None:
    """Tasks that ran or wanted to, a mean over the last minute or so."""
    words = (sysfs.text("/proc/loadavg") or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None


def memory(sysfs: Sysfs) -> MemInfo | None:
    """What /proc/meminfo says."""
    table = sysfs.table("/proc/meminfo")
    total = _kilobytes(table, "MemTotal")
    if total is None:
        return None
    swap, free = _kilobytes(table, "SwapTotal"), _kilobytes(table, "SwapFree")
    return MemInfo(
        total_bytes=total,
        available_bytes=_kilobytes(table, "MemAvailable"),
        swap_total_bytes=swap,
        swap_used_bytes=None if swap is None or free is None else swap - free,
    )


def _kilobytes(table: dict[str, str], name: str) -> int | None:
    try:
        return int(table[name].split()[0]) * 1024
    except (KeyError, ValueError):
        return None


def governors(sysfs: Sysfs, most: int | None = None) -> tuple[str, ...]:
    """The frequency governors in use, each once; empty where frequencies are not ours to set.

    Of the first `most` policies only: a machine may have hundreds.
    """
    found = (sysfs.text(f"{policy}/scaling_governor") for policy in policies(sysfs)[:most])
    return tuple(sorted({governor for governor in found if governor}))


@lru_cache(maxsize=64)
def policies(sysfs: Sysfs) -> tuple[str, ...]:
    """The folders of the frequency policies, one for CPUs that change speed together.

    Kept: they do not come and go, and listing them would be most of the cost of reading them.
    """
    folder = f"{_CPUS}/cpufreq"
    return tuple(f"{folder}/{name}" for name in sysfs.names(folder, "policy*"))


def top_frequencies_khz(sysfs: Sysfs, most: int | None = None) -> tuple[int, ...]:
    """The highest frequency that each policy may use now; thermal and power caps lower it."""
    found = (sysfs.number(f"{policy}/scaling_max_freq") for policy in policies(sysfs)[:most])
    return tuple(value for value in found if value is not None)


def frequency_khz(sysfs: Sysfs) -> int | None:
    """The fastest current frequency of the first policies.

    Not of all: kernels before 5.18 may sleep 10 ms for each.
    """
    found = [sysfs.number(f"{policy}/scaling_cur_freq") for policy in policies(sysfs)[:4]]
    return max((value for value in found if value), default=None)


def smt_active(sysfs: Sysfs) -> bool | None:
    """Whether two hardware threads share a core."""
    active = sysfs.number(f"{_CPUS}/smt/active")
    return None if active is None else bool(active)


@lru_cache(maxsize=64)
def core_count(sysfs: Sysfs) -> int | None:
    """Physical cores that are online, by their siblings; None where the kernel names none."""
    siblings = {
        sysfs.text(f"{_CPUS}/{cpu}/topology/thread_siblings_list")
        for cpu in sysfs.names(_CPUS, "cpu[0-9]*")
    } - {None}
    return len(siblings) or None


def turbo_active(sysfs: Sysfs) -> bool | None:
    """Whether the processor may go beyond its nominal frequency."""
    off = sysfs.number(f"{_CPUS}/intel_pstate/no_turbo")
    if off is not None:
        return not off
    boost = [sysfs.number(f"{_CPUS}/cpufreq/boost")]
    boost += [sysfs.number(f"{policy}/boost") for policy in policies(sysfs)]
    known = [value for value in boost if value is not None]
    return any(known) if known else None
