"""Profile windows: the framework's profiler runs in given seconds of a method that counts.

They are those of `--profiler_enabled_time`. PyTorch's profiler records the thread that starts it,
so the main thread must start it in the middle of the method, between two of its own instructions.
Signals could do that, too, but they belong to the benchmark.
Source: https://docs.python.org/3/c-api/init.html (Py_AddPendingCall).
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence

FRAMEWORKS = ("tensorflow", "torch")
_TRIES_EVERY_S = 0.02

# Kept for ever: the interpreter may still hold a call that no thread waits for any more.
_kept: List[Any] = []


class MainThreadCall:
    """One call of a function in the main thread, as soon as that thread runs Python code."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._done = threading.Event()
        self.error: Optional[BaseException] = None

    def run(self, ended: threading.Event) -> bool:
        """Wait until the function has run; return False if `ended` was set before its turn."""
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        callback = kind(self._call)
        _kept.append(callback)
        add = ctypes.pythonapi.Py_AddPendingCall
        add.argtypes = [kind, ctypes.c_void_p]
        add.restype = ctypes.c_int
        while add(callback, None) != 0:  # the interpreter's queue is full
            if ended.wait(_TRIES_EVERY_S):
                return False
        while not self._done.wait(_TRIES_EVERY_S):
            if ended.is_set() and self._cancel():
                return False
        return True

    def _call(self, _: Any) -> int:
        with self._lock:
            if self._is_cancelled:
                return 0
            try:
                self._function()
            except BaseException as error:  # noqa: BLE001 - must not reach the benchmark's code
                self.error = error
            self._done.set()
        return 0

    def _cancel(self) -> bool:
        """Cancel the call, unless it is running or has run; return True when it is cancelled."""
        with self._lock:
            self._is_cancelled = not self._done.is_set()
            return self._is_cancelled


class ProfileWindows:
    """Starts and stops the framework's profiler from a thread, at seconds after the method's start.

    `framework` is the one that the benchmark is about, if several are loaded. A profiler that
    cannot be started is a note, not a failure.
    """

    def __init__(
        self, windows: Sequence[Sequence[float]], folder: str, framework: Optional[str] = None
    ) -> None:
        self._windows = windows
        self._folder = folder
        self._framework = framework
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._recorder: Any = None
        self._has_begun = False
        self._open: Optional[Dict[str, Any]] = None  # the window that is being recorded
        self._recorded: List[Dict[str, Any]] = []
        self._method_began_s = 0.0
        self.notes: List[str] = []

    @property
    def is_used(self) -> bool:
        """True when a window was recorded."""
        return bool(self._recorded)

    def start(self) -> None:
        """Begin to count the seconds. Call it in the main thread, just before the method."""
        if not self._windows:
            return
        at_once = self._kind() == "torch" and self._find_recorder()
        if at_once:
            self._warm_up()
        self._method_began_s = time.monotonic()  # after the warm-up, which takes seconds
        if at_once and self._windows[0][0] <= 0:
            self._begin_window()  # in this thread, which it is to record
        self._thread.start()

    def _warm_up(self) -> None:
        """Start PyTorch's profiler once: its first start would take seconds of the method."""
        try:
            self._recorder.start()
            self._recorder.stop(False)
        except Exception as error:  # noqa: BLE001 - the first window tries again
            self.notes.append("the profiler did not start: %s" % error)

    def stop(self) -> None:
        """End a window that is still open, and drop those to come. Call it in the main thread."""
        if self._windows:
            self._stopped.set()
            self._thread.join()
            self._end_window()  # if the main thread had to end it, and did not come to that
            if self._recorder and self._windows[0][0] <= 0 and not self._has_begun:
                self.notes.append(
                    "--profiler_enabled_time: the method was over before PyTorch's profiler began"
                )

    def facts(self) -> Dict[str, Any]:
        """Return what the summary says of the windows, without the rows of the profile.

        Reading the files for the rows would count as the benchmark's memory.
        """
        from perfrun.worker.profilers.profile_recorder import profile_facts

        return profile_facts(self._kind(), self._recorder, self._folder, self._recorded)

    def _record(self) -> None:
        for number, (begin, end) in enumerate(self._windows):
            # A window from 0 on does not wait: TensorFlow's is recorded even if the method is over.
            if begin > 0 and self._stopped_by(self._method_began_s + begin):
                return
            if not self._find_recorder():
                return
            if number > 0 or not self._has_begun:
                self._call_in_right_thread(self._begin_window)
            stopped = self._stopped_by(self._method_began_s + end)
            self._call_in_right_thread(self._end_window)
            if stopped:
                return

    def _stopped_by(self, moment: float) -> bool:
        """Wait until that moment; return True if the method has ended by then."""
        wait_s = max(0.0, moment - time.monotonic())
        return self._stopped.wait(min(wait_s, threading.TIMEOUT_MAX))

    def _call_in_right_thread(self, function: Callable[[], object]) -> None:
        """Call in the main thread for PyTorch, whose profiler records the thread that starts it."""
        if self._kind() == "torch":
            MainThreadCall(function).run(self._stopped)
        else:
            function()

    def _kind(self) -> Optional[str]:
        """Return the framework whose profiler is used: the benchmark's, else the first loaded."""
        named = [self._framework] if self._framework in FRAMEWORKS else []
        for name in (*named, *FRAMEWORKS):
            if name in sys.modules:
                return name
        return None

    def _find_recorder(self) -> bool:
        if self._recorder is not None:
            return True
        kind = self._kind()
        if kind is None:
            self.notes.append(
                "--profiler_enabled_time: neither TensorFlow nor PyTorch was loaded; no profile"
            )
            return False
        try:
            self._recorder = _recorder(kind, self._folder)
        except Exception as error:  # noqa: BLE001
            self.notes.append("the profiler did not start: %s" % error)
            return False
        return True

    def _begin_window(self) -> None:
        self._has_begun = True
        try:
            self._recorder.start()
        except Exception as error:  # noqa: BLE001
            self.notes.append("the profiler did not start: %s" % error)
            return
        begin_s = time.monotonic() - self._method_began_s
        self._open = {"part": "method", "series": None, "steps": None, "begin_s": begin_s}

    def _end_window(self) -> None:
        window, self._open = self._open, None
        if window is None:
            return
        window["end_s"] = time.monotonic() - self._method_began_s
        try:
            self._recorder.stop(True)
        except Exception as error:  # noqa: BLE001
            self.notes.append("the profiler did not stop: %s" % error)
            return
        self._recorded.append(window)


def _recorder(kind: str, folder: str) -> Any:
    if kind == "torch":
        from perfrun.worker.profilers.torch import TorchRecorder

        return TorchRecorder(folder)
    from perfrun.worker.profilers.tensorflow import TensorflowRecorder

    return TensorflowRecorder(folder, apart=False)
