"""Recorders of allocations: memray if the environment has it, else Python's tracemalloc.

Their rows are the places that allocate or, by line, the lines of the benchmark's and the model's
own files from which these were called.
"""

from __future__ import annotations

import os
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from perfrun.worker.profilers.own_lines import (
    Line,
    is_own,
    line_of,
    line_rows,
    write_lines,
)
from perfrun.worker.profilers.profile_recorder import (
    ProfileRecorder,
    Row,
    UnavailableError,
    imported,
    is_bookkeeping,
)

_FRAMES = 10  # of a call stack that tracemalloc keeps
_FRAMES_BY_LINE = 40  # a line of a model may be so far from the allocation
_CHECK_EVERY_S = 0.02
_GROWTH = 1.1  # a new snapshot is worth its time when so much more is allocated
_LEAST_BYTES = 2**20
_CUDA_EVENTS = 100_000


_LINES = "lines.txt"
_HEADINGS = ("MiB", "allocations")

Frame = Tuple[str, str, int]  # function, file, line
Stack = Tuple[Frame, ...]  # from the innermost function on
Held = Tuple[Stack, int, int]  # bytes and allocations that a stack holds


def allocation_recorder(folder: str, by_line: bool = False) -> ProfileRecorder:
    """Return the best recorder that the environment has."""
    try:
        imported("memray", "memray")
    except UnavailableError:
        return SnapshotRecorder(folder, by_line)
    return MemrayRecorder(folder, by_line)


class MemrayRecorder(ProfileRecorder):
    """memray: every allocation of the process, including those of C and C++ code.

    A window has a file of its own. A row is the most that its place held in any of them.
    """

    tool = "memray"
    scope = "allocations of all threads, native ones included; rows are those alive at the peak"

    def __init__(self, folder: str, by_line: bool = False) -> None:
        super().__init__(folder)
        self._memray = imported("memray", "memray")
        self.version = str(self._memray.__version__)
        self._by_line = by_line
        self._files: List[str] = []
        self._file = ""
        self._tracker: Any = None
        self._cuda = CudaHistory(folder)

    def start(self) -> None:
        number = len(self._files) + 1
        name = "memray.bin" if number == 1 else "memray_%d.bin" % number
        self._file = os.path.join(self.folder, name)
        # An aggregated file grows with the number of places that allocate, not with time.
        self._tracker = self._memray.Tracker(
            self._file, file_format=self._memray.FileFormat.AGGREGATED_ALLOCATIONS
        )
        # memray 1.20 loses as many frames of the thread that starts it as return afterwards.
        with ThreadPoolExecutor(1) as other:
            other.submit(self._tracker.__enter__).result()
        self._cuda.start()

    def stop(self, keep: bool) -> None:
        self._cuda.stop(keep)
        self._tracker.__exit__(None, None, None)
        if keep:
            self._files.append(self._file)
        else:
            os.unlink(self._file)

    def top(self) -> List[Row]:
        windows = [list(self._held(path)) for path in self._files]
        if self._by_line:
            return _rows_by_line(self.folder, windows, self.most_rows)
        return _largest(windows, self.most_rows)

    def _held(self, path: str) -> Iterator[Held]:
        with self._memray.FileReader(path) as reader:
            for record in reader.get_high_watermark_allocation_records(merge_threads=True):
                stack = tuple(record.stack_trace())
                if not (self.times_steps_only and _is_bookkeeping(stack)):
                    yield stack or (("?", "", 0),), record.size, record.n_allocations


