"""The control group of a process: its memory peak, CPU throttling, pressure; cgroup v1 and v2.

The harness reads it for processes of this host, the supervisor inside a container. What a kernel, a
version or a container does not show is None. Sources: Documentation/accounting/psi.rst,
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

_NO_LIMIT = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63
_RESOURCES = ("cpu", "memory", "io")


class Cgroup:
    """The folders in which the kernel shows one control group.

    On v1 every controller has a hierarchy of its own, and pressure is only in the unified (v2) one
    that systemd mounts beside them; on v2 all folders are the same.
    """

    def __init__(
        self,
        version: int,
        memory: Optional[str] = None,
        cpu: Optional[str] = None,
        cpuacct: Optional[str] = None,
        unified: Optional[str] = None,
    ) -> None:
        self.version = version
        # The root's figures are those of the whole machine, not of a group.
        self.memory, self._memory_folder = memory, _unless_root(memory, version)
        self.cpu, self._cpu_folder = cpu, _unless_root(cpu, version)
        self.cpuacct, self._cpuacct_folder = cpuacct, _unless_root(cpuacct, version)
        self.unified, self._unified_folder = unified, _unless_root(unified, 2)

    @property
    def path(self) -> Optional[str]:
        """The folder that memory is read from, or else any other."""
        return self.memory or self.unified or self.cpu or self.cpuacct

    def read(self) -> Dict[str, Any]:
        """Return all figures: bytes, counts, and seconds since the group was made.

        `memory_peak_bytes` is the kernel's own mark over all processes that the group ever had,
        page cache and tmpfs included. All figures of the root are None. `file_bytes` includes
        `shmem_bytes`. The split into anonymous memory and files is that of the moment of reading;
        `PeakSplit` has that of the peak. In `*_pressure_s` at least one task waited (PSI "some"),
        in `*_pressure_full_s` all tasks.
        """
        figures: Dict[str, Any] = {"version": self.version, "path": self.path}
        figures.update(self._memory())
        figures.update(self._cpu())
        for resource in _RESOURCES:
            some, full = self._pressure(resource)
            figures[resource + "_pressure_s"] = some
            figures[resource + "_pressure_full_s"] = full
        return figures

    def memory_now_bytes(self) -> Optional[int]:
        """Return what is charged to the group now: one small file, about 10 microseconds."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return _number(self._memory_folder, name)

    def memory_split(self) -> Dict[str, Optional[int]]:
        """Return anonymous memory, files (shared memory and tmpfs included) and shared memory.

        All are in bytes and include descendant groups.
        """
        stat = _table(self._memory_folder, "memory.stat")
        if self.version == 1:
            names = ("total_rss", "total_cache", "total_shmem")
        else:
            names = ("anon", "file", "shmem")
        anon, file, shmem = (stat.get(name) for name in names)
        return {"anon_bytes": anon, "file_bytes": file, "shmem_bytes": shmem}

    def _memory(self) -> Dict[str, Any]:
        if self.version == 1:
            peak = _number(self._memory_folder, "memory.max_usage_in_bytes")
            kills = _table(self._memory_folder, "memory.oom_control").get("oom_kill")
        else:
            peak = _number(self._memory_folder, "memory.peak")
            kills = _table(self._memory_folder, "memory.events").get("oom_kill")
        return {
            "memory_peak_bytes": peak,
            "memory_now_bytes": self.memory_now_bytes(),
            "memory_limit_bytes": self._memory_limit(),
            **self.memory_split(),
            "oom_kills": kills,
        }

    def _memory_limit(self) -> Optional[int]:
        """Return the smallest limit on the way up to the root; None when there is none."""
        if self.version == 1:
            limit = _table(self._memory_folder, "memory.stat").get("hierarchical_memory_limit")
            return limit if limit is not None and limit < _NO_LIMIT else None
        limits = [_number(folder, "memory.max") for folder in _upwards(self._memory_folder)]
        return min((limit for limit in limits if limit is not None), default=None)

    def _cpu(self) -> Dict[str, Any]:
        stat = _table(self._cpu_folder, "cpu.stat")
        if self.version == 1:
            used = _seconds(_number(self._cpuacct_folder, "cpuacct.usage"), 1e9)
            throttled = _seconds(stat.get("throttled_time"), 1e9)
        else:
            used = _seconds(stat.get("usage_usec"), 1e6)
            throttled = _seconds(stat.get("throttled_usec"), 1e6)
        return {
            "cpu_usage_s": used,
            "throttled_s": throttled,
            "throttled_periods": stat.get("nr_throttled"),
            "cpu_periods": stat.get("nr_periods"),
        }

    def _pressure(self, resource: str) -> Tuple[Optional[float], Optional[float]]:
        if self._unified_folder is None:
            return None, None
        return read_pressure(os.path.join(self._unified_folder, resource + ".pressure"))


