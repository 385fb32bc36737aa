"""What every profiler of a profile trial is to the worker: it records, and says what it saw.

A recorder may be started and stopped several times: each time is a window. `Benchmark.measure`
finds here who wants to know when its timed part begins (`observe`, `observer`).
"""

from __future__ import annotations

import importlib
import os

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Row = Dict[str, Any]
else:
    Row = dict

TOP_ROWS = 10
# Intervals of `measure` that a trace holds: it grows with every operation of every step.
TRACED_STEPS = 20


class UnavailableError(RuntimeError):
    """The environment under test lacks what a kind of profile needs; the text says what."""


def imported(module: str, name: str) -> Any:
    """Import a library of the environment under test. Raises UnavailableError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = "%s cannot be imported in this environment: %s" % (name, error)
        raise UnavailableError(text) from None


class ProfileRecorder:
    """One profiler. Sub-classes say what starting and stopping it are."""

    tool = ""
    version: Optional[str] = None
    scope = ""  # whose work is recorded, in a few words
    # True: of a method that measures, only the timed steps are recorded, and few of them.
    only_timed_steps = False

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.notes: List[str] = []

    def start(self) -> None:
        """Begin to record. Raises what the profiler raises."""
        raise NotImplementedError

    def stop(self, keep: bool) -> None:
        """End the window; without `keep`, forget it."""
        raise NotImplementedError

    def top(self) -> List[Row]:
        """What took most, the largest first, at most TOP_ROWS. To be called after the last stop."""
        raise NotImplementedError


def files_below(folder: str) -> List[Dict[str, Any]]:
    """The files of a folder, with paths relative to it."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            found.append({"path": os.path.relpath(path, folder), "bytes": os.path.getsize(path)})
    return sorted(found, key=lambda one: str(one["path"]))


_observers: List[Any] = []


def observe(observer: Any) -> None:
    """Let `observer` know of every measurement from now on; None ends that."""
    _observers[:] = [] if observer is None else [observer]


def observer() -> Any:
    """Who is to be told of measurements in this process; None in a trial that is no profile."""
    return _observers[0] if _observers else None
