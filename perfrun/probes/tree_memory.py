"""The processes of a tree, and the sum of their resident memory, many times a second.

Descriptors are kept open: reading one costs a fifth of opening it. Source: proc(5).
"""

from __future__ import annotations

import contextlib
import os
import time

from perfrun.probes.shared_memory import SharedMemory, Sizes

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Share of a core that looking for new processes may take; reading a big tree is the dear part.
_TREE_SHARE = 0.002
# After a look that found nothing new (another's process had begun) the pause is twice as long, but
# no longer than this for that reason: a quarter of a second is promised to be seen.
_LONGER_PAUSE_S = 0.2
_MOST_OPEN = 256  # descriptors that may be kept; further processes are opened each time


class TreeMemory:
    """Sums the memory of a process's descendants, and keeps the largest figures."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._children: dict[int, int | None] = {}  # pid -> statm, kept open
        self.pids = frozenset([pid])  # all of them, the process itself included
        self._last_pid = b""
        self._next_tree_look = 0.0
        self.peak_rss_bytes = 0  # largest sum of resident memory
        self.peak_processes = 0  # processes at that time
        self.most_processes = 1
        self.pss = SharedMemory()

    @property
    def processes(self) -> int:
        """How many there are, the process itself included."""
        return 1 + len(self._children)

    def sample(self, own: tuple[int, int], last_pid: bytes) -> int:
        """Return the sum of resident memory over the tree.

        `own`: resident memory of the process itself, and how much of it is not anonymous.
        `last_pid` is what the kernel gave out last: while it stays, no process was started.
        """
        self._look_for_children(last_pid)
        if not self._children:  # as most are: nothing to sum
            self.pss.note_alone(own[0])
            if own[0] > self.peak_rss_bytes:
                self.peak_rss_bytes, self.peak_processes = own[0], 1
            return own[0]
        sizes = {self._pid: own, **self._sizes_of_children()}
        total = sum(resident for resident, _ in sizes.values())
        if total > self.peak_rss_bytes:
            self.peak_rss_bytes, self.peak_processes = total, self.processes
        self.most_processes = max(self.most_processes, self.processes)
        self.pss.follow(sizes, self._sizes_of_children)
        return total

    def _sizes_of_children(self) -> Sizes:
        return {pid: _resident_bytes(pid, file) for pid, file in self._children.items()}

    def close(self) -> None:
        """Close what was kept open."""
        for file in self._children.values():
            if file is not None:
                os.close(file)
        self._children = {}

    def _look_for_children(self, last_pid: bytes) -> None:
        """Read the tree again when the kernel has given out a new pid since the last look."""
        if last_pid == self._last_pid and last_pid:
            return
        now = time.perf_counter()
        if now < self._next_tree_look:
            return
        self._last_pid = last_pid
        begin = time.thread_time()
        found = descendants(self._pid)
        is_new = self._children.keys() != set(found)
        for pid in self._children.keys() - found:
            file = self._children.pop(pid)
            if file is not None:
                os.close(file)
        for pid in found:
            if pid not in self._children:
                self._children[pid] = _opened(pid) if len(self._children) < _MOST_OPEN else None
        self.pids = frozenset([self._pid, *found])
        pause_s = (time.thread_time() - begin) / _TREE_SHARE
        if not is_new:
            pause_s = max(pause_s, min(2 * pause_s, _LONGER_PAUSE_S))
        self._next_tree_look = now + pause_s


def descendants(pid: int) -> list[int]:
    """Return the pids of all live descendants of `pid`, by /proc/PID/task/TID/children."""
    found: list[int] = []
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


def _children(path: str) -> list[int]:
    """The numbers in a file. Most are empty; a file object would make seven calls of three."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while chunk := os.read(file, 1 << 16):
            text += chunk
    finally:
        os.close(file)
    return [int(child) for child in text.split()]


def _opened(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    return None


def _resident_bytes(pid: int, file: int | None) -> tuple[int, int]:
    """Resident memory and what of it is not anonymous; 0 of a process that has ended."""
    try:
        if file is not None:
            return resident_bytes(os.pread(file, 128, 0))
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as opened:
            return resident_bytes(opened.read())
    except (OSError, IndexError):
        return 0, 0


def resident_bytes(statm: bytes) -> tuple[int, int]:
    """The second and third field of /proc/PID/statm, in bytes."""
    pages = statm.split()
    return int(pages[1]) * _PAGE, int(pages[2]) * _PAGE
