"""What Python's garbage collector did while something was timed.

Collections are counted by the interpreter itself, for nothing. How long they took must be asked of
a callback, which costs about half a microsecond a collection, and a program that makes many objects
collects the young ones all the time. So the callback stays for the timed part only where the
warm-up shows that it costs next to nothing; else the time is the warm-up's mean times the count.
"""

from __future__ import annotations

import gc
import time
from typing import Any, Dict, List, Optional

MODES = ("on", "off", "between")
_CALLBACK_NS = 500
_MOST_OF_TIME = 0.0002  # share of the timed part that the callback may take


class GarbageWatch:
    """Counts collections; for mode `off` or `between`, keeps them out of the timed intervals.

    `on` leaves the collector as the benchmark has it. `between` runs what is due between intervals.
    """

    def __init__(self, mode: str = "on") -> None:
        self._mode = mode
        self._was_enabled = gc.isenabled()
        self._began_ns = 0
        self._spent_ns = 0
        self._seen = 0
        self._own: List[int] = [0, 0, 0]  # collections that `between` ran
        self._before: Optional[List[int]] = None
        self._after: Optional[List[int]] = None
        self._mean_ns = 0.0
        self._source: Optional[str] = None
        self._callbacks: List[Any] = getattr(gc, "callbacks", [])

    def start(self) -> None:
        """Begin to watch; the warm-up tells what watching costs."""
        if self._mode != "on":
            gc.disable()
        self._callbacks.append(self._notice)

    def start_timed(self, warmup_ns: int) -> None:
        """Begin to count for the timed part. `warmup_ns`: how long the warm-up took."""
        costs_ns = self._seen * _CALLBACK_NS
        if self._seen:
            self._mean_ns = self._spent_ns / self._seen
        if costs_ns > _MOST_OF_TIME * warmup_ns:
            self._forget()
            self._source = "warm-up's mean times the count"
        else:
            self._source = "callbacks" if hasattr(gc, "callbacks") else None
        self._seen = self._spent_ns = 0
        self._before = _collections()
        self._own = [0, 0, 0]

    def between(self) -> None:
        """Run the collections that are due, in mode `between`."""
        if self._mode != "between":
            return
        due = [g for g, (n, most) in enumerate(zip(gc.get_count(), gc.get_threshold())) if n > most]
        if due:
            generation = due[-1]
            gc.collect(generation)
            self._own[generation] += 1

    def stop(self) -> None:
        """End the counting, and leave the collector as it was."""
        self._after = _collections()
        self._forget()
        if self._was_enabled:
            gc.enable()

    def facts(self, timed_ns: int) -> Dict[str, Any]:
        """What happened in the timed part, which took `timed_ns`; to be asked after `stop`."""
        after, before = self._after, self._before
        if after is None or before is None:
            counts = None
        else:
            counts = [a - b - own for a, b, own in zip(after, before, self._own)]
        spent_ns: Optional[float] = None
        if self._source == "callbacks":
            spent_ns = self._spent_ns
        elif self._source and counts is not None:
            spent_ns = min(float(timed_ns), self._mean_ns * sum(counts))
        if self._mode == "between":
            spent_ns = None if counts is None or any(counts) else 0
        return {
            "mode": self._mode,
            "enabled": self._was_enabled and self._mode == "on",
            "collections": counts,
            "time_s": None if spent_ns is None else spent_ns / 1e9,
            "time_source": self._source,
            "share": None if spent_ns is None or not timed_ns else spent_ns / timed_ns,
        }

    def _notice(self, phase: str, _info: Any) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        else:
            self._spent_ns += time.perf_counter_ns() - self._began_ns
            self._seen += 1

    def _forget(self) -> None:
        if self._notice in self._callbacks:
            self._callbacks.remove(self._notice)


def _collections() -> Optional[List[int]]:
    """Collections so far, by generation; None where the interpreter does not count so (PyPy)."""
    try:
        return [generation["collections"] for generation in gc.get_stats()]
    except (AttributeError, TypeError, KeyError):
        return None
