"""Recorders of allocations: memray if the environment has it, else Python's tracemalloc."""

from __future__ import annotations

import os
import sys
import threading
import tracemalloc
from typing import Any, Dict, List, Optional, Tuple

from perfrun.worker.profilers.profile_recorder import (
    TOP_ROWS,
    ProfileRecorder,
    Row,
    UnavailableError,
    imported,
)

_FRAMES = 10  # of a call stack that tracemalloc keeps
_CHECK_EVERY_S = 0.02
_GROWTH = 1.1  # a new snapshot is worth its time when so much more is allocated
_LEAST_BYTES = 2**20
_CUDA_EVENTS = 100_000


def allocation_recorder(folder: str) -> ProfileRecorder:
    """Return the best recorder that the environment has."""
    try:
        imported("memray", "memray")
    except UnavailableError:
        return SnapshotRecorder(folder)
    return MemrayRecorder(folder)


class MemrayRecorder(ProfileRecorder):
    """memray: every allocation of the process, including those of C and C++ code."""

    tool = "memray"
    scope = "allocations of all threads, native ones included; rows are those alive at the peak"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._memray = imported("memray", "memray")
        self.version = str(self._memray.__version__)
        self._file = os.path.join(folder, "memray.bin")
        self._tracker: Any = None
        self._cuda = CudaHistory(folder)

    def start(self) -> None:
        # An aggregated file grows with the number of places that allocate, not with time.
        self._tracker = self._memray.Tracker(
            self._file, file_format=self._memray.FileFormat.AGGREGATED_ALLOCATIONS
        )
        self._tracker.__enter__()
        self._cuda.start()

    def stop(self, keep: bool) -> None:
        self._cuda.stop()
        self._tracker.__exit__(None, None, None)
        if not keep:
            os.unlink(self._file)

    def top(self) -> List[Row]:
        found: Dict[Tuple[str, str], List[int]] = {}
        with self._memray.FileReader(self._file) as reader:
            for record in reader.get_high_watermark_allocation_records(merge_threads=True):
                stack = record.stack_trace(max_stacks=1)
                name, path, line = stack[0] if stack else ("?", "", 0)
                sums = found.setdefault((name, "%s:%d" % (path, line) if path else ""), [0, 0])
                sums[0] += record.size
                sums[1] += record.n_allocations
        return _largest(found)


class SnapshotRecorder(ProfileRecorder):
    """tracemalloc: the memory of Python's allocators at its peak.

    It does not see memory of C and C++ libraries that do not tell Python of it.
    """

    tool = "tracemalloc"
    version = "%d.%d.%d" % sys.version_info[:3]
    scope = "allocations through Python's allocators; rows are those alive near the peak"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._snapshot: Optional[tracemalloc.Snapshot] = None
        self._seen_bytes = 0
        self._cuda = CudaHistory(folder)

    def start(self) -> None:
        tracemalloc.start(_FRAMES)
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._cuda.start()

    def stop(self, keep: bool) -> None:
        self._cuda.stop()
        self._ended.set()
        if self._thread:
            self._thread.join()
        self._keep_if_larger()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if not keep or self._snapshot is None:
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
        found = {}
        for statistic in self._snapshot.statistics("lineno") if self._snapshot else ():
            frame = statistic.traceback[-1]
            where = "%s:%d" % (frame.filename, frame.lineno)
            found["", where] = [statistic.size, statistic.count]
        return _largest(found)


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

    def stop(self) -> None:
        """Write the file."""
        if self._memory is not None:
            self._memory._dump_snapshot(self._file)
            self._memory._record_memory_history(enabled=None)
            self._memory = None


def _largest(found: Dict[Tuple[str, str], List[int]]) -> List[Row]:
    rows: List[Row] = [
        {"name": name, "where": where, "bytes": size, "allocations": count}
        for (name, where), (size, count) in found.items()
    ]
    return sorted(rows, key=lambda row: -int(row["bytes"]))[:TOP_ROWS]
