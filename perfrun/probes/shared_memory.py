"""Measure the memory of a process tree with shared pages counted once (PSS), within a CPU budget.

The sum of resident memory (RSS) counts a page once for every process that maps it, so after a fork
it can be many times too large. The kernel divides each page among its processes (PSS, in
/proc/PID/smaps_rollup), and the sum of that is right. But the kernel walks all page tables for it,
16 to 36 ms a gigabyte, while the process's memory map is locked. So PSS is read only when the cheap
figures show that the tree may hold more than ever before, and within a budget of CPU time.

Source: Documentation/filesystems/proc.rst of the kernel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from perfrun.dataclass import dataclass, replace
from perfrun.trial_user import eyes_of_trials

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Share of a core that reading PSS may take in the long run, and seconds that may be spent at once:
# about thirty readings of a tree that maps a gigabyte. Only trees that share memory spend them.
_PSS_SHARE = 0.002
_PSS_SAVINGS_S = 0.6
_GROWTH = 1.003  # smaller growth is not worth a reading
_GROWTH_WHEN_POOR = 0.02  # added to _GROWTH when all savings are spent
_FAST_GROWTH = 1.2  # growth that is read before it has stopped
_FAST_FAULTS = 2.0  # the same for memory that page faults may have unshared
_FAULTS_SPEND = 0.75  # share of the savings that page faults may use up
_FAULTS_PERIOD_S = 0.2
_FAULTS_SHARE = 0.002  # share of a core that counting them may take

Sizes = dict[int, tuple[int, int]]  # pid -> resident bytes, and those of them not anonymous


class SharedMemory:
    """The PSS of a process tree: decides when to read it, and keeps the largest sum.

    The memory of the tree lies between its largest process and the sum of resident memory. A
    reading of PSS tells how much of that sum is counted more than once, and this is assumed not
    to change until the next reading. The assumption fails when processes come and go, when they
    attach shared memory, and when one writes to pages that it shared since the fork: its resident
    memory stays the same while the tree's memory grows. Page faults indicate the last case. While
    no process comes or goes, growth of anonymous memory is certain: it is added to the reading and
    counts for the peak.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0  # largest sum; 0 while the process was alone
        self._largest_read_bytes = 0
        self.current_bytes = 0  # as read, or estimated since
        self.readings = 0
        self.cpu_s = 0.0
        self.unreadable = 0  # most processes of one reading whose PSS may not be read
        self._alone_bytes = 0  # largest single process: the tree never held less
        self._last: _PssReading | None = None  # None when processes came or went since
        self._members: frozenset[int] = frozenset()
        self._previous = 0  # sum of resident memory one sample ago
        self._faults = _Faults()
        self._savings_s = _PSS_SAVINGS_S
        self._then = time.perf_counter()

    def note_alone(self, resident_bytes: int) -> None:
        """Take the size of a process without descendants."""
        self._alone_bytes = max(self._alone_bytes, resident_bytes)
        self.current_bytes = self._previous = resident_bytes
        self._last, self._members = None, frozenset()

    def follow(self, sizes: Sizes, sizes_of_children: Callable[[], Sizes]) -> None:
        """Take the sizes of the processes, and read PSS if it is worth it.

        `sizes_of_children` reads the sizes again: shared memory that is attached or detached
        during the reading would count twice.
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
            self._last, self._members = None, members
        last = self._last
        # Of processes whose PSS was not read, only this much is certain.
        alone = len(members) < 2
        self.current_bytes = total if alone else max(largest, min(total, self.current_bytes))
        if not alone:
            estimate = total
            if last:
                self._faults.count(members, now)
                estimate = total - last.repeated_bytes
                grown = max(0, anonymous - last.anonymous_bytes)
                self.current_bytes = max(largest, min(total, last.pss_bytes + grown))
                self.peak_bytes = max(self.peak_bytes, self.current_bytes)
            if self._is_worth_reading(total, estimate):
                self._read(sizes)
                self._accept_if_steady(sizes, {**sizes, **sizes_of_children()})
        self._previous = total

    def _is_worth_reading(self, total: int, estimate: int) -> bool:
        if self._savings_s <= 0:
            return False
        known = max(self._alone_bytes, self._largest_read_bytes)
        # The less CPU time is left, the more the tree must have grown.
        spent = 1 - self._savings_s / _PSS_SAVINGS_S
        enough = known * (_GROWTH + _GROWTH_WHEN_POOR * spent)
        if estimate > enough:
            # While the tree grows, every reading is too early.
            halted = abs(total - self._previous) <= known * (_GROWTH - 1)
            return halted or estimate > known * _FAST_GROWTH
        perhaps = min(total, estimate + self._faults.bytes)
        # Page faults are weak evidence: a part of the savings is kept for better evidence.
        if not self._last or perhaps <= enough or spent > _FAULTS_SPEND:
            return False
        return self._faults.halted or perhaps > known * _FAST_FAULTS

    def _read(self, sizes: Sizes) -> None:
        begin = time.thread_time()
        total = sum(resident for resident, _ in sizes.values())
        pss, unreadable = 0, 0
        for pid in self._members:
            share = proportional_bytes(pid)
            unreadable += share is None
            pss += sizes[pid][0] if share is None else share
        self._faults.forget(self._members)
        self._last = _PssReading(pss, max(0, total - pss), 0)
        self.unreadable = max(self.unreadable, unreadable)
        self.readings += 1
        spent = time.thread_time() - begin
        self.cpu_s += spent
        self._savings_s -= spent

    def _accept_if_steady(self, before: Sizes, after: Sizes) -> None:
        """Accept the reading unless shared memory was attached or detached meanwhile."""
        last = self._last
        assert last
        moved = sum(abs(after[pid][1] - before[pid][1]) for pid in after)
        if moved > last.pss_bytes * (_GROWTH - 1):
            self._last = None
            return
        # PSS may or may not include what was added during the reading: it is no later growth.
        self._last = replace(last, anonymous_bytes=_anonymous(after))
        self.current_bytes = last.pss_bytes
        self._largest_read_bytes = max(self._largest_read_bytes, last.pss_bytes)
        self.peak_bytes = max(self.peak_bytes, last.pss_bytes)


def _anonymous(sizes: Sizes) -> int:
    return sum(resident - other for resident, other in sizes.values())


@dataclass(frozen=True)
class _PssReading:
    """One reading of PSS, and the cheap figures at that time."""

    pss_bytes: int
    repeated_bytes: int  # counted more than once in the sum of resident memory
    anonymous_bytes: int  # sum over the processes, shared or not


class _Faults:
    """The minor page faults since the last reading: each may have made a shared page private."""

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
        self._next = now + max(_FAULTS_PERIOD_S, cost_s / _FAULTS_SHARE)

    def forget(self, members: frozenset[int]) -> None:
        """Restart the count."""
        self._then, self.bytes = self._sum(members), 0

    def _sum(self, members: frozenset[int]) -> int:
        return sum(map(_minor_faults, members))


def proportional_bytes(pid: int) -> int | None:
    """Return a process's PSS; 0 when it has ended, None when it may not be read."""
    try:
        with eyes_of_trials(), open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            for line in file.read().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except (OSError, ValueError):
        return None
    return 0  # a zombie's is empty


def _minor_faults(pid: int) -> int:
    """Count the page faults of a process that needed no disk (proc(5), field 10 of stat)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields: Sequence[bytes] = file.read().rpartition(b")")[2].split()
        return int(fields[7])
    except (OSError, IndexError, ValueError):
        return 0
