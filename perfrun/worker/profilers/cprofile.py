"""Recorder of every call of the main thread: cProfile, for pstats and snakeviz."""

from __future__ import annotations

import cProfile
import marshal
import os
import platform
from typing import Any, Dict, List

from perfrun.worker.profilers.profile_recorder import TOP_ROWS, ProfileRecorder, Row, is_bookkeeping

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
                "where": "" if path == "~" else "%s:%d" % (path, line),
                "calls": calls,
                "self_s": own_s,
                "total_s": total_s,
            }
            for (path, line, name), (_, calls, own_s, total_s, _) in self._stats.items()
        ]
        return sorted(rows, key=lambda row: -float(row["self_s"]))[:TOP_ROWS]


def _without_bookkeeping(stats: Dict[Any, Any]) -> Dict[Any, Any]:
    """Leave out the functions that pause the recorder, as callers, too."""
    own = {key for key in stats if is_bookkeeping(key[0], key[2]) or _LSPROF in key[2]}
    return {
        key: (*facts[:4], {who: times for who, times in facts[4].items() if who not in own})
        for key, facts in stats.items()
        if key not in own
    }
