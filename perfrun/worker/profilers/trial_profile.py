"""The profile of a profile trial: which recorder, over which part of the method, what it found.

The timings of such a trial do not count: a profiler slows the code, and not all of it alike.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional

from perfrun.worker.measure.stopping import Limits
from perfrun.worker.profilers import recording
from perfrun.worker.profilers.recording import TRACED_STEPS, ProfileRecorder, files_below

MOST_WINDOWS = 8  # measurements of one method that are traced


def _calls(folder: str) -> ProfileRecorder:
    from perfrun.worker.profilers.cprofile import CallRecorder

    return CallRecorder(folder)


def _torch(folder: str) -> ProfileRecorder:
    from perfrun.worker.profilers.torch import TorchRecorder

    return TorchRecorder(folder)


def _tensorflow(folder: str) -> ProfileRecorder:
    from perfrun.worker.profilers.tensorflow import TensorflowRecorder

    return TensorflowRecorder(folder)


def _memory(folder: str) -> ProfileRecorder:
    from perfrun.worker.profilers.allocations import make_recorder

    return make_recorder(folder)


def _stacks(folder: str) -> ProfileRecorder:
    from perfrun.worker.profilers.sampling import make_recorder

    return make_recorder(folder)


MAKERS: Dict[str, Callable[[str], ProfileRecorder]] = {
    "cprofile": _calls,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "memory": _memory,
    "sampling": _stacks,
}


class Profile:
    """Records the method, or the timed steps of its measurements, and says what came of it.

    Making it raises `recording.UnavailableError`. What goes wrong later is in `facts`, never
    raised: the method goes on.
    """

    is_used = True

    def __init__(self, kind: str, folder: str, files: str = "profile") -> None:
        self._kind = kind
        self._folder, self._files = folder, os.path.join(folder, files)
        os.makedirs(self._files, exist_ok=True)
        self._recorder = MAKERS[kind](self._files)
        self._windows: List[Dict[str, Any]] = []
        self._open: Optional[Dict[str, Any]] = None
        self._error: Optional[str] = None
        self._method_began_s = 0.0

    def __enter__(self) -> "Profile":
        self._method_began_s = time.monotonic()
        if self._recorder.only_timed_steps:
            recording.observe(self)
        self._begin({"part": "method", "series": None, "steps": None})
        return self

    def __exit__(self, *_: Any) -> None:
        self._end(keep=True)
        recording.observe(None)

    # What `Benchmark.measure` tells an observer.

    def limits(self, asked: Limits) -> Limits:
        """Few steps, each an interval: a trace holds every operation of all of them."""
        steps = min(asked.iterations or TRACED_STEPS, TRACED_STEPS)
        return asked._replace(iterations=steps, block_size=1)

    def measurement_begins(self) -> None:
        """What was recorded so far is not what the method measures; nor is its warm-up."""
        self._end(keep=False)

    def timed_part_begins(self, name: str) -> None:
        """From here on each step counts."""
        if len(self._windows) < MOST_WINDOWS:
            self._begin({"part": "timed steps", "series": name, "steps": None})

    def timed_part_ends(self, steps: int) -> None:
        """So many steps were recorded."""
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
        """What the summary says of it; paths are relative to the trial's folder."""
        top: List[Dict[str, Any]] = []
        if self._windows:
            try:
                top = self._recorder.top()
            except Exception as error:  # noqa: BLE001
                self._error = "the profile could not be read: %s" % error
        return {
            "kind": self._kind,
            "tool": self._recorder.tool,
            "version": self._recorder.version,
            "scope": self._recorder.scope,
            "windows": self._windows,
            "top": top,
            "files": [
                {**one, "path": "%s/%s" % (os.path.basename(self._files), one["path"])}
                for one in files_below(self._files)
            ],
            "notes": self._recorder.notes,
            "error": self._error,
        }
