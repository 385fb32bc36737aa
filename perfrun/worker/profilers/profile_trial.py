"""The extra trial of `--profile=KIND`: a recorder over the method, or over its timed steps.

The timings of such a trial do not count: a profiler slows the code, and not all of it alike.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

from perfrun.worker.measure.stopping import Limits
from perfrun.worker.profilers import profile_recorder
from perfrun.worker.profilers.profile_recorder import TRACED_STEPS, ProfileRecorder, profile_facts

MOST_WINDOWS = 8  # measurements of one method that are traced


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
    if kind == "memory":
        from perfrun.worker.profilers.allocations import allocation_recorder

        return allocation_recorder(folder)
    from perfrun.worker.profilers.sampling import sampling_recorder

    return sampling_recorder(folder)


class ProfileTrial:
    """Records the method, or the timed steps of its measurements, and reports the profile.

    Making it raises `UnavailableError`. A later error is in `facts` and never raised, so that the
    method continues.
    """

    def __init__(self, kind: str, folder: str) -> None:
        self._kind = kind
        self._folder = os.path.join(folder, "profile")
        os.makedirs(self._folder, exist_ok=True)
        self._recorder = make_recorder(kind, self._folder)
        self._windows: List[Dict[str, Any]] = []
        self._open: Optional[Dict[str, Any]] = None
        self._error: Optional[str] = None
        self._method_began_s = 0.0

    def __enter__(self) -> "ProfileTrial":
        self._method_began_s = time.monotonic()
        if self._recorder.only_timed_steps:
            profile_recorder.observe(self)
        self._begin({"part": "method", "series": None, "steps": None})
        return self

    def __exit__(self, *_: Any) -> None:
        self._end(keep=True)
        profile_recorder.observe(None)

    # `Benchmark.measure` calls these of its observer.

    def limits(self, asked: Limits) -> Limits:
        """Return limits with few steps, each an interval: a trace holds every operation of each."""
        steps = min(asked.iterations or TRACED_STEPS, TRACED_STEPS)
        return asked._replace(iterations=steps, block_size=1)

    def measurement_begins(self) -> None:
        """Drop the recording so far, which is not what the method measures; nor is its warm-up."""
        self._end(keep=False)

    def timed_part_begins(self, name: str) -> None:
        """Begin the window of a measurement's timed steps."""
        if len(self._windows) < MOST_WINDOWS:
            self._begin({"part": "timed steps", "series": name, "steps": None})

    def timed_part_ends(self, steps: int) -> None:
        """End the window, which has recorded so many steps."""
        if self._open is not None:
            self._open["steps"] = steps
        self._end(keep=True)

    def _begin(self, window: Dict[str, Any]) -> None:
        if self._error is not None:
            return
        try:
            self._recorder.start()
        except Exception as error:  # noqa: BLE001 - a profiler raises what it likes
            self._error = "the profiler did not start: %s" % error
            return
        self._open = {**window, "begin_s": time.monotonic() - self._method_began_s}

    def _end(self, keep: bool) -> None:
        window, self._open = self._open, None
        if window is None:
            return
        window["end_s"] = time.monotonic() - self._method_began_s
        try:
            self._recorder.stop(keep)
        except Exception as error:  # noqa: BLE001
            self._error = "the profiler did not stop: %s" % error
            return
        if keep:
            self._windows.append(window)

    def facts(self) -> Dict[str, Any]:
        """Return what the summary says of the profile."""
        top: List[Dict[str, Any]] = []
        if self._windows:
            try:
                top = self._recorder.top()
            except Exception as error:  # noqa: BLE001
                self._error = "the profile could not be read: %s" % error
        notes = self._recorder.notes
        return profile_facts(
            self._kind, self._recorder, self._folder, self._windows, top, notes, self._error
        )
