"""Recorder of PyTorch's own profiler: a trace for Perfetto, Chrome and TensorBoard.

It records the thread that starts it and those that autograd runs for it, so it must be started in
the thread that does the work. Source: https://docs.pytorch.org/docs/stable/profiler.html.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from typing import Any, Dict, Iterable, Iterator, List, Optional

from perfrun.worker.measure.statistics import median
from perfrun.worker.profilers.profile_recorder import ProfileRecorder, Row, imported

_US = 1e-6  # the profiler's times are in microseconds
_STDERR = 2
_MARK = b"USDT:"  # of lines for kernel probes, which PyTorch 2.13 prints whatever the log level


class TorchRecorder(ProfileRecorder):
    """torch.profiler: every operation of PyTorch with its input shapes, and kernels of a GPU."""

    tool = "torch.profiler"
    traces_every_operation = True
    scope = "PyTorch operations of the main thread, and kernels on CUDA"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        torch: Any = imported("torch", "PyTorch")
        imported("torch.profiler", "PyTorch's profiler")
        self._torch = torch
        self.version = str(torch.__version__)
        self._open: Any = None
        self._kept: List[Any] = []
        self._steps = 0  # of the window that is open
        self._median_s: Optional[Dict[str, float]] = {}  # None: a window is not of timed steps

    def start(self) -> None:
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        self._open = profiler.profile(activities=activities, record_shapes=True)
        self._steps = 0
        with _without_marks():
            self._open.start()

    def note_steps(self, steps: int) -> None:
        self._steps = steps

    def stop(self, keep: bool) -> None:
        recorded, self._open = self._open, None
        if self._torch.cuda.is_available() and self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()  # kernels still queued belong to the window
        with _without_marks():
            recorded.stop()
        if keep:
            os.makedirs(self.folder, exist_ok=True)
            handler = self._torch.profiler.tensorboard_trace_handler(self.folder, use_gzip=True)
            handler(recorded)
            self._kept.append(recorded.key_averages())
            self._add_medians(recorded)

    def _add_medians(self, recorded: Any) -> None:
        if not self._steps:
            self._median_s = None
        if self._median_s is not None:
            for name, value in median_times(recorded.events(), self._steps).items():
                self._median_s[name] = self._median_s.get(name, 0.0) + value

    def top(self) -> List[Row]:
        rows: Dict[str, Row] = {}
        for event in (event for averages in self._kept for event in averages):
            row = rows.setdefault(
                event.key,
                {"name": event.key, "calls": 0, "self_s": 0.0, "total_s": 0.0, "device_s": 0.0},
            )
            row["calls"] += event.count
            row["self_s"] += event.self_cpu_time_total * _US
            row["total_s"] += event.cpu_time_total * _US
            row["device_s"] += _device_us(event) * _US
        key = "device_s" if any(row["device_s"] for row in rows.values()) else "self_s"
        if key == "self_s":
            for row in rows.values():
                del row["device_s"]
            if not rows:
                self.notes.append("nothing was recorded: the method ran no PyTorch operation")
        return sorted(rows.values(), key=lambda row: -float(row[key]))[: self.most_rows]

    def all_rows(self, _rows: List[Row]) -> List[Row]:
        """Return the rows, with `median_s` where all that was recorded are timed steps."""
        if not self._median_s:
            return _rows
        return [{**row, "median_s": self._median_s.get(row["name"], 0.0)} for row in _rows]


def median_times(events: Iterable[Any], steps: int) -> Dict[str, float]:
    """Return each operator's own seconds on the host, as if each step were like the median one.

    The profiler has no processor time: what takes the processor from a call, or its memory, makes
    that call longer. A call is compared with those at its place in the other steps or, where the
    steps do not have the same number of calls, with all calls of the same input shapes.
    """
    calls: Dict[str, List[Any]] = {}
    for event in events:
        calls.setdefault(event.key, []).append(event)
    found = {}
    for name, own in calls.items():
        alike: Dict[Any, List[float]] = {}
        own.sort(key=lambda event: event.time_range.start)
        of_step, rest = divmod(len(own), steps)
        for number, event in enumerate(own):
            place = repr(event.input_shapes) if rest else number % of_step
            alike.setdefault(place, []).append(event.self_cpu_time_total * _US)
        found[name] = sum(median(times) * len(times) for times in alike.values())
    return found


@contextlib.contextmanager
def _without_marks() -> Iterator[None]:
    """Keep the profiler's marks off standard error; the log has them with `--debug`.

    C++ code writes them to the file descriptor. What else is written there meanwhile follows.
    """
    sys.stderr.flush()
    try:
        usual = os.dup(_STDERR)
    except OSError:  # closed
        yield
        return
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), _STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(usual, _STDERR)
            os.close(usual)
            caught.seek(0)
            for line in caught:
                if line.startswith(_MARK):
                    logging.getLogger().debug("%s", line.decode("utf-8", "replace").rstrip())
                else:
                    os.write(_STDERR, line)


def _device_us(event: Any) -> float:
    """Return the device's own time of an event; the attribute's name changed with PyTorch 2.4."""
    for name in ("self_device_time_total", "self_cuda_time_total"):
        value: Optional[float] = getattr(event, name, None)
        if value is not None:
            return value
    return 0.0
