"""Let the main thread do something between two of its own instructions.

A profiler that records the thread which starts it (PyTorch's) can only be switched on in the middle
of a method this way. Signals would do, too, but they belong to the benchmark.
Source: https://docs.python.org/3/c-api/init.html (Py_AddPendingCall).
"""

from __future__ import annotations

import ctypes
import threading

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional

_TRIES_EVERY_S = 0.02

# For ever: the interpreter may still hold a call that nobody waits for any more.
_kept: List[Any] = []


class MainThreadCall:
    """One call of a function in the main thread, as soon as that runs Python code."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._done = threading.Event()
        self.error: Optional[BaseException] = None

    def run(self, ended: threading.Event) -> bool:
        """Wait until the function has run; False when `ended` was set before its turn came."""
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
        """Forget the call, unless it is running or has run."""
        with self._lock:
            self._is_cancelled = not self._done.is_set()
            return self._is_cancelled
