"""Read figures about this machine from /proc, /sys and /etc, for `perfrun doctor` and for runs.

A figure that cannot be read is None, and nothing raises. Sources: proc(5);
Documentation/admin-guide/pm/cpufreq.rst of the kernel.
"""

from __future__ import annotations

import fnmatch
import os
from functools import lru_cache

from perfrun.dataclass import dataclass
from perfrun.worker.cgroups import whole_number

_HOST_PID_NAMESPACE = 0xEFFFFFFC  # inode of the first one (include/linux/proc_ns.h)
_CPUS = "/sys/devices/system/cpu"
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sysfs:
    """The files of /proc, /sys and /etc, or a copy of them below `root`.

    Paths are those of a real machine and begin with `/`.
    """

    root: str = ""

    def text(self, path: str) -> str | None:
        """Return a file's contents without surrounding blanks."""
        try:
            with open(self.root + path, "rb") as file:
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return the integer that a file begins with."""
        words = (self.text(path) or "").split()
        try:
            return int(words[0]) if words else None
        except ValueError:
            return None

    def exists(self, path: str) -> bool | None:
        """Return True when a file or folder exists; None where this user may not look."""
        try:
            os.stat(self.root + path)
        except PermissionError:
            return None
        except (OSError, ValueError):
            return False
        return True

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """List the matching names in a folder, `cpu2` before `cpu10`; empty without the folder."""
        try:
            found = os.listdir(self.root + folder)
        except OSError:
            return []
        return sorted(fnmatch.filter(found, pattern), key=lambda name: (len(name), name))

    def table(self, path: str) -> dict[str, str]:
        """Parse a file of `name value` or `name: value` lines."""
        lines = (line.split(None, 1) for line in (self.text(path) or "").splitlines())
        return {words[0].rstrip(":"): words[1] for words in lines if len(words) == 2}


def in_pid_namespace() -> bool:
    """Return True when pids here are not the host's (in a container); False where unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != _HOST_PID_NAMESPACE
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class CpuTimes:
    """CPU seconds since boot, summed over all CPUs, in ticks of 10 ms."""

    cpus: int
    busy_s: float  # user, nice and system; guests are part of user
    interrupts_s: float  # hard and soft; they belong to no process
    idle_s: float  # waiting for disks included
    steal_s: float  # the hypervisor ran something else on this machine's CPUs


@dataclass(frozen=True, kw_only=True)
class MemInfo:
    """Memory and swap of the machine, from /proc/meminfo."""

    total_bytes: int
    available_bytes: int | None
    swap_total_bytes: int | None
    swap_used_bytes: int | None


def cpu_times(sysfs: Sysfs) -> CpuTimes | None:
    """Read the first line of /proc/stat; None without one, or where a sandbox shows only zeros."""
    lines = (sysfs.text("/proc/stat") or "").splitlines()
    cpus = 0
    for line in lines[1:]:
        if not line.startswith("cpu"):
            break
        cpus += 1
    try:
        found = [whole_number(word) for word in lines[0].split()[1:9]]
        ticks = [count for count in found if count is not None]
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
    """Return the load: running and runnable tasks, averaged over about the last minute."""
    words = (sysfs.text("/proc/loadavg") or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None


def read_meminfo(sysfs: Sysfs) -> MemInfo | None:
    """Read /proc/meminfo."""
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
    """Return the frequency governors in use, each once; empty where the system has no cpufreq.

    Only the first `most` policies are read: a machine may have hundreds.
    """
    found = (sysfs.text(f"{policy}/scaling_governor") for policy in policies(sysfs)[:most])
    return tuple(sorted({governor for governor in found if governor}))


@lru_cache(maxsize=64)
def policies(sysfs: Sysfs) -> tuple[str, ...]:
    """List the folders of the frequency policies; the CPUs of one policy share a frequency.

    The list is kept: it does not change, and listing costs more than reading.
    """
    folder = f"{_CPUS}/cpufreq"
    return tuple(f"{folder}/{name}" for name in sysfs.names(folder, "policy*"))


def top_frequencies_khz(sysfs: Sysfs, most: int | None = None) -> tuple[int, ...]:
    """Return the highest frequency that each policy allows; thermal and power caps lower it."""
    found = (sysfs.number(f"{policy}/scaling_max_freq") for policy in policies(sysfs)[:most])
    return tuple(value for value in found if value is not None)


def frequency_khz(sysfs: Sysfs) -> int | None:
    """Return the highest current frequency of the first four policies.

    Reading all is too slow: kernels before 5.18 may sleep 10 ms for each.
    """
    found = [sysfs.number(f"{policy}/scaling_cur_freq") for policy in policies(sysfs)[:4]]
    return max((value for value in found if value), default=None)


def smt_active(sysfs: Sysfs) -> bool | None:
    """Return True when two hardware threads share a core."""
    active = sysfs.number(f"{_CPUS}/smt/active")
    return None if active is None else bool(active)


@lru_cache(maxsize=64)
def core_count(sysfs: Sysfs) -> int | None:
    """Count the online physical cores by their siblings; None where the kernel names none."""
    siblings = {
        sysfs.text(f"{_CPUS}/{cpu}/topology/thread_siblings_list")
        for cpu in sysfs.names(_CPUS, "cpu[0-9]*")
    } - {None}
    return len(siblings) or None


def turbo_active(sysfs: Sysfs) -> bool | None:
    """Return True when the processor may exceed its nominal frequency."""
    off = sysfs.number(f"{_CPUS}/intel_pstate/no_turbo")
    if off is not None:
        return not off
    boost = [sysfs.number(f"{_CPUS}/cpufreq/boost")]
    boost += [sysfs.number(f"{policy}/boost") for policy in policies(sysfs)]
    known = [value for value in boost if value is not None]
    return any(known) if known else None