class SnapshotRecorder(ProfileRecorder):
    """tracemalloc: the memory of Python's allocators at its peak.

    It does not see memory of C and C++ libraries that do not tell Python of it.
    """

    tool = "tracemalloc"
    version = "%d.%d.%d" % sys.version_info[:3]
    scope = "allocations through Python's allocators; rows are those alive near the peak"

    def __init__(self, folder: str, by_line: bool = False) -> None:
        super().__init__(folder)
        self._by_line = by_line
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._snapshot: Optional[tracemalloc.Snapshot] = None
        self._seen_bytes = 0
        self._cuda = CudaHistory(folder)

    def start(self) -> None:
        tracemalloc.start(_FRAMES_BY_LINE if self._by_line else _FRAMES)
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._cuda.start()

    def stop(self, keep: bool) -> None:
        self._cuda.stop(keep)
        self._ended.set()
        if self._thread:
            self._thread.join()
        if keep:
            self._keep_if_larger()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if not keep:
            self._snapshot, self._seen_bytes = None, 0
        if self._snapshot is None:
            return
        if self._seen_bytes < 0.9 * peak and peak > _LEAST_BYTES:
            self.notes.append(
                "the snapshot shows %.1f MiB; for a moment there were %.1f MiB"
                % (self._seen_bytes / 2**20, peak / 2**20)
            )
        self._snapshot.dump(os.path.join(self.folder, "tracemalloc.snapshot"))
        with open(os.path.join(self.folder, "top.txt"), "w", encoding="utf-8") as file:
            for statistic in self._snapshot.statistics("lineno")[:100]:
                file.write("%s\n" % statistic)

    def _watch(self) -> None:
        while not self._ended.wait(_CHECK_EVERY_S):
            self._keep_if_larger()

    def _keep_if_larger(self) -> None:
        """Take a snapshot if clearly more is allocated now than in the one that is kept."""
        now = tracemalloc.get_traced_memory()[0]
        if now > max(_GROWTH * self._seen_bytes, self._seen_bytes + _LEAST_BYTES) or (
            self._snapshot is None and self._ended.is_set()
        ):
            taken = tracemalloc.take_snapshot()
            own = [
                tracemalloc.Filter(False, name)
                for name in (tracemalloc.__file__, threading.__file__, __file__)
            ]
            self._snapshot, self._seen_bytes = taken.filter_traces(own), now

    def top(self) -> List[Row]:
        window = [] if self._snapshot is None else list(_held_in(self._snapshot))
        if self.times_steps_only:
            window = [one for one in window if not is_bookkeeping(one[0][0][1], "")]
        if self._by_line:
            return _rows_by_line(self.folder, [window], self.most_rows)
        return _largest([window], self.most_rows)


class CudaHistory:
    """PyTorch's own history of its CUDA allocations: a file for pytorch.org/memory_viz."""

    def __init__(self, folder: str) -> None:
        self._file = os.path.join(folder, "cuda_memory.pickle")
        self._memory: Any = None

    def start(self) -> None:
        """Begin to record, if the benchmark uses PyTorch and there is a CUDA device."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            self._memory = torch.cuda.memory
            self._memory._record_memory_history(max_entries=_CUDA_EVENTS)

    def stop(self, keep: bool) -> None:
        """Write the file, if it is to be kept."""
        if self._memory is not None:
            if keep:
                self._memory._dump_snapshot(self._file)
            self._memory._record_memory_history(enabled=None)
            self._memory = None


def _held_in(snapshot: tracemalloc.Snapshot) -> Iterator[Held]:
    for statistic in snapshot.statistics("traceback"):
        # Oldest first, without names of functions.
        frames = reversed([("", frame.filename, frame.lineno) for frame in statistic.traceback])
        yield tuple(frames), statistic.size, statistic.count


def _is_bookkeeping(stack: Stack) -> bool:
    """Return True for memory of `measure` itself, which holds the times."""
    return any(is_bookkeeping(path, name) for name, path, _ in stack)


def _largest(windows: List[List[Held]], most_rows: int) -> List[Row]:
    """Return the places that allocated most; of several windows each place's largest sum."""
    most: Dict[Any, List[int]] = {}
    for held in windows:
        for key, sums in _summed((stack[0], size, count) for stack, size, count in held).items():
            most[key] = max(most.get(key, sums), sums)
    rows: List[Row] = [
        {
            "name": name,
            "where": "%s:%d" % (path, line) if path else "",
            "bytes": size,
            "allocations": count,
        }
        for (name, path, line), (size, count) in most.items()
    ]
    return sorted(rows, key=lambda row: -int(row["bytes"]))[:most_rows]


def _rows_by_line(folder: str, windows: List[List[Held]], most_rows: int) -> List[Row]:
    """Return the lines of own files whose calls allocated most, and write all of them."""
    most: Dict[Any, List[int]] = {}
    for held in windows:
        lines = (
            (next((frame[1:] for frame in stack if is_own(frame[1])), None), size, count)
            for stack, size, count in held
        )
        for key, sums in _summed(lines).items():
            most[key] = max(most.get(key, sums), sums)
    elsewhere = most.pop(None, None)
    found: Dict[Line, Dict[str, Any]] = {}
    for (path, number), (size, count) in most.items():
        shown = ("%.3f" % (size / 2**20), "%d" % count)
        found[line_of(path, number)] = {"bytes": size, "allocations": count, "shown": shown}
    write_lines(os.path.join(folder, _LINES), found, "bytes", _HEADINGS)
    rows = line_rows(found, "bytes", most_rows)
    for row in rows:
        del row["shown"]
    if elsewhere is not None:
        name = "(called from none of the benchmark's or the model's own lines)"
        rows.append({"name": name, "where": "", "bytes": elsewhere[0], "allocations": elsewhere[1]})
    return sorted(rows, key=lambda row: -int(row["bytes"]))[:most_rows]


def _summed(held: Iterable[Tuple[Any, int, int]]) -> Dict[Any, List[int]]:
    found: Dict[Any, List[int]] = {}
    for key, size, count in held:
        sums = found.setdefault(key, [0, 0])
        sums[0] += size
        sums[1] += count
    return found
