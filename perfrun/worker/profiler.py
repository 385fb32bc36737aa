"""Record the framework's profile during given windows of a method (`--profiler_enabled_time`)."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, List, Sequence


class WindowedProfiler:
    """Starts and stops TensorFlow's profiler from a thread, at seconds after the method's start.

    Source: `tf.profiler.experimental`. A profiler that cannot be started is a note, not a failure.
    """

    def __init__(self, windows: Sequence[Sequence[float]], folder: str) -> None:
        self._windows = windows
        self._folder = folder
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)
        self.notes: List[str] = []

    def start(self) -> None:
        """Begin to count the seconds."""
        if self._windows:
            self._thread.start()

    def stop(self) -> None:
        """End a window that is still open, and forget those to come."""
        if self._windows:
            self._stopped.set()
            self._thread.join()

    def _record(self) -> None:
        method_began = time.monotonic()  # starting a profiler takes seconds: count from here
        for begin, end in self._windows:
            if self._stopped_by(method_began + begin):
                return
            profiler = self._start_one()
            stopped = self._stopped_by(method_began + end)
            self._stop_one(profiler)
            if stopped:
                return

    def _stopped_by(self, moment: float) -> bool:
        """Wait for that moment; say whether the method has ended by then."""
        wait_s = max(0.0, moment - time.monotonic())
        return self._stopped.wait(min(wait_s, threading.TIMEOUT_MAX))

    def _start_one(self) -> Any:
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None:
            self.notes.append("--profiler_enabled_time: TensorFlow was not loaded; no profile")
            return None
        try:
            profiler = tensorflow.profiler.experimental
            profiler.start(self._folder)
            return profiler
        except Exception as error:  # noqa: BLE001
            self.notes.append("the profiler did not start: %s" % error)
            return None

    def _stop_one(self, profiler: Any) -> None:
        if profiler is None:
            return
        try:
            profiler.stop()
        except Exception as error:  # noqa: BLE001
            self.notes.append("the profiler did not stop: %s" % error)
