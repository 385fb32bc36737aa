"""Locks between processes: shared or exclusive, on a file that stays.

They are `flock` locks: the kernel releases them however the holder ends, and a child that inherits
the descriptor keeps them until it ends, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from perfrun.errors import WorkspaceError

# In a folder of data an archive may have put a link there, which would make a file elsewhere.
_OPENING = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileLock:
    """One lock file, open from `with` to its end; held only after `share` or `own`.

    A change from shared to exclusive or back releases the lock for a moment, so the holder must
    check again what the lock guards.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def __enter__(self) -> FileLock:
        self._descriptor = _open(self.path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing alone is not enough: a child that inherited the descriptor would keep the lock.
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = -1

    @property
    def descriptor(self) -> int:
        """The open file, for a child process that must keep the lock while it runs."""
        return self._descriptor

    @property
    def holder(self) -> str:
        """A text that says who holds the lock, for a message; empty where that cannot be known."""
        try:
            pids = _holders(os.fstat(self._descriptor).st_ino)
        except (OSError, ValueError):
            return ""
        seen = [pid for pid in pids if pid.isdecimal() and int(pid) > 0]  # 0: of another container
        return f" (process {', '.join(seen)} holds {self.path})" if seen else ""

    def share(self, on_wait: Callable[[], None] | None = None) -> None:
        """Take the lock together with others; `on_wait` is called once before a wait."""
        self._take(fcntl.LOCK_SH, on_wait)

    def own(self, on_wait: Callable[[], None] | None = None) -> None:
        """Take the lock alone; `on_wait` is called once before a wait."""
        self._take(fcntl.LOCK_EX, on_wait)

    def try_own(self) -> bool:
        """Take the lock alone without waiting; False when another process holds it.

        True where files cannot be locked at all: then there is no lock.
        """
        return self._try(fcntl.LOCK_EX)

    def try_share(self) -> bool:
        """Take the lock together with others without waiting; False when a process has it alone.

        True where files cannot be locked at all: then there is no lock.
        """
        return self._try(fcntl.LOCK_SH)

    def _try(self, how: int) -> bool:
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _take(self, how: int, on_wait: Callable[[], None] | None) -> None:
        try:
            try:
                fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is not None:
                    on_wait()
                fcntl.flock(self._descriptor, how)
        except OSError as error:
            raise WorkspaceError(f"cannot lock {self.path}: {error.strerror}") from None


def is_held(path: Path) -> bool | None:
    """Return True when a process holds a lock on the file, without touching it; None: unknown."""
    try:
        return bool(_holders(path.lstat().st_ino))
    except (OSError, ValueError):
        return None


def _holders(inode: int) -> list[str]:
    """Return the process ids of those that hold a lock on a file; 0 is one of another container.

    Raises OSError and ValueError where the system has no such list.
    """
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    # 1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF; who waits has a `->` before.
    held = [words for line in lines if len(words := line.split()) > 5 and words[1] == "FLOCK"]
    return [words[4] for words in held if words[5].endswith(f":{inode}")]


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | _OPENING, 0o666)
        except PermissionError:
            if not path.exists():
                raise
            # A file that another user made: reading is enough for a lock on a local disk.
            return os.open(path, os.O_RDONLY | _OPENING)
    except FileExistsError as error:
        raise WorkspaceError(f"{error.filename} is in the way: it is not a folder") from None
    except OSError as error:
        raise WorkspaceError(f"cannot make the lock file {path}: {error.strerror}") from None
