"""Folders in each other, deeper than functions may call themselves and than a path can name."""

from __future__ import annotations

import os
from pathlib import Path


def nest(folder: Path, levels: int, name: str = "deep") -> None:
    """Make folders of one name in each other, and an empty `file` in the last one."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.fchmod(here, 0o500)
    os.close(here)
