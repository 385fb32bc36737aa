"""The extra trial of `--profile=KIND`: a recorder over the timed steps, or over more.

What is recorded is the scope (`--profile_scope`): the timed steps of each measurement, the whole
method, or all from the import of the benchmark's module on. The timings of such a trial do not
count: a profiler slows the code, and not all of it alike.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

from perfrun.worker.measure.stopping import Limits
from perfrun.worker.profilers import profile_recorder
from perfrun.worker.profilers.profile_recorder import (
    ALL_ROWS,
    MOST_ROWS,
    TOP_ROWS,
    TRACED_STEPS,
    ProfileRecorder,
    profile_facts,
)

MOST_WINDOWS = 8  # measurements of one method that are recorded, with a file for each
TIMED, METHOD, PROCESS = "timed", "method", "process"  # scopes


def make_recorder(kind: str, folder: str) -> ProfileRecorder:
    """Return the recorder of a kind of profile. Raises UnavailableError."""
    if kind == "cprofile":
        from perfrun.worker.profilers.cprofile import CallRecorder

        return CallRecorder(folder)
    if kind == "torch":
        from perfrun.worker.profilers.torch import TorchRecorder

        return TorchRecorder(folder)
    if kind == "tensorflow":
        from perfrun.worker.profilers.tensorflow import TensorflowRecorder

        return TensorflowRecorder(folder)
    if kind in ("memory", "memory_lines"):
        from perfrun.worker.profilers.allocations import allocation_recorder

        return allocation_recorder(folder, by_line=kind == "memory_lines")
    if kind == "lines":
        from perfrun.worker.profilers.line_times import LineRecorder

        return LineRecorder(folder)
    if kind == "counters":
        from perfrun.worker.profilers.counters import CounterRecorder

        return CounterRecorder(folder)
    from perfrun.worker.profilers.sampling import sampling_recorder

    return sampling_recorder(folder)


class ProfileTrial:
    """Records what the scope says, and reports the profile.

    Making it raises `UnavailableError`. A later error is in `facts` and never raised, so that the
    method continues. Nobody can know whether a method will measure. So the method is recorded from
    its beginning, and in the scope `timed` that is dropped when its first measurement begins.
    """

    def __init__(self, kind: str, folder: str, scope: str = TIMED, all_rows: bool = False) -> None:
        self._kind = kind
        self._scope = scope
        self._folder = os.path.join(folder, "profile")
        os.makedirs(self._folder, exist_ok=True)
        self._recorder = make_recorder(kind, self._folder)
        self._all_rows = all_rows
        if all_rows:
            self._recorder.most_rows = MOST_ROWS
        self._windows: List[Dict[str, Any]] = []
        self._open: Optional[Dict[str, Any]] = None
        self._error: Optional[str] = None
        self._left_out = 0  # measurements beyond the last window
        self._method_began_s = 0.0

    def process_begins(self) -> None:
        """Begin to record now, before the benchmark's module is imported, if the scope is that."""
        if self._scope == PROCESS:
            self._begin({"part": "process", "series": None, "steps": None})

    def __enter__(self) -> "ProfileTrial":
        self._method_began_s = time.monotonic()
        if self._scope == TIMED or self._recorder.traces_every_operation:
            profile_recorder.observe(self)
        if self._scope != PROCESS:
            self._begin({"part": "method", "series": None, "steps": None})
        return self

    def __exit__(self, *_: Any) -> None:
        self._end(keep=True)
        profile_recorder.observe(None)

    # `Benchmark.measure` calls these of its observer.

    def limits(self, asked: Limits) -> Limits:
        """Return limits with few steps, each an interval, for a trace of every operation."""
        if not self._recorder.traces_every_operation:
            return asked
        steps = min(asked.iterations or TRACED_STEPS, TRACED_STEPS)
        return asked._replace(iterations=steps, block_size=1)

    def measurement_begins(self) -> None:
        """Drop the recording so far, which is not what the method measures."""
        if self._scope == TIMED:
            self._end(keep=False)
            self._recorder.times_steps_only = True

    def interval_begins(self, series: str) -> None:
        """Begin the window of a series with its first timed interval, or go on with it."""
        if self._scope != TIMED:
            return
        if self._open is not None:
            self._do(self._recorder.resume)
        elif len(self._windows) < MOST_WINDOWS:
            self._begin({"part": "timed steps", "series": series, "steps": None})

    def interval_ends(self) -> None:
        """Pause until the next timed interval."""
        if self._scope == TIMED and self._open is not None:
            self._do(self._recorder.pause)

    def timed_part_ends(self, steps: int) -> None:
        """End the window, in which so many steps were timed."""
        if self._scope != TIMED:
            return
        if self._open is not None:
            self._open["steps"] = steps
            self._recorder.note_steps(steps)
        elif steps and self._error is None:
            self._left_out += 1
        self._end(keep=True)

    def _begin(self, window: Dict[str, Any]) -> None:
        if self._error is not None:
            return
        # The beginning is read last, and the end first: starting a profiler takes time, too.
        self._do(self._recorder.start, "start")
        if self._error is None:
            self._open = {**window, "begin_s": time.monotonic()}

    def _end(self, keep: bool) -> None:
        window, self._open = self._open, None
        if window is None:
            return
        window["end_s"] = time.monotonic()
        self._do(lambda: self._recorder.stop(keep))
        if keep and self._error is None:
            self._windows.append(window)

    def _do(self, what: Any, verb: str = "stop") -> None:
        try:
            what()
        except Exception as error:  # noqa: BLE001 - a profiler raises what it likes
            self._error = "the profiler did not %s: %s" % (verb, error)

    def _write_all(self, rows: List[Dict[str, Any]]) -> None:
        import json  # a profile trial imports what it needs when it needs it

        with open(os.path.join(self._folder, ALL_ROWS), "w", encoding="utf-8") as file:
            json.dump(self._recorder.all_rows(rows), file)

    def facts(self) -> Dict[str, Any]:
        """Return what the summary says of the profile."""
        top: List[Dict[str, Any]] = []
        if self._windows:
            try:
                top = self._recorder.top()
                if self._all_rows:
                    self._write_all(top)
                    top = top if self._kind == "counters" else top[:TOP_ROWS]
            except Exception as error:  # noqa: BLE001
                self._error = "the profile could not be read: %s" % error
        windows = [
            {**window, **{key: window[key] - self._method_began_s for key in ("begin_s", "end_s")}}
            for window in self._windows
        ]
        notes = list(self._recorder.notes)
        if self._windows and not top and not notes and self._error is None:
            notes.append("nothing was seen in that time; more steps (--iterations) show more")
        if self._left_out:
            notes.append(
                "the first %d measurements were recorded, and not the other %d"
                % (MOST_WINDOWS, self._left_out)
            )
        return profile_facts(
            self._kind, self._recorder, self._folder, windows, top, notes, self._error
        )
