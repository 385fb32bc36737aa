"""Recorder of every call of the main thread: cProfile, for pstats and snakeviz."""

from __future__ import annotations

import cProfile
import marshal
import os
import platform
from typing import Any, Dict, List

from perfrun.worker.profilers.profile_recorder import ProfileRecorder, Row, is_bookkeeping

_NATIVE = "~"  # cProfile's file of C functions
_MOST_NATIVE = 5  # C functions of one Python function that are named
_LSPROF = "_lsprof.Profiler"  # cProfile's own object, in the name of the call that pauses it


class CallRecorder(ProfileRecorder):
    """cProfile: exact counts; the times of short functions are overstated."""

    tool = "cProfile"
    version = platform.python_version()
    scope = "Python calls of the main thread"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._profile = cProfile.Profile()
        self._stats: Dict[Any, Any] = {}

    def start(self) -> None:
        self._profile.enable()

    resume = start

    def pause(self) -> None:
        self._profile.disable()

    def stop(self, keep: bool) -> None:
        self._profile.disable()
        if not keep:
            self._profile = cProfile.Profile()
            return
        # All windows so far; what pstats reads is a dict by function, in Python's own format.
        self._profile.create_stats()
        self._stats = vars(self._profile)["stats"]
        if self.times_steps_only:
            self._stats = _without_bookkeeping(self._stats)
        with open(os.path.join(self.folder, "method.prof"), "wb") as file:
            marshal.dump(self._stats, file)

    def top(self) -> List[Row]:
        rows = [
            {
                "name": name,
                "where": "" if path == _NATIVE else "%s:%d" % (path, line),
                "calls": calls,
                "self_s": own_s,
                "total_s": total_s,
            }
            for (path, line, name), (_, calls, own_s, total_s, _) in self._stats.items()
        ]
        return sorted(rows, key=lambda row: -float(row["self_s"]))[: self.most_rows]

    def all_rows(self, _rows: List[Row]) -> List[Row]:
        """Return a row for each Python function, with the C functions that it calls.

        What a function lets C code do is its own work for whoever looks for a cause.
        """
        found: Dict[Any, Row] = {}
        for key, (_, calls, own_s, total_s, callers) in self._stats.items():
            if key[0] != _NATIVE:
                row = found.setdefault(key, _function(key))
                row.update(calls=calls, self_s=row["self_s"] + own_s, total_s=total_s)
                continue
            for caller, (_, from_here, in_c_s, _) in callers.items():
                calls, own_s = calls - from_here, own_s - in_c_s
                place = key if caller[0] == _NATIVE else caller
                row = found.setdefault(place, _function(place))
                row["self_s"] += in_c_s
                if place is key:
                    row["calls"] += from_here
                else:
                    row["native"].append([key[2], from_here, in_c_s])
            if calls > 0:  # from where cProfile saw no caller
                row = found.setdefault(key, _function(key))
                row.update(calls=row["calls"] + calls, self_s=row["self_s"] + max(0.0, own_s))
        for row in found.values():
            row["native"] = sorted(row["native"], key=lambda one: -one[2])[:_MOST_NATIVE]
        return sorted(found.values(), key=lambda row: -float(row["self_s"]))[: self.most_rows]


def _function(key: Any) -> Row:
    path, line, name = key
    where = "" if path == _NATIVE else "%s:%d" % (path, line)
    return {
        "name": name,
        "where": where,
        "calls": 0,
        "self_s": 0.0,
        "total_s": 0.0,
        "native": [],
    }


def _without_bookkeeping(stats: Dict[Any, Any]) -> Dict[Any, Any]:
    """Leave out the functions that pause the recorder, as callers, too."""
    own = {key for key in stats if is_bookkeeping(key[0], key[2]) or _LSPROF in key[2]}
    return {
        key: (*facts[:4], {who: times for who, times in facts[4].items() if who not in own})
        for key, facts in stats.items()
        if key not in own
    }
