"""Which processes the kernel kills for want of memory while a trial runs.

Its counter (/proc/vmstat) is of the whole machine; its log names each victim. Sources: proc(5),
Documentation/ABI/testing/dev-kmsg and mm/oom_kill.c of the kernel.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Final

_LOG = "/dev/kmsg"
_LONGEST_RECORD: Final = 8192
_FIRST_PID_NAMESPACE: Final = 0xEFFFFFFC  # the number of the one whose pids are in the log
# A record of the kernel itself (facility 0: a priority of one digit), not of who writes to the log.
_VICTIM = re.compile(rb"[0-7],[^;]*;[^\n]*\bKilled process (\d+) \(")
# The kernel counts a victim, kills it and then names it, and others may run in between.
_PATIENCE_S = 2.0


class OomKills:
    """Counts from when it is made. To be closed, as a context manager is."""

    def __init__(self) -> None:
        self._log = _opened_at_its_end()
        self._before = _count()
        self._victims: list[int] = []

    def __enter__(self) -> OomKills:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def of(self, pid: int | None) -> tuple[int, bool]:
        """How many of those killed until now may have been process `pid`, and if that is certain.

        Uncertain is a count of the whole machine: where the log cannot be read, has lost records,
        or has other pids than we (in a container), or where `pid` is unknown.
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
        """Take what is new in the log; False when it cannot be read, or no longer has all of it."""
        if self._log is None:
            return False
        try:
            while True:
                found = _VICTIM.match(os.read(self._log, _LONGEST_RECORD))
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
        if Path("/proc/self/ns/pid").stat().st_ino != _FIRST_PID_NAMESPACE:
            return None
        log = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.lseek(log, 0, os.SEEK_END)
        except OSError:
            os.close(log)
            raise
        return log
    return None


def _count() -> int:
    """How many processes the kernel has killed for want of memory since it booted."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    return sum(int(fields[1]) for fields in lines if fields[0] == "oom_kill")
