"""Detect processes that the kernel kills for lack of memory while a trial runs.

The kernel's counter (/proc/vmstat) covers the whole machine; its log names each victim. Sources:
proc(5), Documentation/ABI/testing/dev-kmsg and mm/oom_kill.c of the kernel.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Final

from perfrun.probes.sysfs import Sysfs, in_pid_namespace

_LOG = "/dev/kmsg"
_LONGEST_RECORD: Final = 8192
# A record of the kernel itself (facility 0: a priority of one digit), not one written by a user.
_VICTIM = rb"[0-7],[^;]*;[^\n]*\bKilled process (\d{1,10}) \("
# The kernel counts a victim, kills it and logs it; other tasks may run in between.
_PATIENCE_S = 2.0


class OomKills:
    """The kernel's kills since this context manager was created."""

    def __init__(self) -> None:
        self._log = _opened_at_its_end()
        self._before = _count()
        self._victims: list[int] = []

    def __enter__(self) -> OomKills:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def of(self, pid: int | None) -> tuple[int, bool]:
        """Return how many victims may have been process `pid`, and True when that is certain.

        The answer is uncertain, and a count of the whole machine, where `pid` is unknown, or where
        the log cannot be read, has lost records, or has the pids of another namespace.
        """
        count = _count() - self._before
        if count <= 0 or pid is None:
            return max(0, count), count <= 0
        end = time.monotonic() + _PATIENCE_S
        while self._read() and pid not in self._victims:
            if len(self._victims) >= count:
                return 0, True
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        return (1, True) if pid in self._victims else (count, False)

    def _read(self) -> bool:
        """Take the log's new records; False when it cannot be read or has lost records."""
        if self._log is None:
            return False
        try:
            while True:
                found = re.match(_VICTIM, os.read(self._log, _LONGEST_RECORD))
                if found:
                    self._victims.append(int(found[1]))
        except BlockingIOError:
            return True
        except OSError:
            self._close()
            return False

    def _close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None


def _opened_at_its_end() -> int | None:
    with contextlib.suppress(OSError):
        if in_pid_namespace():
            return None  # the log has the host's pids
        log = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.lseek(log, 0, os.SEEK_END)
        except OSError:
            os.close(log)
            raise
        return log
    return None


def _count() -> int:
    """Return how many processes the kernel has killed for lack of memory since boot."""
    return int(Sysfs().table("/proc/vmstat").get("oom_kill", "0"))
