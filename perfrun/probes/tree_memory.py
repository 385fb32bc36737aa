"""Memory of a tree of processes: cheap sums many times a second, dear true figures when it matters.

The sum of resident memory counts a page once for every process that has it, so after a fork it can
be many times the truth. The kernel knows the truth: each page's fair share (PSS), in
/proc/PID/smaps_rollup, which sums up right over processes. But it walks all page tables for that:
16 to 36 ms a gigabyte, while the process's memory map is locked. So PSS is read only when the cheap
figures say that the tree may hold more than ever before, and within a budget of CPU time.

Sources: Documentation/filesystems/proc.rst of the kernel.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Share of a core that looking for new processes may take; reading a big tree is the dear part.
_TREE_SHARE = 0.002
# Share of a core that PSS may take in the long run, and seconds that may be spent at once: about
# twenty looks at a tree that maps a gigabyte. Only trees that share memory spend it.
_PSS_SHARE = 0.002
_PSS_SAVINGS_S = 0.4
_GROWTH = 1.003  # what is taken for growth: steps below it are left unread
_GROWTH_WHEN_POOR = 0.05  # added to it when all savings are spent
_FAST_GROWTH = 1.2  # growth that is read before it has come to a halt
_FAULTS_PERIOD_S = 0.2
_MOST_OPEN = 256  # descriptors that may be kept; further processes are opened each time


Sizes = dict[int, tuple[int, int]]  # pid -> resident bytes, and those that are not anonymous


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
        now = time.perf_counter()
        if now < self._next_tree_look or (last_pid == self._last_pid and last_pid):
            return
        self._last_pid = last_pid
        begin = time.thread_time()
        found = descendants(self._pid)
        for pid in self._children.keys() - found:
            file = self._children.pop(pid)
            if file is not None:
                os.close(file)
        for pid in found:
            if pid not in self._children:
                self._children[pid] = _opened(pid) if len(self._children) < _MOST_OPEN else None
        self.pids = frozenset([self._pid, *found])
        self._next_tree_look = now + (time.thread_time() - begin) / _TREE_SHARE


class SharedMemory:
    """Decides when to read PSS, and keeps the largest sum.

    What the tree truly holds lies between its largest process and the sum of resident memory. A
    look says how much of the sum is counted twice; until the next look that is taken to stay. It
    is wrong when processes come and go, when they attach shared memory, and when one writes to
    pages that it shared since the fork (its resident memory stays, the truth grows): of the last,
    page faults tell. What surely grew since a look is anonymous memory while no process came or
    went: that much is added to what the look said, and counts for the peak.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0  # largest sum; 0 while the process was alone
        self._looked_bytes = 0  # largest that was read
        self.current_bytes = 0  # read, or estimated since
        self.looks = 0
        self.cpu_s = 0.0
        self.unreadable = 0  # most processes of one look whose PSS may not be read
        self._alone_bytes = 0  # largest single process: the tree never held less
        self._look_then: _Look | None = None  # the last; None when processes came or went since
        self._members: frozenset[int] = frozenset()
        self._previous = 0  # sum of resident memory one sample ago
        self._faults = _Faults()
        self._savings_s = _PSS_SAVINGS_S
        self._then = time.perf_counter()

    def follow(self, sizes: Sizes, sizes_of_children: Callable[[], Sizes]) -> None:
        """Take note of what the processes hold; look at PSS if it is worth it.

        `sizes_of_children` reads them again: shared memory that is attached or left while we read
        would count twice.
        """
        now = time.perf_counter()
        self._savings_s = min(_PSS_SAVINGS_S, self._savings_s + (now - self._then) * _PSS_SHARE)
        self._then = now
        total = sum(resident for resident, _ in sizes.values())
        anonymous = _anonymous(sizes)
        largest = max(resident for resident, _ in sizes.values())
        self._alone_bytes = max(self._alone_bytes, largest)
        members = frozenset(pid for pid, (resident, _) in sizes.items() if resident)
        if members != self._members:
            self._look_then, self._members = None, members
        then = self._look_then
        # Of a set that was not looked at, only this much is sure.
        alone = len(members) < 2
        self.current_bytes = total if alone else max(largest, min(total, self.current_bytes))
        if not alone:
            estimate = total
            if then:
                self._faults.count(members, now)
                estimate = total - then.twice_bytes
                grown = max(0, anonymous - then.anonymous_bytes)
                self.current_bytes = max(largest, min(total, then.pss_bytes + grown))
                self.peak_bytes = max(self.peak_bytes, self.current_bytes)
            if self._is_worth_a_look(total, estimate):
                self._look(sizes)
                self._trust_only_if_steady(sizes, {**sizes, **sizes_of_children()})
        self._previous = total

    def _is_worth_a_look(self, total: int, estimate: int) -> bool:
        if self._savings_s <= 0:
            return False
        known = max(self._alone_bytes, self._looked_bytes)
        # The less is left to spend, the more must have grown.
        spent = 1 - self._savings_s / _PSS_SAVINGS_S
        enough = known * (_GROWTH + _GROWTH_WHEN_POOR * spent)
        if estimate > enough:
            # While it grows, every look would be too early.
            halted = abs(total - self._previous) <= known * (_GROWTH - 1)
            return halted or estimate > known * _FAST_GROWTH
        perhaps = min(total, estimate + self._faults.bytes)
        # Faults are a weak sign: half of the savings is kept for better ones.
        if not self._look_then or perhaps <= enough or spent > 0.5:
            return False
        return self._faults.halted or perhaps > known * _FAST_GROWTH

    def _look(self, sizes: Sizes) -> None:
        begin = time.thread_time()
        total = sum(resident for resident, _ in sizes.values())
        pss, unreadable = 0, 0
        for pid in self._members:
            share = proportional_bytes(pid)
            unreadable += share is None
            pss += sizes[pid][0] if share is None else share
        self._faults.forget(self._members)
        self._look_then = _Look(pss, max(0, total - pss), 0)
        self.unreadable = max(self.unreadable, unreadable)
        self.looks += 1
        spent = time.thread_time() - begin
        self.cpu_s += spent
        self._savings_s -= spent

    def _trust_only_if_steady(self, before: Sizes, after: Sizes) -> None:
        """Take the look's sum for true unless shared memory came or went meanwhile."""
        look = self._look_then
        assert look
        moved = sum(abs(after[pid][1] - before[pid][1]) for pid in after)
        if moved > look.pss_bytes * (_GROWTH - 1):
            self._look_then = None
            return
        # What was added during the look is in PSS or is not: it does not count as growth since.
        self._look_then = look._replace(anonymous_bytes=_anonymous(after))
        self.current_bytes = look.pss_bytes
        self._looked_bytes = max(self._looked_bytes, look.pss_bytes)
        self.peak_bytes = max(self.peak_bytes, look.pss_bytes)


