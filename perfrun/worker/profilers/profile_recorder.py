"""The interface of all profilers: a profile recorder records windows and reports what it saw.

There are two mechanisms: `profile_trial` records the method in an extra trial (`--profile`), and
`profile_windows` records windows of a trial that counts (`--profiler_enabled_time`). In a profile
trial `Benchmark.measure` tells the observer, which is kept here, when its timed steps run.
"""

from __future__ import annotations

import importlib
import os

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence

    Row = Dict[str, Any]
else:
    Row = dict

TOP_ROWS = 10
MOST_ROWS = 1000  # of a file of all rows
ALL_ROWS = "rows.json"  # that file, beside those of the profiler
# Intervals of `measure` that a trace holds: it grows with every operation of every step.
TRACED_STEPS = 20
_observers: List[Any] = []

_HERE = os.path.dirname(os.path.abspath(__file__))
_MEASURE = os.path.join(os.path.dirname(_HERE), "measure")
_TIMED_CODE = ("run_block", "run", "__iter__")  # of `measure`: what stands around a timed step


class UnavailableError(RuntimeError):
    """Raised when the environment under test lacks what a kind of profile needs."""


def imported(module: str, name: str) -> Any:
    """Import a library of the environment under test. Raises UnavailableError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = "%s cannot be imported in this environment: %s" % (name, error)
        raise UnavailableError(text) from None


def is_bookkeeping(path: str, function: str) -> bool:
    """Return True for perfrun's own work in a profile trial: all but what calls the timed steps."""
    folder = os.path.dirname(path)
    name = function.rpartition(".")[2]  # py-spy names a method with its class
    return folder == _HERE or (folder == _MEASURE and name not in _TIMED_CODE)


class ProfileRecorder:
    """One profiler. It may be started and stopped several times: each time is a window."""

    tool = ""
    version: Optional[str] = None
    scope = ""  # whose work is recorded, in a few words
    # True: a recording grows with every operation, so only few timed steps of each series run.
    traces_every_operation = False
    most_rows = TOP_ROWS  # that `top` returns

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.notes: List[str] = []
        self.times_steps_only = False  # set where windows are those of timed steps

    def start(self) -> None:
        """Begin to record. Raises what the profiler raises."""
        raise NotImplementedError

    def pause(self) -> None:
        """Leave out what follows, until `resume`: `measure` works between two intervals.

        A profiler that cannot be paused at little cost leaves that work out of its rows instead.
        """

    def resume(self) -> None:
        """Go on in the same window."""

    def stop(self, keep: bool) -> None:
        """End the window; without `keep`, drop it."""
        raise NotImplementedError

    def note_steps(self, steps: int) -> None:
        """Take the number of timed steps of the window that ends, for figures of a step."""

    def top(self) -> List[Row]:
        """Return the `most_rows` largest consumers, largest first. Call it after the last stop."""
        raise NotImplementedError

    def all_rows(self, _rows: List[Row]) -> List[Row]:
        """Return what the file of all rows holds, where that is more than `top`, the `_rows`."""
        return _rows


def profile_facts(
    kind: Optional[str],
    recorder: Any,
    folder: str,
    windows: List[Dict[str, Any]],
    top: Sequence[Row] = (),
    notes: Sequence[str] = (),
    error: Optional[str] = None,
) -> Dict[str, Any]:
    """Return an entry of the summary's `perfrun.profiles`; paths begin at the trial's folder."""
    return {
        "kind": kind,
        "tool": recorder.tool,
        "version": recorder.version,
        "scope": recorder.scope,
        "windows": windows,
        "top": list(top),
        "files": _files_below(folder),
        "notes": list(notes),
        "error": error,
    }


def _files_below(folder: str) -> List[Dict[str, Any]]:
    from perfrun.worker.folders import places  # in a profile trial only

    found = []
    for place, names in places(folder):
        for path in filter(os.path.isfile, (os.path.join(place, name) for name in names)):
            relative = os.path.relpath(path, os.path.dirname(folder))
            found.append({"path": relative, "bytes": os.path.getsize(path)})
    return sorted(found, key=lambda one: str(one["path"]))


def observe(observer: Any) -> None:
    """Tell `observer` of every measurement from now on; None ends that."""
    _observers[:] = [] if observer is None else [observer]


def observer() -> Any:
    """Return the observer of measurements in this process; None in a trial that counts."""
    return _observers[0] if _observers else None
