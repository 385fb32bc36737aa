"""Names that survive a power loss: a file that is synced is lost all the same if its name is not.

A rename or a new file is on disk only when the folder that holds the name has been synced, and that
holds for the folder's own name, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

# Some file systems do not sync folders, or nothing at all: no error of the disk.
_CANNOT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those above it; return the folders that have got a new name in them."""
    missing = []
    for folder in (path, *path.parents):
        if folder.exists():
            break
        missing.append(folder)
    path.mkdir(parents=True, exist_ok=True)
    return [folder.parent for folder in missing]


def sync_file(descriptor: int) -> None:
    """Sync an open file. Raises OSError when the disk says that it failed."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise


def sync_names(folder: Path) -> None:
    """Sync the names in a folder; one that cannot be synced is as safe as it can be."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
