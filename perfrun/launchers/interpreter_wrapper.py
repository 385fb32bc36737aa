"""The process between harness and worker when `--python` is a script that wraps an interpreter.

A script that ends in `exec` becomes the worker and needs nothing of this. Below any other, the
worker writes its own pid, and a pipe ties it to this process (`worker.lifeline`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import replace
from perfrun.launchers.launcher import Exit
from perfrun.trial_user import TrialUser, eyes_of_trials
from perfrun.untrusted import Folder
from perfrun.worker.lifeline import PID, PIPE
from perfrun.worker.procfs import counts_of, io_counts

START_LIMIT_S = 60.0  # for the worker to begin, with all that the wrapper does before
POLL_S = 0.005
_PIPE = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_PID_BYTES = 100
_SIGNALLED = 128  # a shell's exit status above it stands for a signal that ended its command
_DEEPEST = 50  # processes between a worker and the harness


class Lifeline:
    """The pipe whose writing end this process holds open, in a folder of its own."""

    def __init__(self, folder: Path, user: TrialUser | None = None) -> None:
        self._folder = folder
        self._pipe: int | None = None
        self._was_used = False
        self._remove(PIPE, PID)
        with contextlib.suppress(OSError):  # the worker reports a missing pipe
            os.mkfifo(folder / PIPE, 0o600)
            self._pipe = os.open(folder / PIPE, _PIPE)
            if user is not None:
                user.lend(self._pipe, stat.S_IRGRP | stat.S_IWGRP)

    @property
    def order(self) -> Mapping[str, Any]:
        """The entry for the worker's order."""
        return {"lifeline": None if self._pipe is None else str(self._folder)}

    @property
    def was_used(self) -> bool:
        """True when there is a wrapper: the worker was not our own child."""
        self._was_used = self._was_used or self._pid() is not None
        return self._was_used

    def _pid(self) -> str | None:
        """Return what the worker wrote of itself, if it has."""
        try:
            with Folder(self._folder) as folder:
                return folder.text(PID, _PID_BYTES)
        except OSError:
            return None

    def worker_below(self, wrapper: int, has_ended: Callable[[float], bool]) -> int | None:
        """Wait for the worker to begin; return its pid, or None when it is not seen."""
        limit = time.perf_counter() + START_LIMIT_S
        while not self.was_used:
            if has_ended(POLL_S) or time.perf_counter() > limit:
                return None
        self._remove(PIPE)  # both sides have it open; its name is not needed
        try:
            pid = int(self._pid() or "")
        except ValueError:
            return None
        return pid if _is_below(pid, wrapper) else None  # a pid namespace has other numbers

    def close(self) -> None:
        """Close and remove the pipe, once the worker has ended."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
            self._remove(PIPE, PID)

    def _remove(self, *names: str) -> None:
        with contextlib.suppress(OSError), Folder(self._folder) as folder:
            for name in names:
                folder.remove(name)


class Wrapped:
    """A worker that is a descendant of a wrapper, which waits for it."""

    def __init__(self, pid: int, wrapper: int) -> None:
        self.pid = pid
        # Counts of the wrapper before the worker began are subtracted; afterwards it does little.
        with eyes_of_trials():
            moved = io_counts(str(wrapper))
        self._before: Mapping[str, Any] = {**counts_of(wrapper), **moved}
        self._handle: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._handle = os.pidfd_open(pid)

    def signal(self, number: int) -> None:
        """Signal the worker alone: a wrapper that ended first would end it without an outcome."""
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)
            else:
                os.kill(self.pid, number)

    def without_wrapper(self, end: Exit) -> Exit:
        """Return the worker's exit, computed from that of the wrapper that waited for it."""
        code, number = end.exit_code, end.signal_number
        if code is not None and code > _SIGNALLED and code - _SIGNALLED in set(signal.Signals):
            number, code = code - _SIGNALLED, None
        counts = {
            name: value - min(value, self._before.get(name, 0))
            for name, value in (end.resources or {}).items()
        }
        return replace(
            end,
            exit_code=code,
            signal_number=number,
            user_cpu_s=counts.get("user_s", end.user_cpu_s),
            system_cpu_s=counts.get("system_s", end.system_cpu_s),
            max_rss_bytes=0,  # the kernel gives the largest of all children of the wrapper
            resources=counts,
        )

    def close(self) -> None:
        """Close the handle of the worker."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _is_below(pid: int, ancestor: int) -> bool:
    for _ in range(_DEEPEST):
        if pid == ancestor:
            return True
        try:
            text = Path(f"/proc/{pid}/stat").read_bytes()
            pid = int(text.rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False
