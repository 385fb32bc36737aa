"""Take folders of results away, so that a kill at any moment leaves no half of one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_ASIDE = ".pruned"


def remove(workspace: Path, folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Move each aside and remove it there. Which are gone, and why others are not."""
    aside = workspace / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)  # what a killed prune left
    removed, failures = [], []
    for folder in folders:
        try:
            aside.mkdir(exist_ok=True)
            folder.replace(aside / folder.name)
        except OSError as error:
            failures.append(f"{folder}: {error.strerror or error}")
            continue
        shutil.rmtree(aside / folder.name, ignore_errors=True)
        removed.append(folder)
    with suppress(OSError):
        aside.rmdir()
    return removed, failures


def bytes_in(folder: Path) -> int:
    """How much its files hold; what goes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total
