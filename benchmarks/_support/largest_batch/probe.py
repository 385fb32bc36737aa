"""A probe tries a batch size in a process of its own, which a limit on memory may end.

The limit is on resident and swapped memory: the kernel's high-water mark of the process (VmHWM)
and its swap are read from outside, and once more when it has ended. The kernel's own limits
(RLIMIT_AS, RLIMIT_DATA) count reserved memory: thread stacks, arenas and libraries that nobody
touches. They would refuse batches that fit, and make libraries abort where they should report.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks._support import child

_INTERVAL_S = 0.01  # memory is filled at some GB/s: 10 ms are some tens of MB
_MARK = re.compile(rb"^(VmHWM|VmRSS|VmSwap):\s+(\d+) kB", re.MULTILINE)
_ABORTED = "std::bad_alloc"  # what a C++ library says last when its memory request was refused


Status = Literal["fits", "out_of_memory", "failed"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The result of one batch size, tried in a process of its own. Unknown values are None."""

    batch_size: int
    status: Status
    reason: str | None = None  # how memory ran out, or how it failed
    steps: int = 0
    step_median_s: float | None = None
    peak_rss_bytes: int | None = None  # the kernel's high-water mark of that process
    device_peak_bytes: int | None = None  # the framework's, of the accelerator's memory
    seconds: float = 0.0  # the process's life


@dataclass(frozen=True, kw_only=True)
class Target:
    """The code that a probe runs: `function(arguments, batch_size, steps)` of a module.

    It returns a dict: `step_s`, the seconds of each step, and `device_peak_bytes` or None.
    """

    module: str
    function: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Files:
    order: Path
    answer: Path
    log: Path


@dataclass(frozen=True, kw_only=True)
class Prober:
    """A callable that runs a probe of a batch size. Its log and its answer stay in `folder`."""

    target: Target
    folder: Path
    memory_bytes: int | None  # None: the machine's own limits only
    steps: int = 3
    time_limit_s: float = 600.0

    def __call__(self, batch_size: int) -> Probe:
        """Run one probe; every way in which it ends is a result."""
        files = self._write(batch_size)
        kills = _kernel_kills()
        began_s = time.perf_counter()
        returncode, stopped, watched = self._run(files, began_s)
        found = child.read_answer(files.answer) or {}
        marks = [mark for mark in (watched, found.get("peak_rss_bytes")) if mark is not None]
        peak = max(marks, default=None)
        status: Status
        reason: str | None
        if stopped == "time":
            status, reason = "failed", f"it was not done after {self.time_limit_s:g} s"
        elif self.memory_bytes is not None and (peak or 0) > self.memory_bytes:
            status, reason = "out_of_memory", f"it took over {self.memory_bytes} bytes, the limit"
        elif found:
            status, reason = found["status"], found.get("reason")
        else:
            was_kernel = kills != _kernel_kills()
            status, reason = _died(returncode, files.log, was_kernel=was_kernel)
        return Probe(
            batch_size=batch_size,
            status=status,
            reason=reason,
            steps=len(found.get("step_s", ())),
            step_median_s=statistics.median(found["step_s"]) if found.get("step_s") else None,
            peak_rss_bytes=peak,
            device_peak_bytes=found.get("device_peak_bytes"),
            seconds=time.perf_counter() - began_s,
        )

    def _write(self, batch_size: int) -> _Files:
        """Write the order to files of its own, and return their paths."""
        self.folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self.folder.glob("*.order.json"))) + 1
        stem = f"{number:03d}_batch_{batch_size}"
        files = _Files(
            order=self.folder / f"{stem}.order.json",
            answer=self.folder / f"{stem}.answer.json",
            log=self.folder / f"{stem}.log",
        )
        target = self.target
        task = {
            "module": "benchmarks._support.largest_batch.probe",
            "function": "answer",
            "target": [target.module, target.function],
            "arguments": dict(target.arguments),
            "batch_size": batch_size,
            "steps": self.steps,
            "answer": str(files.answer),
        }
        child.write_order(files.order, task)
        return files

    def _run(self, files: _Files, began_s: float) -> tuple[int, str | None, int | None]:
        """Return the exit status, the reason why the probe was stopped, and its peak memory."""
        with files.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(child.PROGRAM), str(files.order)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            stopped, peak = self._watch(process, began_s)
        finally:
            _end(process)
        return process.returncode, stopped, peak

    def _watch(
        self, process: subprocess.Popen[bytes], began_s: float
    ) -> tuple[str | None, int | None]:
        """Wait for the end; kill what takes too much. Return why it was killed, and the peak."""
        peak = None
        while process.poll() is None:
            now = _memory_bytes(process.pid)
            peak = now if peak is None else max(peak, now or 0)
            if self.memory_bytes is not None and (peak or 0) > self.memory_bytes:
                return "memory", peak
            if time.perf_counter() - began_s > self.time_limit_s:
                return "time", peak
            time.sleep(_INTERVAL_S)
        return None, peak


def _died(returncode: int, log: Path, *, was_kernel: bool) -> tuple[Status, str]:
    """Return the status of a process that gave no answer, and the reason."""
    if returncode == -signal.SIGKILL and was_kernel:
        return "out_of_memory", "killed by the kernel, which was out of memory"
    if returncode == -signal.SIGABRT and _ABORTED in log.read_text(errors="replace"):
        return "out_of_memory", f"aborted: {_ABORTED}"
    said = child.last_line(log) or "it said nothing"
    return "failed", f"{child.ending(returncode)}: {said} (log: {log})"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill all that is left of the probe, which has a session of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _memory_bytes(pid: int) -> int | None:
    """Return the peak of a process's memory, at least what it has now with swap."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    marks = {name: int(kilobytes) * 1024 for name, kilobytes in _MARK.findall(status)}
    if b"VmRSS" not in marks:
        return None
    return max(marks.get(b"VmHWM", 0), marks[b"VmRSS"] + marks.get(b"VmSwap", 0))


def _kernel_kills() -> int | None:
    """Return the number of processes that the kernel has killed for memory; None if unknown."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


# By the name of the exception's class or one of its bases: no framework is imported for it.
_CLASSES = {"MemoryError", "OutOfMemoryError", "ResourceExhaustedError"}
# RuntimeErrors of PyTorch's CPU allocator, of CUDA's libraries, of XLA.
_MESSAGES = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
    "std::bad_alloc",
    "Cannot allocate memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True when the failure is that memory ran out."""
    if _CLASSES & {kind.__name__ for kind in type(error).__mro__}:
        return True
    return any(message in str(error) for message in _MESSAGES)


def _peak_rss_bytes() -> int:
    """Return VmHWM; getrusage's peak survives exec, so that it may be the parent's."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _run(order: dict[str, Any]) -> dict[str, Any]:
    try:
        module, name = order["target"]
        function = getattr(importlib.import_module(module), name)
        found = function(order["arguments"], order["batch_size"], order["steps"])
        return {"status": "fits", **found}
    except Exception as error:  # whatever it is: its kind is the answer
        traceback.print_exc()
        said = " ".join(str(error).split())[:500]
        status = "out_of_memory" if is_out_of_memory(error) else "failed"
        return {"status": status, "reason": f"{type(error).__name__}: {said}"}


def answer(order: dict[str, Any]) -> None:
    """Carry out the order and write the answer."""
    _be_first_to_go()
    found = _run(order)
    child.write_answer(Path(order["answer"]), {**found, "peak_rss_bytes": _peak_rss_bytes()})


def _be_first_to_go() -> None:
    """Ask the kernel to kill this process before others when memory is short."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
