"""A process between harness and worker: the script that an interpreter may be (`--python`).

One that ends in `exec` becomes the worker, and nothing here is needed. Around any other, the worker
is found by what it says of itself, and tied to this process by a pipe (`worker.lifeline`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import replace
from perfrun.launchers.launcher import Exit
from perfrun.worker.lifeline import PID, PIPE
from perfrun.worker.procfs import counts_of, io_counts

START_LIMIT_S = 60.0  # for the worker to begin, after whatever the wrapper does before
LOOK_EVERY_S = 0.005
_SIGNALLED = 128  # a shell's exit status above it stands for a signal that ended its command
_DEEPEST = 50  # processes between a worker and the harness


class Lifeline:
    """The pipe whose writing end this process holds open, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pipe: int | None = None
        self._was_used = False
        self._remove()
        with contextlib.suppress(OSError):  # some file systems have none: the worker says so
            os.mkfifo(folder / PIPE, 0o600)
            self._pipe = os.open(folder / PIPE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def order(self) -> Mapping[str, Any]:
        """What the worker is told of it."""
        return {"lifeline": None if self._pipe is None else str(self._folder)}

    @property
    def was_used(self) -> bool:
        """Whether there is a wrapper: the worker was not our own child."""
        self._was_used = self._was_used or (self._folder / PID).exists()
        return self._was_used

    def worker_below(self, wrapper: int, has_ended: Callable[[float], bool]) -> int | None:
        """Wait for the worker to begin; its pid, or None if it does not, or cannot be seen."""
        limit = time.perf_counter() + START_LIMIT_S
        while not self.was_used:
            if has_ended(LOOK_EVERY_S) or time.perf_counter() > limit:
                return None
        with contextlib.suppress(
            OSError
        ):  # open on both sides: nothing of it stays if we are killed
            (self._folder / PIPE).unlink()
        try:
            pid = int((self._folder / PID).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if _is_below(pid, wrapper) else None  # in a pid namespace it has another there

    def close(self) -> None:
        """Let go of it, once the worker has ended."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
            self._remove()

    def _remove(self) -> None:
        for name in (PIPE, PID):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)


class Wrapped:
    """A worker that is not our child, but below one that waits for it."""

    def __init__(self, pid: int, wrapper: int) -> None:
        self.pid = pid
        # What the wrapper did before is not the worker's; what it does afterwards is little.
        self._before: Mapping[str, Any] = {**counts_of(wrapper), **io_counts(str(wrapper))}
        self._handle: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._handle = os.pidfd_open(pid)

    def signal(self, number: int) -> None:
        """Signal the worker alone. A wrapper that ends first would take it along, unheard."""
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)
            else:
                os.kill(self.pid, number)

    def only(self, end: Exit) -> Exit:
        """Return how the worker ended, from how the wrapper did that waited for it."""
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
            max_rss_bytes=0,  # it is the largest of all that the wrapper waited for
            resources=counts,
        )

    def close(self) -> None:
        """Let go of it."""
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
