"""Facts about a process that only the Linux kernel knows.

A fact that a system does not show is None or left out, never zero. Source:
Documentation/filesystems/proc.rst of the kernel.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple


CHILD_GRACE_S = 0.5  # for children that end by themselves after the worker
_SHOWN_LIMIT_S = 0.05  # from exec until a new program's files in /proc can be opened
HELPER_GRACE_S = 5.0  # for multiprocessing's helpers, which end after all processes that use them
_EXITING, _NOT_EXECUTED = 0x4, 0x40  # PF_EXITING and PF_FORKNOEXEC of the kernel's sched.h
# Commands of multiprocessing's own processes.
_HELPERS = tuple(
    b"from multiprocessing.%s import main" % name for name in (b"resource_tracker", b"forkserver")
)


def memory_marks(pid: str = "self") -> Dict[str, Optional[int]]:
    """Return the kernel's high-water marks of a live process, in bytes.

    `peak_rss_bytes` is VmHWM (since exec, or since `reset_peak`), `peak_vms_bytes` is VmPeak. The
    kernel drops both when the process becomes a zombie, so a process reads its own as its last act.
    """
    marks: Dict[str, Optional[int]] = {"peak_rss_bytes": None, "peak_vms_bytes": None}
    wanted = {b"VmHWM:": "peak_rss_bytes", b"VmPeak:": "peak_vms_bytes"}
    try:
        with open("/proc/%s/status" % pid, "rb") as file:
            for line in file:
                key = wanted.get(line.split(None, 1)[0])
                if key:
                    marks[key] = int(line.split()[1]) * 1024
                if line.startswith(b"VmRSS:"):
                    break
    except (OSError, ValueError, IndexError):
        pass
    return marks


def io_counts(pid: str = "self") -> Dict[str, int]:
    """Return the bytes that a process and its waited-for children moved; empty where not shown.

    `read_bytes` came from storage; `written_bytes` go to storage, except for `cancelled_bytes`;
    `*_call_bytes` passed through read(2), write(2) and similar calls, whatever the file was.
    """
    return last_io_counts(pid)()


def last_io_counts(pid: str) -> Callable[[], Dict[str, int]]:
    """Return a function that reads `io_counts` once, even if the process is a zombie by then.

    Call `last_io_counts` while the process lives: only root may open the file of a zombie.
    """
    file = _opened_io(pid)
    if file is None:
        return dict

    def read() -> Dict[str, int]:
        try:
            with file:
                return _io_counts(file.read())
        except (OSError, ValueError):
            return {}

    return read


def _opened_io(pid: str) -> Any:
    """Return /proc/PID/io, opened, or None where it is not shown.

    Exec closes the pipe that tells of it before it makes the process visible to its user again,
    if its parent hides (`hide_from_equals`): half of a machine's first looks came in between.
    """
    limit = time.perf_counter() + _SHOWN_LIMIT_S
    while True:
        try:
            return open("/proc/%s/io" % pid, "rb", buffering=0)
        except PermissionError:
            if time.perf_counter() >= limit:
                return None
            time.sleep(0.0005)
        except OSError:
            return None


def _io_counts(text: bytes) -> Dict[str, int]:
    names = {
        b"rchar:": "read_call_bytes",
        b"wchar:": "written_call_bytes",
        b"read_bytes:": "read_bytes",
        b"write_bytes:": "written_bytes",
        b"cancelled_write_bytes:": "cancelled_bytes",
    }
    pairs = (line.partition(b" ") for line in text.splitlines())
    return {names[key]: int(value) for key, _, value in pairs if key in names}


def usage_counts(usage: Any) -> Dict[str, Any]:
    """Return the fields of a getrusage(2) or wait4(2) result that perfrun uses, by its names."""
    return {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
    }


def own_counts() -> Dict[str, Any]:
    """Return what the kernel has counted of this process and its waited-for children."""
    try:
        import resource
    except ImportError:  # not a Unix
        return {}
    own = usage_counts(resource.getrusage(resource.RUSAGE_SELF))
    children = usage_counts(resource.getrusage(resource.RUSAGE_CHILDREN))
    counts: Dict[str, Any] = {name: own[name] + children[name] for name in own}
    counts.update(io_counts())
    return counts


def reset_peak() -> bool:
    """Set this process's VmHWM to what is resident now; return True when the kernel did it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return True
    except OSError:
        return False


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, so that nothing is left running.

    This is prctl(PR_SET_PDEATHSIG, SIGKILL); see prctl(2). Systems without it ignore the request.
    """
    _prctl(1, 9)


def adopt_orphans() -> bool:
    """Make this process the parent of its descendants' orphans (prctl PR_SET_CHILD_SUBREAPER)."""
    return _prctl(36, 1)


