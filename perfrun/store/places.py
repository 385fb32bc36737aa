"""Names for files that stay the same on every host and in every container that sees the file.

A host's name is none: Compose draws one for each container. A workspace keeps an id of its own in a
file, and its summaries are named relative to it, so it may be mounted anywhere. Where there is no
such file and none can be made, a file is named by its disk (the id of its file system) and path.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from perfrun.store.folders import storable
from perfrun.summary_record import SUMMARY

WORKSPACE_ID = ".workspace-id"
OWN = ""  # of a path that is relative to the workspace whose index this is
_RUNS = "runs"  # what a workspace has in which perfrun has run
_ID = re.compile(r"[0-9a-f]{32}")
_WORKSPACE, _DISK, _HOST = "workspace:", "disk:", "host:"


class FileKey(NamedTuple):
    """A file as the index names it. A tuple: an index has as many as there are summaries."""

    place: str
    path: str  # relative to a workspace, else absolute


class Places:
    """What this host sees: which file is which, and where each place is."""

    def __init__(self, own: Path | None) -> None:
        """`own`: the workspace whose index this is; None of a store for several."""
        self._start = None if own is None else f"{own}/"
        self.roots: dict[str, str] = {}  # of the workspaces that were seen
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
        """Where a file is; it may be that this host cannot see it."""
        if key.place == OWN:
            return f"{self._start or ''}{key.path}"
        root = self.roots.get(key.place)
        return key.path if root is None else f"{root}/{key.path}"

    def of_folders(self, folders: Iterable[str]) -> set[str]:
        """The places that summaries in these folders are named by, and by earlier versions were."""
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
    """Whether files of this place are named by absolute paths."""
    return place.startswith((_DISK, _HOST))


def _workspace_id(root: Path) -> str | None:
    """The id of a workspace, made once; None where there is none and none can be made."""
    path = root / WORKSPACE_ID
    found = _read(path)
    if found is None and (root / _RUNS).is_dir():
        with contextlib.suppress(OSError):
            _make(path)
        found = _read(path)
    return found


def _make(path: Path) -> None:
    """Write an id, whole, unless somebody else is first. Raises OSError."""
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


def _read(path: Path) -> str | None:
    try:
        if path.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as file:
            text = file.read(64).decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return text if _ID.fullmatch(text) else None


def _disk(folder: str) -> str:
    """The file system that holds a folder; where it has no id, the host."""
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