class PeakSplit:
    """The split of a group's memory at the highest use that `look` has seen.

    The kernel keeps the height of the peak and not what it was made of: call `look` a few times a
    second (10 microseconds when nothing has grown).
    """

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup = cgroup
        self._highest = 0
        self.split: Dict[str, Optional[int]] = {}  # of `memory_split`; empty before the first look
        self.seen_bytes: Optional[int] = None  # what was in use then

    def look(self) -> None:
        """Read the split again if more is in use than ever before."""
        now = self._cgroup.memory_now_bytes()
        if now is not None and now > self._highest:
            self._highest = self.seen_bytes = now
            self.split = self._cgroup.memory_split()


def find_cgroup(pid: str = "self") -> Optional[Cgroup]:
    """Return the control group of a process as far as this process can see it; None without any."""
    try:
        with open("/proc/%s/cgroup" % pid, "rb") as file:
            groups = file.read().decode("utf-8", "surrogateescape")
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    return locate(groups, mounts)


def locate(groups: str, mounts: str) -> Optional[Cgroup]:
    """Find the group's folders from the texts of /proc/PID/cgroup and /proc/self/mountinfo."""
    places = list(_mounts(mounts))
    folders: Dict[str, Optional[str]] = {}
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):  # "" is the unified hierarchy
            folders[controller] = _folder(controller, path, places)
    unified = folders.get("")
    if folders.get("memory") or folders.get("cpu") or folders.get("cpuacct"):
        return Cgroup(
            version=1,
            memory=folders.get("memory"),
            cpu=folders.get("cpu"),
            cpuacct=folders.get("cpuacct"),
            unified=unified,
        )
    if unified is None:
        return None
    return Cgroup(version=2, memory=unified, cpu=unified, cpuacct=unified, unified=unified)


def whole_number(text: str) -> Optional[int]:
    """Return a decimal number of at most 64 bits; None for anything else.

    `str.isdigit` is true for a superscript, which `int` refuses, as it refuses 5,000 digits.
    """
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else None


def read_pressure(path: str) -> Tuple[Optional[float], Optional[float]]:
    """Return the seconds of "some" and of "full" in a PSI file; None for what the file lacks."""
    totals: Dict[str, float] = {}
    for line in _text(path).splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        count = whole_number(total)
        if count is not None:
            totals[kind] = count / 1e6
    return totals.get("some"), totals.get("full")


def _is_root(folder: str, version: int) -> bool:
    """Return True for the root of a hierarchy: it alone has (v1) or lacks (v2) a certain file."""
    if version == 1:
        return os.path.exists(os.path.join(folder, "release_agent"))
    return not os.path.exists(os.path.join(folder, "cgroup.events"))


def _unless_root(folder: Optional[str], version: int) -> Optional[str]:
    return None if folder is None or _is_root(folder, version) else folder


def _mounts(text: str) -> Iterator[Tuple[str, str, str, List[str]]]:
    """Yield type, root, place and options of every cgroup mount."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if kind[0] in ("cgroup", "cgroup2") and len(fields) > 4 and len(kind) > 2:
            yield kind[0], _plain(fields[3]), _plain(fields[4]), kind[2].split(",")


def _folder(controller: str, path: str, places: List[Any]) -> Optional[str]:
    """Return the folder of a controller's group, if one of the mounts shows it."""
    for kind, root, place, options in places:
        if (kind == "cgroup2") != (controller == "") or (controller and controller not in options):
            continue
        if root == "/":
            inside = path
        elif path == root or path.startswith(root.rstrip("/") + "/"):
            inside = path[len(root) :]
        else:
            continue
        folder = os.path.join(place, inside.lstrip("/")).rstrip("/")
        if "/../" not in folder + "/" and os.path.isdir(folder):
            return folder
    return None


def _plain(path: str) -> str:
    """Return a path of mountinfo, which writes blanks, tabs, newlines and backslashes in octal."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(octal, character)
    return path


def _upwards(folder: Optional[str]) -> Iterator[str]:
    """Yield the folder and its parents, as long as they are groups."""
    while folder and os.path.exists(os.path.join(folder, "cgroup.procs")):
        yield folder
        folder = os.path.dirname(folder)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("ascii", "replace")
    except OSError:
        return ""


def _number(folder: Optional[str], name: str) -> Optional[int]:
    text = _text(os.path.join(folder, name)).strip() if folder else ""
    return whole_number(text)


def _table(folder: Optional[str], name: str) -> Dict[str, int]:
    """Read a file of lines `key number`."""
    lines = _text(os.path.join(folder, name)).splitlines() if folder else []
    pairs = [line.split() for line in lines]
    counts = {pair[0]: whole_number(pair[1]) for pair in pairs if len(pair) == 2}
    return {name: count for name, count in counts.items() if count is not None}


def _seconds(value: Optional[int], per_second: float) -> Optional[float]:
    return None if value is None else value / per_second
