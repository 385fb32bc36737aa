"""Recorder of every call of the main thread: cProfile, for pstats and snakeviz."""

from __future__ import annotations

import cProfile
import os
import platform
import pstats
from typing import Any, List

from perfrun.worker.profilers.profile_recorder import TOP_ROWS, ProfileRecorder, Row


class CallRecorder(ProfileRecorder):
    """cProfile: exact counts; the times of short functions are overstated."""

    tool = "cProfile"
    version = platform.python_version()
    scope = "Python calls of the main thread"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._profile = cProfile.Profile()

    def start(self) -> None:
        self._profile.enable()

    def stop(self, keep: bool) -> None:
        self._profile.disable()
        if keep:
            self._profile.dump_stats(os.path.join(self.folder, "method.prof"))

    def top(self) -> List[Row]:
        stats: Any = pstats.Stats(self._profile)
        rows = [
            {
                "name": name,
                "where": "" if path == "~" else "%s:%d" % (path, line),
                "calls": calls,
                "self_s": own_s,
                "total_s": total_s,
            }
            for (path, line, name), (_, calls, own_s, total_s, _) in stats.stats.items()
        ]
        return sorted(rows, key=lambda row: -float(row["self_s"]))[:TOP_ROWS]
