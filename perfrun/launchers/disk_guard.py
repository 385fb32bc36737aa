"""The one folder of this host that a trial in a container can write to: it may not fill the disk.

No engine limits a mounted folder, so whoever waits for the trial looks at the free space meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path

LOOK_EVERY_S = 0.25  # half a gigabyte, to a fast disk
_RESERVE_BYTES = 2**30
_LEAST_BYTES = 2**28  # with less than this free at the start, the disk itself is the limit
_SHARE = 0.5  # of what has gone since, which must be in the trial's folder


class DiskGuard:
    """Tells when a trial has nearly filled the disk of its folder. Never raises."""

    def __init__(self, folder: Path, reserve_bytes: int = _RESERVE_BYTES) -> None:
        """Look at the disk as it is before the trial.

        The reserve is no more than half of what is free now, so that a trial can run on a disk
        that earlier ones have filled.
        """
        self._folder = folder
        self._at_start = _free_bytes(folder)
        free = self._at_start or 0
        self._reserve = min(reserve_bytes, free // 2) if free >= _LEAST_BYTES else 0

    def complaint(self) -> str | None:
        """What the trial has done, once too little is left; None while there is enough."""
        free = _free_bytes(self._folder)
        if free is None or self._at_start is None or free >= self._reserve:
            return None
        size = _size_bytes(self._folder)
        if size < _SHARE * (self._at_start - free):
            return None  # somebody else did
        return (
            f"its output folder has grown to {size / 2**30:.1f} GiB and left "
            f"{free / 2**30:.1f} GiB of the disk free"
        )


def _free_bytes(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _size_bytes(folder: Path) -> int:
    """What the files in a folder take on the disk, links not followed."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += Path(parent, name).lstat().st_blocks * 512
            except OSError:
                continue
    return size
