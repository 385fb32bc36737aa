"""Recorder of the time of each line, in the benchmark's and the model's own files.

line_profiler, the usual tool, must be told the functions beforehand and does not find those that a
method makes when it runs, such as a step. Here every function of a file is traced.
Source: https://docs.python.org/3/library/sys.html#sys.settrace.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from types import FrameType
from typing import Any, Dict, List, Tuple

from perfrun.worker.profilers.own_lines import Line, is_own, line_rows, write_lines
from perfrun.worker.profilers.profile_recorder import ProfileRecorder, Row

_clock = time.perf_counter_ns
_HEADINGS = ("hits", "total ms", "us per hit", "share")


class LineRecorder(ProfileRecorder):
    """A trace function: hits and time of each line, the calls that it makes included.

    The time of the trace function itself is taken out. What is left of its cost is that of calling
    it, once for each Python function and each line of an own file.
    """

    tool = "perfrun's line tracer"
    version = platform.python_version()
    scope = "lines of the benchmark's and the model's own files, in the main thread"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._is_own: Dict[str, bool] = {}
        self._times: Dict[Line, List[int]] = {}  # hits, nanoseconds
        self._open: Dict[FrameType, Tuple[Line, int]] = {}  # the line that a frame is at, and since
        self._left_out_ns = 0  # what the clock of the lines does not count
        self._paused_at_ns = 0
        self._began_ns = 0
        self._whole_ns = 0

    def start(self) -> None:
        self._began_ns = self._now()
        frame = sys._getframe()
        while frame is not None:  # a loop's body is a part of a function that runs already
            if is_own(frame.f_code.co_filename):
                frame.f_trace = self._line
            frame = frame.f_back  # type: ignore[assignment]
        sys.settrace(self._call)

    def pause(self) -> None:
        self._paused_at_ns = _clock()

    def resume(self) -> None:
        self._left_out_ns += _clock() - self._paused_at_ns
        self._paused_at_ns = 0

    def stop(self, keep: bool) -> None:
        sys.settrace(None)
        now_ns = (self._paused_at_ns or _clock()) - self._left_out_ns
        self._paused_at_ns = 0
        for frame in list(self._open):
            self._close(frame, now_ns)
        frame = sys._getframe()
        while frame is not None:
            if frame.f_trace == self._line:
                frame.f_trace = None
            frame = frame.f_back  # type: ignore[assignment]
        if not keep:
            self._times.clear()
            return
        self._whole_ns += now_ns - self._began_ns
        write_lines(os.path.join(self.folder, "lines.txt"), self._found(), "total_s", _HEADINGS)

    def top(self) -> List[Row]:
        rows = line_rows(self._found(), "total_s", self.most_rows)
        if not rows:
            self.notes.append("no line of the benchmark's or the model's own files ran")
        return [{key: row[key] for key in row if key != "shown"} for row in rows]

    def _found(self) -> Dict[Line, Dict[str, Any]]:
        whole_ns = max(1, self._whole_ns)
        return {
            line: {
                "calls": hits,
                "total_s": spent_ns / 1e9,
                "shown": (
                    "%d" % hits,
                    "%.3f" % (spent_ns / 1e6),
                    "%.1f" % (spent_ns / 1e3 / hits),
                    "%.1f %%" % (100 * spent_ns / whole_ns),
                ),
            }
            for line, (hits, spent_ns) in self._times.items()
        }

    def _now(self) -> int:
        return _clock() - self._left_out_ns

    def _call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        path = frame.f_code.co_filename
        own = self._is_own.get(path)
        if own is None:
            own = self._is_own[path] = is_own(path)
        return self._line if own else None

    def _line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if self._paused_at_ns:
            self._close(frame, self._paused_at_ns - self._left_out_ns)
            return self._line
        began_ns = _clock()
        if event == "line":
            self._close(frame, began_ns - self._left_out_ns)
            code = frame.f_code
            line = Line(code.co_filename, frame.f_lineno, code.co_name, code.co_firstlineno)
            self._times.setdefault(line, [0, 0])[0] += 1
            self._left_out_ns += _clock() - began_ns
            self._open[frame] = (line, self._now())
        elif event == "return":
            self._close(frame, began_ns - self._left_out_ns)
            self._left_out_ns += _clock() - began_ns
        return self._line

    def _close(self, frame: FrameType, now_ns: int) -> None:
        line, since_ns = self._open.pop(frame, (None, 0))
        if line is not None:
            self._times[line][1] += now_ns - since_ns
