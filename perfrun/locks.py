"""Locks between processes: shared or exclusive, on a file that stays.

They are `flock` locks, so the kernel lets go of them however the holder ends, and a child that
was given the descriptor keeps them until it ends too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from perfrun.errors import WorkspaceError


class FileLock:
    """One lock file, open from `with` to its end; held only after `share` or `own`.

    Going from shared to exclusive or back lets go of the lock for a moment, so whoever does it
    must look again at what the lock guards.
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
        # Closing alone would not do: a child that inherited the descriptor would keep the lock.
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = -1

    @property
    def descriptor(self) -> int:
        """The open file, for a child process that must keep the lock while it runs."""
        return self._descriptor

    def share(self, on_wait: Callable[[], None] | None = None) -> None:
        """Hold it together with others; `on_wait` is called once if that takes waiting."""
        self._take(fcntl.LOCK_SH, on_wait)

    def own(self, on_wait: Callable[[], None] | None = None) -> None:
        """Hold it alone; `on_wait` is called once if that takes waiting."""
        self._take(fcntl.LOCK_EX, on_wait)

    def try_own(self) -> bool:
        """Hold it alone if that takes no waiting; False when another has it.

        Where files cannot be locked at all there is no guard, and this is True.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            if not path.exists():
                raise
            # A file that another user made: reading is enough for a lock on a local disk.
            return os.open(path, os.O_RDONLY)
    except FileExistsError as error:
        raise WorkspaceError(f"{error.filename} is in the way: it is not a folder") from None
    except OSError as error:
        raise WorkspaceError(f"cannot make the lock file {path}: {error.strerror}") from None
