"""Write results to disk, and keep them also when the disk is full or fails.

A summary is written to a temporary name, synced and renamed. If that fails, the run frees the space
that it has reserved (`Reserve`); if it fails again, the summary goes to the system's folder for
temporary files, and a message says so: a measured result is never lost for lack of space.

A trial can put anything under any name in its folder, and a local one can put a link in the place
of the folder itself. So perfrun writes there through `perfrun.untrusted.Folder`, after all of the
trial's processes have ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from perfrun.dataclass import dataclass
from perfrun.durable import make_folder, sync_names
from perfrun.shown import as_is
from perfrun.untrusted import Folder, Refused

SUMMARY = "perfzero_summary.json"
# It has another name, so that no reader of summaries takes a profile for a result.
PROFILE_SUMMARY = "profile_summary.json"
RESERVED_BYTES = 1024 * 1024
_RESERVE = ".reserve-"
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_TRIAL_BYTES = 512 * 1024  # perfrun itself writes less than this for a trial


class Reserve:
    """A file of known size, deleted when the disk is full so that summaries still fit.

    Its owner keeps it locked; an unlocked one is left over from a killed run and can be removed.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{_RESERVE}{name}"
        self._descriptor: int | None = None

    def take(self) -> str | None:
        """Reserve the space unless it is reserved; return the error of a full disk."""
        if os.path.lexists(self._path):
            return None
        self._let_go()
        try:
            _fill(self._path)
        except FileExistsError:
            return None
        except OSError as error:
            self._remove()
            return error.strerror if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
        self._descriptor = _locked(self._path)
        return None

    def release(self) -> None:
        """Free the space, if this object reserved it."""
        if self._descriptor is not None:
            self._remove()
            self._let_go()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _let_go(self) -> None:
        """Close the file; even without a name it keeps its space while it is open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _fill(path: Path) -> None:
    """Make a file that takes the reserved space."""
    with os.fdopen(os.open(path, _NEW, 0o666), "wb") as file:
        file.write(b"\0" * RESERVED_BYTES)


def _remove_abandoned_reserves(folder: Path) -> None:
    """Remove the reserves of killed runs; those of running ones are locked."""
    for path in folder.glob(f"{_RESERVE}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, _OPEN)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            finally:
                os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Open a file and lock it, if possible."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None  # another run that begins now has removed it: it is reserved again
    with contextlib.suppress(OSError):  # a file system without locks: then nobody removes it
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


@dataclass(frozen=True)
class ResultFolder:
    """The folder of one trial.

    `depth`: as many parts at the end of its path may have been replaced by trials. A profile
    trial's folder lies in that of the trial that counts, three parts deep.
    """

    path: Path
    depth: int = 1

    @property
    def private(self) -> Path:
        """The folder of perfrun's own files, apart from the benchmark's."""
        return self.path / "perfrun"

    def held(self) -> Folder:
        """Open it. Raises OSError, for a link too."""
        return self._held(self.depth)

    def _held(self, depth: int) -> Folder:
        """Open the folder on the way to it that has so many of these parts."""
        parts = self.path.parts
        end = len(parts) - self.depth + depth
        return Folder(Path(*parts[: end - depth + 1]), *parts[end - depth + 1 : end])

    def made(self) -> Folder:
        """Open it; make it anew where a trial removed it or put a link in its place."""
        try:
            return self.held()
        except OSError:
            parent = Path(*self.path.parts[: -self.depth])
            parent.mkdir(parents=True, exist_ok=True)
        place = Folder(Path(os.path.realpath(parent)))  # a link that leads to it is the user's own
        for depth in range(1, self.depth + 1):
            with place:
                place.make(self.path.parts[depth - self.depth - 1])
            place = self._held(depth)
        return place

    def write(self, name: str, text: str, *, sync_name: bool = True) -> None:
        """Write a file, in the place of whatever a trial put there. Raises OSError."""
        with self.made() as folder:
            try:
                folder.write(name, _encoded(text), sync_name=sync_name)
            except IsADirectoryError:
                folder.move_away(name)
                folder.write(name, _encoded(text), sync_name=sync_name)

    def remove_unfinished(self) -> None:
        """Remove what a killed perfrun had begun to write here: its trial is judged again."""
        with contextlib.suppress(OSError, Refused), self.held() as folder:
            folder.remove_unfinished(SUMMARY)


class Storage:
    """The folder `output` of a run: makes trial folders in it and writes summaries there."""

    def __init__(self, output: Path, run_id: str, notify: Callable[[str], None]) -> None:
        self._output = output
        self._run_id = run_id
        self._notify = notify
        self._has_told = False  # the user, that the disk is full
        self._unsynced: dict[Path, None] = {}  # folders with new names in them
        self.reserve = Reserve(output, run_id)

    def _rescue(self) -> Path:
        """Return the folder for results that cannot be written to the workspace.

        Anybody could make one of its name before: it must be a folder of this user's.
        """
        from tempfile import gettempdir  # 4 ms, for a workspace that has failed

        path = Path(os.path.realpath(gettempdir())) / f"perfrun-rescue-{self._run_id}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "not a folder of this user", str(path))
        return path

    def open(self) -> None:
        """Make the output folder and reserve space. Raises OSError when it cannot be made."""
        self._note(*make_folder(self._output))
        _remove_abandoned_reserves(self._output)
        self.reserve.take()

    def close(self) -> None:
        """Free the reserved space."""
        self.reserve.release()

    def settle(self) -> None:
        """Make the names of all summaries survive a power loss. It waits for the disk."""
        for folder in self._unsynced:
            sync_names(folder)
        self._unsynced.clear()

    def _note(self, *folders: Path) -> None:
        self._unsynced.update(dict.fromkeys(folders))

    def new_folder(self, execution_id: str) -> ResultFolder:
        """Make `<output>/<execution_id>`, or the same with `-2`, `-3`, ... when it is taken."""
        self._check_disk()
        for attempt in range(3):
            try:
                parent = self._output if attempt < 2 else self._rescue()
                path = _make_new(parent, execution_id)
            except OSError as error:
                self.reserve.release()
                failure = error
                continue
            if attempt == 2:
                self._notify(f"{self._output} cannot be written ({failure}); using {path}")
            self._note(path.parent)
            return ResultFolder(path)
        raise failure

    def _check_disk(self) -> None:
        """Free the reserve on a full disk, and say so once until there is room again."""
        full = self.reserve.take() or full_disk(self._output)
        if full:
            self.reserve.release()
            if not self._has_told:
                self._notify(
                    f"the disk of {self._output} is full ({full}): results are still kept, but "
                    "a benchmark that writes files will fail; make room, or choose another disk "
                    "with --workspace=FOLDER"
                )
        self._has_told = bool(full)

    def write_summary(self, folder: ResultFolder, text: str, name: str = SUMMARY) -> Path:
        """Write the summary to the trial's folder or, if that fails, elsewhere; return its path."""
        for attempt in range(3):
            place, path = folder, folder.path / name
            try:
                if attempt == 2:
                    rescue = self._rescue()
                    place = ResultFolder(rescue / folder.path.name)
                    path = place.path / name
                    self._note(rescue.parent)
                if not place.path.is_dir():  # the benchmark has removed it
                    self._note(place.path.parent)
                place.write(name, text, sync_name=False)
                self._note(place.path)
            except OSError as error:
                self.reserve.release()
                failure = error
                continue
            if place is not folder:
                self._notify(f"{folder.path} cannot be written ({failure}); summary is in {path}")
            return path
        # No disk takes it: at least print what was measured, and all of it.
        self._notify(f"the summary of {folder.path} could not be written ({failure}); it follows")
        with contextlib.suppress(OSError, ValueError):
            as_is(sys.stderr).write(text + "\n")  # JSON in ASCII
        return path


def full_disk(folder: Path) -> str | None:
    """Return the free space as a text when it is too small for a trial, else None."""
    try:
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
    except OSError:
        return None
    return f"{free // 1024} KiB free" if free < _TRIAL_BYTES else None


def _make_new(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1_000_000):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        (path / "perfrun").mkdir()
        return path
    raise FileExistsError(f"no free name for {name} in {parent}")


def write_whole(path: Path, text: str) -> None:
    """Write a text file to a temporary name, sync and rename it; on failure leave nothing.

    Its folder is trusted, and links on the way to it are the user's own.
    """
    with Folder(Path(os.path.realpath(path.parent))) as folder:
        folder.write(path.name, _encoded(text))


def _encoded(text: str) -> bytes:
    """Return UTF-8; half of a pair of surrogates becomes its escape, as in JSON."""
    return text.encode("utf-8", "backslashreplace")


def safe_name(text: str) -> str:
    """Return a folder's name: all but letters, digits, dots, dashes and underscores becomes `_`."""
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)[:150].lstrip(".") or "_"