def _anonymous(sizes: Sizes) -> int:
    return sum(resident - other for resident, other in sizes.values())


class _Look(NamedTuple):
    """What one reading of PSS said, and what the cheap figures said then."""

    pss_bytes: int
    twice_bytes: int  # counted more than once in the sum of resident memory
    anonymous_bytes: int  # sum over the processes, shared or not


class _Faults:
    """Minor page faults since the last look: each may have made a shared page a private one."""

    def __init__(self) -> None:
        self._then = 0
        self._next = 0.0
        self.bytes = 0
        self.halted = True  # there were hardly any since the last count

    def count(self, members: frozenset[int], now: float) -> None:
        if now < self._next:
            return
        begin = time.thread_time()
        moved = max(0, self._sum(members) - self._then) * _PAGE
        self.halted = moved - self.bytes <= moved * (_GROWTH - 1)
        self.bytes = moved
        cost_s = time.thread_time() - begin
        self._next = now + max(_FAULTS_PERIOD_S, cost_s / _TREE_SHARE)

    def forget(self, members: frozenset[int]) -> None:
        """Count from now on."""
        self._then, self.bytes = self._sum(members), 0

    def _sum(self, members: frozenset[int]) -> int:
        return sum(map(_minor_faults, members))


def proportional_bytes(pid: int) -> int | None:
    """PSS of a process; 0 when it has ended, None when it may not be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            for line in file.read().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except (OSError, ValueError):
        return None
    return 0  # a zombie's is empty


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
                with open(f"{task}/{thread}/children", "rb", buffering=0) as file:
                    children = [int(child) for child in file.read().split()]
            except OSError:
                continue
            found += children
            queue += children
    return found


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


def _minor_faults(pid: int) -> int:
    """Page faults that needed no disk, of all threads of a process (proc(5), field 10 of stat)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields: Sequence[bytes] = file.read().rpartition(b")")[2].split()
        return int(fields[7])
    except (OSError, IndexError, ValueError):
        return 0
