"""Watch a process and its descendants from outside, many times a second, at little cost.

Linux only: reads /proc. Sources: proc(5); clock_getres(2) on clocks of other processes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from perfrun.dataclass import dataclass
from perfrun.probes.timeline import Timeline
from perfrun.probes.tree_memory import TreeMemory
from perfrun.worker.cgroups import Cgroup, PeakSplit
from perfrun.worker.procfs import memory_marks

RATE_HZ = 21.0  # a little more than the 20 that are promised: a busy machine wakes us late
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CPU_WINDOW_S = 0.1  # PerfZero's window for cpu_percent
# How often the kernel's marks are polled for a process that may be killed before it can say them
# itself. They cost six times what the current sizes cost.
_MARKS_PERIOD_S = 1.0
_FINISH_S = 30.0  # for the last sample

Columns = Callable[[], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class TreeUsage:
    """The largest figures seen. Bytes; percent of one core."""

    peak_rss_bytes: int | None
    peak_vms_bytes: int | None
    tree_peak_rss_bytes: int | None  # sum of RSS: shared pages count for each process
    tree_peak_processes: int | None  # at that time
    max_cpu_percent: float | None
    samples: int
    rate_hz: float | None
    observer_cpu_s: float
    # Sum of PSS, where shared pages count once; None while the process was alone.
    tree_peak_pss_bytes: int | None = None
    tree_pss_looks: int = 0  # how often PSS was read
    tree_pss_unreadable: int = 0  # processes whose PSS may not be read: their RSS stands for it
    most_processes: int | None = None  # alive at the same time
    cgroup_split: Mapping[str, int | None] | None = None  # anonymous and file memory at the peak
    cgroup_seen_bytes: int | None = None  # charged to the control group then


class TreeSampler(threading.Thread):
    """Samples process `pid` and its descendants until stopped; writes PerfZero's process_info.log.

    The log has one JSON object a line: `time` (seconds since start), `rss` and `vms` (bytes) and
    `cpu_percent` of the process itself, as PerfZero's, then `tree_rss`, `processes`, `tree_pss`
    and what `columns` returns (always the same numeric keys). See `Timeline`.

    `cgroup` is the control group of the trial, if it has one of its own.
    """

    def __init__(
        self,
        pid: int,
        log_path: Path,
        rate_hz: float = RATE_HZ,
        *,
        columns: Columns = dict,
        cgroup: Cgroup | None = None,
    ) -> None:
        super().__init__(name="perfrun-sampler", daemon=True)
        self._pid = pid
        self._log_path = log_path
        self._interval_s = 1.0 / rate_hz
        self._columns = columns
        self._split = PeakSplit(cgroup) if cgroup else None
        # Held until `finish`. A lock, since waiting for an Event takes half as much again: the
        # pause between two samples is the dearest part of them, all caches being cold.
        self._sampling = threading.Lock()
        self._sampling.acquire()
        self._statm = b""  # as it was read last
        self._own: tuple[int, ...] = (0, 0, 0)  # what it says: virtual, resident, not anonymous
        self._tree_rss = 0
        self._peak_rss = 0
        self._peak_vms = 0
        self._next_marks = 0.0
        self._tree = TreeMemory(pid)
        self._max_cpu: float | None = None
        self._samples = 0
        self._cpu_s = 0.0
        self._start = time.perf_counter()
        self._window = (self._start, _cpu_seconds(pid))
        self._cpu_percent = 0.0

    def run(self) -> None:
        """Sample until `finish` is called or the process is gone."""
        begin = time.thread_time()
        with contextlib.ExitStack() as stack:
            stack.callback(self._tree.close)
            try:
                statm = stack.enter_context(open(f"/proc/{self._pid}/statm", "rb", buffering=0))
                load = stack.enter_context(open("/proc/loadavg", "rb", buffering=0))
            except OSError:
                return
            log = stack.enter_context(Timeline(self._log_path))
            self._follow(statm.fileno(), load.fileno(), log)
        self._cpu_s = time.thread_time() - begin

    def _follow(self, statm: int, load: int, log: Timeline) -> None:
        next_sample = 0.0
        while True:
            elapsed = time.perf_counter() - self._start
            if not self._sample(statm, load, elapsed):
                return
            if log.wants(elapsed, self._tree.pss.current_bytes):
                log.add(self._line(elapsed))
            next_sample = max(next_sample + self._interval_s, elapsed)
            pause_s = self._start + next_sample - time.perf_counter()
            if self._sampling.acquire(True, max(0.0, pause_s)):
                return

    @property
    def pids(self) -> frozenset[int]:
        """The process and its descendants, as of the last look."""
        return self._tree.pids

    def finish(self) -> TreeUsage:
        """Stop sampling and return the largest figures."""
        self._sampling.release()
        # Of a process that hangs in the kernel with its memory's lock held, no file can be read.
        self.join(_FINISH_S)
        elapsed = time.perf_counter() - self._start
        tree = self._tree
        return TreeUsage(
            peak_rss_bytes=self._peak_rss or None,
            peak_vms_bytes=self._peak_vms or None,
            tree_peak_rss_bytes=tree.peak_rss_bytes or None,
            tree_peak_processes=tree.peak_processes or None,
            max_cpu_percent=self._max_cpu,
            samples=self._samples,
            rate_hz=self._samples / elapsed if elapsed > 0 else None,
            observer_cpu_s=self._cpu_s,
            tree_peak_pss_bytes=tree.pss.peak_bytes or None,
            tree_pss_looks=tree.pss.looks,
            tree_pss_unreadable=tree.pss.unreadable,
            most_processes=tree.most_processes if self._samples else None,
            cgroup_split=self._split.split if self._split else None,
            cgroup_seen_bytes=self._split.seen_bytes if self._split else None,
        )

    def _sample(self, statm: int, load: int, elapsed: float) -> bool:
        """Take one sample; False when the process has no memory any more."""
        try:
            text = os.pread(statm, 128, 0)
            if text != self._statm:  # it seldom is in a benchmark's steady state
                self._own = tuple(int(pages) * _PAGE for pages in text.split()[:3])
                self._statm = text
            vms, rss, shared = self._own
        except (OSError, ValueError):
            return False
        if not rss:
            return False
        if rss > self._peak_rss or elapsed >= self._next_marks:
            self._next_marks = elapsed + _MARKS_PERIOD_S
            marks = memory_marks(str(self._pid))
            self._peak_rss = max(self._peak_rss, rss, marks["peak_rss_bytes"] or 0)
            self._peak_vms = max(self._peak_vms, vms, marks["peak_vms_bytes"] or 0)
        self._watch_cpu()
        self._tree_rss = self._tree.sample((rss, shared), _last_pid(load))
        if self._split:
            self._split.look()
        self._samples += 1
        return True

    def _line(self, elapsed: float) -> dict[str, float]:
        """What process_info.log says of the last sample."""
        vms, rss, _ = self._own
        return {
            "time": elapsed,
            "rss": rss,
            "vms": vms,
            "cpu_percent": self._cpu_percent,
            "tree_rss": self._tree_rss,
            "processes": self._tree.processes,
            "tree_pss": self._tree.pss.current_bytes,
            **self._columns(),
        }

    def _watch_cpu(self) -> None:
        now, (then, before) = time.perf_counter(), self._window
        if now - then < _CPU_WINDOW_S:
            return
        used = _cpu_seconds(self._pid)
        if time.perf_counter() - now > _CPU_WINDOW_S / 100:
            return  # held up between the two clocks: the other process may have run on
        self._window = (now, used)
        if used is not None and before is not None:
            self._cpu_percent = round((used - before) / (now - then) * 100.0, 1)
            self._max_cpu = max(self._max_cpu or 0.0, self._cpu_percent)


def _last_pid(load: int) -> bytes:
    """The pid given out last (in /proc/loadavg): it changes when a process or thread begins."""
    try:
        return os.pread(load, 128, 0).rpartition(b" ")[2]
    except OSError:
        return b""


def _cpu_seconds(pid: int) -> float | None:
    """CPU seconds of all threads of another process, to the nanosecond, without a file.

    The clock of process PID is `~PID << 3 | 2` (CPUCLOCK_SCHED) in the kernel's encoding.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None
