"""Watch a process and its descendants from outside, many times a second, at little cost.

Linux only: reads /proc. Sources: proc(5); clock_getres(2) on clocks of other processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from perfrun.worker.procfs import memory_marks

RATE_HZ = 21.0  # a little more than the 20 that are promised: a busy machine wakes us late
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CPU_WINDOW_S = 0.1  # PerfZero's window for cpu_percent
# How often the kernel's marks are polled for a process that may be killed before it can say them
# itself. They cost six times what the current sizes cost.
_MARKS_PERIOD_S = 1.0
# Share of a core that looking for new processes may take; reading a big tree is the dear part.
_TREE_SHARE = 0.002


@dataclass(frozen=True, kw_only=True)
class TreeUsage:
    """The largest figures seen. Bytes; percent of one core."""

    peak_rss_bytes: int | None
    peak_vms_bytes: int | None
    tree_peak_rss_bytes: int | None
    tree_peak_processes: int | None
    max_cpu_percent: float | None
    samples: int
    rate_hz: float | None
    observer_cpu_s: float


class TreeSampler(threading.Thread):
    """Samples process `pid` and its descendants until stopped; writes PerfZero's process_info.log.

    The log has one JSON object a line: `time` (seconds since start), `rss` and `vms` (bytes) and
    `cpu_percent` of the process itself, as PerfZero's, then `tree_rss` and `processes`. Lines get
    rarer as the trial gets longer, so that a long trial does not make a huge file.
    """

    def __init__(self, pid: int, log_path: Path, rate_hz: float = RATE_HZ) -> None:
        super().__init__(name="perfrun-sampler", daemon=True)
        self._pid = pid
        self._log_path = log_path
        self._interval_s = 1.0 / rate_hz
        self._stop_event = threading.Event()
        self._peak_rss = 0
        self._peak_vms = 0
        self._next_marks = 0.0
        self._tree_rss = 0
        self._tree_processes = 0
        self._max_cpu: float | None = None
        self._samples = 0
        self._cpu_s = 0.0
        self._start = time.perf_counter()
        self._window = (self._start, _cpu_seconds(pid))
        self._cpu_percent = 0.0
        self._children: list[int] = []
        self._last_pid = b""
        self._next_tree_look = 0.0

    def run(self) -> None:
        """Sample until `finish` is called or the process is gone."""
        begin = time.thread_time()
        next_sample = next_line = 0.0
        with contextlib.ExitStack() as stack:
            try:
                statm = stack.enter_context(open(f"/proc/{self._pid}/statm", "rb", buffering=0))
                load = stack.enter_context(open("/proc/loadavg", "rb", buffering=0))
            except OSError:
                return
            log = None
            with contextlib.suppress(OSError):  # a log that cannot be kept stops no sampling
                log = stack.enter_context(self._log_path.open("a", encoding="ascii", buffering=1))
            while True:
                elapsed = time.perf_counter() - self._start
                sample = self._sample(statm.fileno(), load.fileno(), elapsed)
                if sample is None:
                    break
                if log and elapsed >= next_line:
                    next_line = elapsed + max(_CPU_WINDOW_S, elapsed / 1000)
                    with contextlib.suppress(OSError):
                        log.write(json.dumps({"time": elapsed, **sample}) + "\n")
                self._cpu_s = time.thread_time() - begin
                next_sample = max(next_sample + self._interval_s, elapsed)
                if self._stop_event.wait(self._start + next_sample - time.perf_counter()):
                    break

    def finish(self) -> TreeUsage:
        """Stop sampling and return the largest figures."""
        self._stop_event.set()
        self.join()
        elapsed = time.perf_counter() - self._start
        return TreeUsage(
            peak_rss_bytes=self._peak_rss or None,
            peak_vms_bytes=self._peak_vms or None,
            tree_peak_rss_bytes=self._tree_rss or None,
            tree_peak_processes=self._tree_processes or None,
            max_cpu_percent=self._max_cpu,
            samples=self._samples,
            rate_hz=self._samples / elapsed if elapsed > 0 else None,
            observer_cpu_s=self._cpu_s,
        )

    def _sample(self, statm: int, load: int, elapsed: float) -> dict[str, float] | None:
        """Take one sample; None when the process has no memory any more."""
        try:
            vms, rss = (int(pages) * _PAGE for pages in os.pread(statm, 128, 0).split()[:2])
        except (OSError, ValueError):
            return None
        if not rss:
            return None
        if rss > self._peak_rss or elapsed >= self._next_marks:
            self._next_marks = elapsed + _MARKS_PERIOD_S
            marks = memory_marks(str(self._pid))
            self._peak_rss = max(self._peak_rss, rss, marks["peak_rss_bytes"] or 0)
            self._peak_vms = max(self._peak_vms, vms, marks["peak_vms_bytes"] or 0)
        self._watch_cpu()
        self._look_for_children(_last_pid(load))
        tree_rss = rss + sum(map(_resident_bytes, self._children))
        if tree_rss > self._tree_rss:
            self._tree_rss, self._tree_processes = tree_rss, 1 + len(self._children)
        self._samples += 1
        return {
            "rss": rss,
            "vms": vms,
            "cpu_percent": self._cpu_percent,
            "tree_rss": tree_rss,
            "processes": 1 + len(self._children),
        }

    def _watch_cpu(self) -> None:
        now, (then, before) = time.perf_counter(), self._window
        if now - then < _CPU_WINDOW_S:
            return
        used = _cpu_seconds(self._pid)
        self._window = (now, used)
        if used is not None and before is not None:
            self._cpu_percent = round((used - before) / (now - then) * 100.0, 1)
            self._max_cpu = max(self._max_cpu or 0.0, self._cpu_percent)

    def _look_for_children(self, last_pid: bytes) -> None:
        """Read the tree again when the kernel has given out a new pid since the last look."""
        now = time.perf_counter()
        if now < self._next_tree_look or (last_pid == self._last_pid and last_pid):
            return
        self._last_pid = last_pid
        begin = time.thread_time()
        self._children = descendants(self._pid)
        self._next_tree_look = now + (time.thread_time() - begin) / _TREE_SHARE


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0  # it has ended, so it holds nothing


def _last_pid(load: int) -> bytes:
    """The pid given out last (in /proc/loadavg): it changes when a process or thread begins."""
    try:
        return os.pread(load, 128, 0).split()[4]
    except (OSError, IndexError):
        return b""


def _cpu_seconds(pid: int) -> float | None:
    """CPU seconds of all threads of another process, to the nanosecond, without a file.

    The clock of process PID is `~PID << 3 | 2` (CPUCLOCK_SCHED) in the kernel's encoding.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


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
