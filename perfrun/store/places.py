"""Find the summaries in folders, and name files the same on every host and in every container.

A host's name is not part of a file's name: Compose draws one for each container. A workspace keeps
an id of its own in a file, and its summaries are named relative to it, so it may be mounted
anywhere. Without an id, a file is named by its disk (the id of its file system) and path.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from perfrun.errors import UsageError
from perfrun.summary.record import LARGEST_BYTES, SUMMARY
from perfrun.untrusted import read_file

WORKSPACE_ID = ".workspace-id"
OWN = ""  # place of paths relative to the workspace whose index this is
_RUNS = "runs"  # folder of a workspace in which perfrun has run
_ID = re.compile(r"[0-9a-f]{32}")
_WORKSPACE, _DISK, _HOST = "workspace:", "disk:", "host:"


@dataclass(kw_only=True)
class Scan:
    """The summaries in some folders."""

    found: dict[str, str] = field(default_factory=dict)  # path to stamp
    problems: dict[str, str] = field(default_factory=dict)  # path to why it cannot be read
    folders: list[str] = field(default_factory=list)  # folders whose listing is complete


def scan(named: Path, *, must_be_there: bool = True) -> Scan:
    """Find the summaries of a workspace, of an output folder, of a trial's folder, or one file.

    Raises UsageError for a path that does not exist or cannot be read.
    """
    path = os.path.realpath(named)
    result = Scan()
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - and not a Path, for 100,000 of them
            _scan_file(path, result, must_be_there=must_be_there)
            result.folders += [] if result.found else [path]
            return result
        _scan_file(os.path.join(path, SUMMARY), result)  # noqa: PTH118
        for folder in (path, os.path.join(path, "output")):  # noqa: PTH118
            _scan_below(folder, result)
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror or error}") from None
    return result


def _scan_below(folder: str, result: Scan) -> None:
    try:
        with os.scandir(folder) as entries:
            names = sorted([entry.name for entry in entries if not entry.is_file()])
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        pass  # every file that was in it has gone
    else:
        try:
            for name in names:
                _scan_file(f"{folder}/{name}/{SUMMARY}", result, opened, f"{name}/{SUMMARY}")
        finally:
            os.close(opened)
    result.folders.append(folder)


def _scan_file(
    path: str,
    result: Scan,
    opened: int | None = None,
    below: str | None = None,
    *,
    must_be_there: bool = False,
) -> None:
    """Enter a file if it exists. `below` is its path from an open folder, which is faster."""
    try:
        # A link is named as such: what it leads to is not looked at.
        status = os.stat(below or path, dir_fd=opened, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        if must_be_there:
            raise
        return
    except OSError as error:
        result.found[path], result.problems[path] = "", error.strerror or str(error)
        return
    # The inode too, since a summary may be replaced within one tick of the clock.
    result.found[path] = f"{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
    if stat.S_ISLNK(status.st_mode):
        result.problems[path] = "is a link"
    elif not stat.S_ISREG(status.st_mode):
        result.problems[path] = "is no file"
    elif status.st_size > LARGEST_BYTES:
        result.problems[path] = f"is larger than {LARGEST_BYTES // 2**20} MiB: no summary"


def would_be_found(path: str, folders: Collection[str]) -> bool:
    """Return True when a scan that listed these folders would have found the file."""
    parent, _, name = path.rpartition("/")
    return name == SUMMARY and (parent in folders or parent.rpartition("/")[0] in folders)


def storable(path: str) -> str:
    """Return a path as text for a database: bytes that are no UTF-8 are written out."""
    if path.isascii():
        return path
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class FileKey(NamedTuple):
    """A file as the index names it. It is a tuple because there are as many as summaries."""

    place: str
    path: str  # relative to a workspace, else absolute


class Places:
    """The names of files on this host, and the paths of places."""

    def __init__(self, own: Path | None) -> None:
        """Take the workspace whose index this is; None for a store of several workspaces."""
        self._start = None if own is None else f"{own}/"
        self.roots: dict[str, str] = {}  # paths of the workspaces that were seen
        self._of_root: dict[str, str | None] = {}
        self._of_folder: dict[str, str] = {}

    def key(self, path: str) -> FileKey:
        """Name a file by its absolute path."""
        if self._start is not None and path.startswith(self._start):
            return FileKey(OWN, storable(path[len(self._start) :]))
        output = path.rpartition("/")[0].rpartition("/")[0]
        if output.endswith("/output"):
            root = output[: -len("/output")]
            place = self._workspace(root)
            if place is not None:
                return FileKey(place, storable(path[len(root) + 1 :]))
        if output not in self._of_folder:
            self._of_folder[output] = _disk(output)
        return FileKey(self._of_folder[output], storable(path))

    def path(self, key: FileKey) -> str:
        """Return the path of a file, which this host may be unable to see."""
        if key.place == OWN:
            return f"{self._start or ''}{key.path}"
        root = self.roots.get(key.place)
        return key.path if root is None else f"{root}/{key.path}"

    def of_folders(self, folders: Iterable[str]) -> set[str]:
        """Return the places of summaries in these folders, in this version and earlier ones."""
        found = {OWN, _host()}
        for folder in folders:
            found.add(self.key(f"{folder}/{SUMMARY}").place)
            found.add(self.key(f"{folder}/any/{SUMMARY}").place)
        return found

    def _workspace(self, root: str) -> str | None:
        if root not in self._of_root:
            name = _workspace_id(Path(root))
            place = None if name is None else f"{_WORKSPACE}{name}"
            if place is not None and self.roots.setdefault(place, storable(root)) != storable(root):
                place = None  # a copy of a workspace, with its id
            self._of_root[root] = place
        return self._of_root[root]


def is_absolute(place: str) -> bool:
    """Return True when files of this place are named by absolute paths."""
    return place.startswith((_DISK, _HOST))


def _workspace_id(root: Path) -> str | None:
    """Return the id of a workspace, which is made once; None when none can be made."""
    path = root / WORKSPACE_ID
    found = _read_id(path)
    if found is None and (root / _RUNS).is_dir():
        with contextlib.suppress(OSError):
            _write_id(path)
        found = _read_id(path)
    return found


def _write_id(path: Path) -> None:
    """Write an id atomically, unless another process was first. Raises OSError."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")
        try:
            os.link(aside, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            with path.open("x", encoding="ascii") as file:
                file.write(aside.read_text(encoding="ascii"))
    finally:
        aside.unlink(missing_ok=True)


def _read_id(path: Path) -> str | None:
    try:
        text = read_file(path, 64).decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return text if _ID.fullmatch(text) else None


def _disk(folder: str) -> str:
    """Return the place of the file system that holds a folder; without an id, the host's."""
    path = Path(folder or "/")
    while True:
        try:
            number = os.statvfs(path).f_fsid
            return f"{_DISK}{number:x}" if number else _host()
        except (FileNotFoundError, NotADirectoryError):
            if path == path.parent:
                return _host()
            path = path.parent
        except OSError:
            return _host()


def _host() -> str:
    return f"{_HOST}{socket.gethostname()}"