def hide_from_equals() -> bool:
    """Keep processes of the same user from tracing this one and from using its open files.

    This is prctl(PR_SET_DUMPABLE, 0): its /proc/PID/fd and its memory are then root's alone, and
    those of nobody in a container without capabilities.
    """
    return _prctl(4, 0)


def is_pythons_own(pid: int) -> bool:
    """Return True when a process is a helper of multiprocessing, which ends by itself.

    A process that is just ending counts as a helper. A zombie does not: it waits for its parent.
    Neither does a process that a fork server has forked, which has the server's command line
    without having executed it.
    """
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            command = file.read()
    except OSError:
        return False
    state, flags = state_and_flags(pid)  # read last: a process that ends loses its command first
    if state in ("Z", "X", "") or flags & _EXITING:
        return state not in ("Z", "X", "")
    return not flags & _NOT_EXECUTED and any(helper in command for helper in _HELPERS)


def state_and_flags(pid: int) -> Tuple[str, int]:
    """Return a process's state (R, S, Z, ...) and its kernel flags; ("", 0) when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[6])
    except (OSError, IndexError, ValueError):
        return "", 0


def is_sent_sigkill(pid: int) -> bool:
    """Return True when SIGKILL is pending for a process: it was killed, and cannot end yet.

    This is the state of a killed process that waits in the kernel for a driver or a file server.
    """
    pending = 0
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            for line in file:
                if line.startswith((b"SigPnd:", b"ShdPnd:")):
                    pending |= int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        return False
    return bool(pending & 1 << 8)


def counts_of(pid: int) -> Dict[str, Any]:
    """Return what the kernel has counted of a process until now; empty where it is not shown.

    The names are those of `usage_counts`; waited-for children are included. Source: proc(5).
    """
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = [int(field) for field in file.read().rpartition(b")")[2].split()[1:17]]
    except (OSError, ValueError):
        return {}
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    return {
        "user_s": (fields[10] + fields[12]) * tick_s,
        "system_s": (fields[11] + fields[13]) * tick_s,
        "minor_faults": fields[6] + fields[7],
        "major_faults": fields[8] + fields[9],
    }


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def descendants(pid: int) -> List[int]:
    """Return the pids of all live descendants of `pid`, by /proc/PID/task/TID/children."""
    found: List[int] = []
    queue = [pid]
    while queue:
        task = f"/proc/{queue.pop()}/task"
        try:
            threads = os.listdir(task)
        except OSError:
            continue
        for thread in threads:
            try:
                children = _children(f"{task}/{thread}/children")
            except OSError:
                continue
            found += children
            queue += children
    return found


def children(pid: int) -> List[int]:
    """Return the pids of the children of a process with one thread; none where not shown."""
    try:
        return _children(f"/proc/{pid}/task/{pid}/children")
    except OSError:
        return []


def _children(path: str) -> List[int]:
    """Return the numbers in a file: by three system calls, where a file object makes seven."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while chunk := os.read(file, 1 << 16):
            text += chunk
    finally:
        os.close(file)
    return [int(child) for child in text.split()]
