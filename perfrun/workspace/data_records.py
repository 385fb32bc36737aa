"""Records of downloaded data, in the workspace: `<workspace>/data-records/`.

They say which file perfrun has hashed, and which archive is unpacked. They do not lie beside the
data, because an archive could bring one: then a `sha256=` would be compared with what the archive
says of itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfrun.untrusted import Folder, Refused, parse_json, read_file

_MOST_BYTES = 1 << 16
_TRANSFER = ".transfer"


@dataclass(frozen=True, kw_only=True)
class DataRecord:
    """What is known of one file of data."""

    url: str | None  # redacted; None: it was there before perfrun
    sha256: str | None  # None for a folder
    inode: int
    size: int | None  # None for a folder
    mtime_ns: int | None
    ctime_ns: int | None  # which no program can set
    unpacked: bool | None  # None: still to be done; False: nothing to unpack

    def is_of(self, status: os.stat_result) -> bool:
        """Return True when this is about that file, whose bytes may have changed."""
        if stat.S_ISDIR(status.st_mode):
            return self.sha256 is None and self.inode == status.st_ino
        known = (self.inode, self.size, self.mtime_ns)
        return known == (status.st_ino, status.st_size, status.st_mtime_ns)

    def proves(self, status: os.stat_result) -> bool:
        """Return True when the file has not been changed in any way since it was hashed."""
        return self.is_of(status) and (self.sha256 is None or self.ctime_ns == status.st_ctime_ns)


def record_of(
    status: os.stat_result, *, url: str | None, sha256: str | None, unpacked: bool | None
) -> DataRecord:
    """Return the record of a file, or of a folder, which has no SHA-256."""
    return DataRecord(
        url=url,
        sha256=sha256,
        inode=status.st_ino,
        size=status.st_size if sha256 else None,
        mtime_ns=status.st_mtime_ns if sha256 else None,
        ctime_ns=status.st_ctime_ns if sha256 else None,
        unpacked=unpacked,
    )


_NOTHING = type(None)
_TYPES: dict[str, tuple[type, ...]] = {
    "url": (str, _NOTHING),
    "sha256": (str, _NOTHING),
    "inode": (int,),
    "size": (int, _NOTHING),
    "mtime_ns": (int, _NOTHING),
    "ctime_ns": (int, _NOTHING),
    "unpacked": (bool, _NOTHING),
}


class DataRecords:
    """The records of a workspace: one file for each path of data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: Path) -> DataRecord | None:
        """Return the record of a path; None when there is none, or it cannot be read."""
        found = self.load(path, "")
        values: dict[str, Any] = {name: found.get(name) for name in _TYPES}
        if not all(type(values[name]) in types for name, types in _TYPES.items()):
            return None
        return DataRecord(**values)

    def write(self, path: Path, record: DataRecord) -> None:
        """Write the record of a path."""
        self.save(path, {"path": str(path), **asdict(record)}, "")

    def transfer(self, path: Path) -> TransferRecord:
        """Return the record of an unfinished transfer to `path`."""
        return TransferRecord(self, path)

    def forget(self, path: Path, kind: str) -> None:
        """Remove a record of a kind."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / self._name(path, kind)).unlink()

    def load(self, path: Path, kind: str) -> dict[str, Any]:
        """Return a record of a kind; empty when there is none that can be read."""
        with contextlib.suppress(OSError, Refused):
            found = parse_json(read_file(self._folder / self._name(path, kind), _MOST_BYTES))
            if isinstance(found, dict):
                return found
        return {}

    def save(self, path: Path, values: dict[str, Any], kind: str) -> None:
        """Write a record of a kind."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with Folder(self._folder) as folder:
            folder.write(self._name(path, kind), json.dumps(values).encode() + b"\n")

    def _name(self, path: Path, kind: str) -> str:
        # By the folder's real path: a data set has one record, by whatever way it is named.
        whole = path.parent.resolve() / path.name
        return f"{hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]}{kind}.json"


class TransferRecord:
    """What an unfinished transfer to a path consists of: its url and its state at the server."""

    def __init__(self, records: DataRecords, path: Path) -> None:
        self._records, self._path = records, path

    def read(self) -> dict[str, Any]:
        """Return what was written; empty when there is nothing."""
        return self._records.load(self._path, _TRANSFER)

    def write(self, values: dict[str, Any]) -> None:
        """Write it anew."""
        self._records.save(self._path, {"path": str(self._path), **values}, _TRANSFER)

    def forget(self) -> None:
        """Remove it."""
        self._records.forget(self._path, _TRANSFER)
