"""Find the summaries in folders, and see which have changed since they were read."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.summary_record import LARGEST_BYTES, SUMMARY


@dataclass(kw_only=True)
class Scan:
    """What is in some folders."""

    found: dict[str, str] = field(default_factory=dict)  # path to stamp, which changes as it does
    problems: dict[str, str] = field(default_factory=dict)  # why one of them cannot be read
    folders: list[str] = field(default_factory=list)  # whose listing is complete


def scan(named: Path, *, must_be_there: bool = True) -> Scan:
    """Find the summaries of a workspace, of an output folder, of a trial's folder, or one file.

    Raises UsageError for what is not there or cannot be looked into.
    """
    path = os.path.realpath(named)
    result = Scan()
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - and not a Path, for 100,000 of them
            _look(path, result, must_be_there=must_be_there)
            result.folders += [] if result.found else [path]
            return result
        _look(os.path.join(path, SUMMARY), result)  # noqa: PTH118
        for folder in (path, os.path.join(path, "output")):  # noqa: PTH118
            _look_below(folder, result)
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror or error}") from None
    return result


def _look_below(folder: str, result: Scan) -> None:
    try:
        with os.scandir(folder) as entries:
            names = sorted([entry.name for entry in entries if not entry.is_file()])
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        pass  # which says of every file that was in it that it is gone
    else:
        try:
            for name in names:
                _look(f"{folder}/{name}/{SUMMARY}", result, opened, f"{name}/{SUMMARY}")
        finally:
            os.close(opened)
    result.folders.append(folder)


def _look(
    path: str,
    result: Scan,
    opened: int | None = None,
    below: str | None = None,
    *,
    must_be_there: bool = False,
) -> None:
    """`below`: the path from a folder that is open, which takes less to follow."""
    try:
        status = os.stat(below or path, dir_fd=opened)
    except (FileNotFoundError, NotADirectoryError):
        if must_be_there:
            raise
        return
    except OSError as error:
        result.found[path], result.problems[path] = "", error.strerror or str(error)
        return
    # The inode too: a summary is written aside and renamed, perhaps within one tick of the clock.
    result.found[path] = f"{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
    if not stat.S_ISREG(status.st_mode):
        result.problems[path] = "is no file"
    elif status.st_size > LARGEST_BYTES:
        result.problems[path] = f"is larger than {LARGEST_BYTES // 2**20} MiB: no summary"


def would_be_found(path: str, folders: Collection[str]) -> bool:
    """Whether a scan that listed these folders would have come across the file."""
    parent, _, name = path.rpartition("/")
    return name == SUMMARY and (parent in folders or parent.rpartition("/")[0] in folders)


def storable(path: str) -> str:
    """A path as text: bytes that are no UTF-8 are written out, as every database takes text."""
    if path.isascii():
        return path
    return os.fsencode(path).decode("utf-8", "backslashreplace")
