"""What a tree of processes truly holds: dear to know, so asked only when it matters.

The sum of resident memory counts a page once for every process that has it, so after a fork it can
be many times the truth. The kernel knows the truth: each page's fair share (PSS), in
/proc/PID/smaps_rollup, which sums up right over processes. But it walks all page tables for that:
16 to 36 ms a gigabyte, while the process's memory map is locked. So PSS is read only when the cheap
figures say that the tree may hold more than ever before, and within a budget of CPU time.

Sources: Documentation/filesystems/proc.rst of the kernel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Share of a core that PSS may take in the long run, and seconds that may be spent at once: about
# thirty looks at a tree that maps a gigabyte. Only trees that share memory spend it.
_PSS_SHARE = 0.002
_PSS_SAVINGS_S = 0.6
_GROWTH = 1.003  # what is taken for growth: steps below it are left unread
_GROWTH_WHEN_POOR = 0.02  # added to it when all savings are spent
_FAST_GROWTH = 1.2  # growth that is read before it has come to a halt
_FAST_FAULTS = 2.0  # the same of what page faults may have unshared
_FAULTS_SPEND = 0.75  # of the savings, that they may use up
_FAULTS_PERIOD_S = 0.2
_FAULTS_SHARE = 0.002  # of a core, that counting them may take

Sizes = dict[int, tuple[int, int]]  # pid -> resident bytes, and those that are not anonymous


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

    def note_alone(self, resident_bytes: int) -> None:
        """Take note of a process that has no others."""
        self._alone_bytes = max(self._alone_bytes, resident_bytes)
        self.current_bytes = self._previous = resident_bytes
        self._look_then, self._members = None, frozenset()

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
        # Faults are a weak sign: a part of the savings is kept for better ones.
        if not self._look_then or perhaps <= enough or spent > _FAULTS_SPEND:
            return False
        return self._faults.halted or perhaps > known * _FAST_FAULTS

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
        self._next = now + max(_FAULTS_PERIOD_S, cost_s / _FAULTS_SHARE)

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


def _minor_faults(pid: int) -> int:
    """Page faults that needed no disk, of all threads of a process (proc(5), field 10 of stat)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields: Sequence[bytes] = file.read().rpartition(b")")[2].split()
        return int(fields[7])
    except (OSError, IndexError, ValueError):
        return 0
