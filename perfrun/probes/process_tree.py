"""Sample memory and CPU use of a process and its descendants, and write process_info.log.

It works on Linux only, by reading /proc many times a second at little cost: files stay open, since
reading one costs a fifth of opening it. Sources: proc(5); clock_getres(2) on clocks of other
processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from perfrun.dataclass import dataclass
from perfrun.probes.shared_memory import SharedMemory, Sizes
from perfrun.untrusted import Folder, Refused
from perfrun.worker.cgroups import Cgroup, PeakSplit
from perfrun.worker.procfs import descendants, memory_marks

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Share of a core that the search for new processes may take; reading a big tree is expensive.
_TREE_SHARE = 0.002
# After a search that found nothing new (somebody else started a process) the pause doubles, but not
# beyond this: a process that lives a quarter of a second is promised to be seen.
_LONGER_PAUSE_S = 0.2
_MOST_OPEN = 256  # files that stay open; those of further processes are opened each time
_SHORTEST_S = 0.1  # PerfZero's window for cpu_percent: more lines would repeat it
_LINES_PER_AGE = 1000  # a trial twice as long has some 700 more lines, not twice as many
_PEAK = "tree_pss"  # whose peaks are kept
_HIGHER = 1.001  # growth that makes a peak worth a line of its own
# Lines are formatted and written together: with cold caches the first costs ten times the others.
_WRITE_EVERY_S = 1.0
RATE_HZ = 21.0  # a little more than the promised 20: a busy machine wakes the thread late
_CPU_WINDOW_S = 0.1  # PerfZero's window for cpu_percent
# The kernel's peak marks are polled, since the process may be killed before it can report them.
# They cost six times as much as the current sizes.
_MARKS_PERIOD_S = 1.0
_FINISH_S = 30.0  # for the last sample
Columns = Callable[[], Mapping[str, float]]


class TreeMemory:
    """The memory of a process and its descendants: current sums and largest figures."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._children: dict[int, int | None] = {}  # pid -> statm, kept open
        self.pids = frozenset([pid])  # all of them, the process itself included
        self._last_pid = b""
        self._next_search = 0.0
        self.peak_rss_bytes = 0  # largest sum of resident memory
        self.peak_processes = 0  # processes at that time
        self.most_processes = 1
        self.pss = SharedMemory()

    @property
    def processes(self) -> int:
        """The number of processes, the process itself included."""
        return 1 + len(self._children)

    def sample(self, own: tuple[int, int], last_pid: bytes) -> int:
        """Return the sum of resident memory over the tree.

        `own` is the resident memory of the process itself, and the part that is not anonymous.
        `last_pid` is the kernel's latest pid: while it stays the same, no process was started.
        """
        self._find_children(last_pid)
        if not self._children:  # the usual case: nothing to sum
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
        """Close the open files."""
        for file in self._children.values():
            if file is not None:
                os.close(file)
        self._children = {}

    def _find_children(self, last_pid: bytes) -> None:
        """Read the tree again when the kernel has given out a new pid since the last search."""
        if last_pid == self._last_pid and last_pid:
            return
        now = time.perf_counter()
        if now < self._next_search:
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
        self._next_search = now + pause_s


def _opened(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    return None


def _resident_bytes(pid: int, file: int | None) -> tuple[int, int]:
    """Return resident bytes and those that are not anonymous; 0 for a process that has ended."""
    try:
        if file is not None:
            return resident_bytes(os.pread(file, 128, 0))
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as opened:
            return resident_bytes(opened.read())
    except (OSError, IndexError):
        return 0, 0


def resident_bytes(statm: bytes) -> tuple[int, int]:
    """Return the second and third field of /proc/PID/statm, in bytes."""
    pages = statm.split()
    return int(pages[1]) * _PAGE, int(pages[2]) * _PAGE


class Timeline:
    """The writer of process_info.log: JSON lines that get rarer as the trial gets longer.

    The highest sample between two lines is written, too, with its own time, if it stands out:
    thinning never removes a peak. A log that cannot be written does not disturb the trial. When
    the harness is killed, the log lacks the last second.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._next_s = 0.0
        self._lines: list[Mapping[str, float]] = []  # still to be written
        self._rest = b""  # bytes that a full disk has not taken yet
        self._next_write_s = 0.0
        self._highest: Mapping[str, float] | None = None  # since the last line, if it stands out
        self._to_beat = 0.0  # value that stands out

    def __enter__(self) -> Timeline:
        # The benchmark runs already: what it has put there is not followed, nor waited for.
        with contextlib.suppress(OSError, Refused), Folder(self._path.parent) as folder:
            self._file = os.fdopen(folder.appending(self._path.name), "ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._keep_peak(0.0)
        self._write()
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()

    def wants(self, elapsed_s: float, value: float) -> bool:
        """Return True when a sample of this time and PSS of the tree would be used."""
        return elapsed_s >= self._next_s or value > self._to_beat

    def add(self, sample: Mapping[str, float]) -> None:
        """Take a sample. Its `time` is in seconds and never decreases."""
        elapsed_s, value = sample["time"], sample[_PEAK]
        if not self.wants(elapsed_s, value):
            return
        if elapsed_s < self._next_s:
            self._highest, self._to_beat = sample, value
            return
        self._next_s = elapsed_s + max(_SHORTEST_S, elapsed_s / _LINES_PER_AGE)
        self._keep_peak(value)
        self._lines.append(sample)
        self._to_beat = _HIGHER * value
        if elapsed_s >= self._next_write_s:
            self._next_write_s = elapsed_s + _WRITE_EVERY_S
            self._write()

    def _keep_peak(self, value: float) -> None:
        """Add the highest sample since the last line if it exceeds the next one, too."""
        highest, self._highest = self._highest, None
        if highest and highest[_PEAK] > _HIGHER * value:
            self._lines.append(highest)

    def _write(self) -> None:
        text = "".join(json.dumps(sample) + "\n" for sample in self._lines)
        self._lines.clear()
        if self._file:
            self._rest += text.encode("ascii")
            with contextlib.suppress(OSError):
                self._rest = self._rest[self._file.write(self._rest) :]


@dataclass(frozen=True, kw_only=True)
class TreeUsage:
    """The largest figures of a process tree, in bytes and percent of one core."""

    peak_rss_bytes: int | None
    peak_vms_bytes: int | None
    tree_peak_rss_bytes: int | None  # sum of RSS: shared pages count for each process
    tree_peak_processes: int | None  # at the time of tree_peak_rss_bytes
    max_cpu_percent: float | None
    samples: int
    rate_hz: float | None
    observer_cpu_s: float
    # Sum of PSS, where shared pages count once; None while the process was alone.
    tree_peak_pss_bytes: int | None = None
    tree_pss_looks: int = 0  # how often PSS was read
    tree_pss_unreadable: int = 0  # processes whose PSS may not be read: their RSS counts instead
    most_processes: int | None = None  # alive at the same time
    cgroup_split: Mapping[str, int | None] | None = None  # anonymous and file memory at the peak
    cgroup_seen_bytes: int | None = None  # charged to the control group at that peak


class TreeSampler(threading.Thread):
    """A thread that samples process `pid` and its descendants and writes process_info.log.

    The log has one JSON object a line, as PerfZero's: `time` (seconds since start), `rss` and `vms`
    (bytes) and `cpu_percent` of the process itself, then `tree_rss`, `processes`, `tree_pss` and
    the result of `columns` (always the same numeric keys). See `Timeline`.

    `cgroup` is the trial's own control group, if it has one.
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
        # Held until `finish`. Waiting for a lock costs a third less than waiting for an Event, and
        # the wait, after which all caches are cold, is the most expensive part of a sample.
        self._sampling = threading.Lock()
        self._sampling.acquire()
        self._statm = b""  # the last content
        self._own: tuple[int, ...] = (0, 0, 0)  # its bytes: virtual, resident, not anonymous
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
        """Sample until `finish` is called or the process has ended."""
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
        """The process and its descendants, as of the last search."""
        return self._tree.pids

    def finish(self) -> TreeUsage:
        """Stop sampling and return the largest figures."""
        self._sampling.release()
        # Reading blocks while the process hangs in the kernel and holds its memory map's lock.
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
            tree_pss_looks=tree.pss.readings,
            tree_pss_unreadable=tree.pss.unreadable,
            most_processes=tree.most_processes if self._samples else None,
            cgroup_split=self._split.split if self._split else None,
            cgroup_seen_bytes=self._split.seen_bytes if self._split else None,
        )

    def _sample(self, statm: int, load: int, elapsed: float) -> bool:
        """Take one sample; False when the process has no memory any more."""
        try:
            text = os.pread(statm, 128, 0)
            if text != self._statm:  # rare in a benchmark's steady state
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
        """Return the line of process_info.log for the last sample."""
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
            return  # preempted between the two clocks: the other process may have run on
        self._window = (now, used)
        if used is not None and before is not None:
            self._cpu_percent = round((used - before) / (now - then) * 100.0, 1)
            self._max_cpu = max(self._max_cpu or 0.0, self._cpu_percent)


def _last_pid(load: int) -> bytes:
    """Return the latest pid of /proc/loadavg: it changes when a process or thread begins."""
    try:
        return os.pread(load, 128, 0).rpartition(b" ")[2]
    except OSError:
        return b""


def _cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of another process, to the nanosecond, without reading a file.

    The clock of process PID is `~PID << 3 | 2` (CPUCLOCK_SCHED) in the kernel's encoding.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None
