"""Files of arrays beside an index, which may be thrown away: written whole, read with suspicion."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfrun.untrusted import Refused, opened

_OF_A_WRITER = re.compile(r"[0-9a-f]{32}")
_ABANDONED_S = 3600.0
# What numpy, zipfile and zlib raise for a file that is not whole.
_UNREADABLE = (
    *(OSError, Refused, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error),
    *(ArithmeticError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError),
)


def read_arrays(path: Path, kinds: Mapping[str, np.dtype[Any]]) -> dict[str, NDArray[Any]] | None:
    """Return the columns of these kinds and names, and the texts `about`; None without such a file.

    Nothing else that the file may hold is looked at.
    """
    try:
        with opened(path) as (number, size), open(number, "rb", closefd=False) as file:
            with zipfile.ZipFile(file) as archive:  # compressed, a few bytes may become many
                if sum(one.file_size for one in archive.infolist()) > size:
                    return None
            file.seek(0)
            held = np.load(file, allow_pickle=False)
            found = {name: held[name] for name in ("about", *kinds)}
    except _UNREADABLE:
        return None
    if any(found[name].dtype != kind or found[name].ndim != 1 for name, kind in kinds.items()):
        return None
    return found if found["about"].dtype.kind == "U" and found["about"].ndim == 1 else None


def write_arrays(path: Path, about: tuple[str, ...], arrays: Mapping[str, Any]) -> None:
    """Write a file in place of the one that is there. Raises OSError."""
    _remove_abandoned(path)
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("xb") as file:
            np.savez(file, about=np.array(about), **arrays)
        os.replace(aside, path)  # noqa: PTH105
    finally:
        aside.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove what writers that were killed have left; it takes seconds to write."""
    for other in path.parent.iterdir():
        name, _, end = other.name.rpartition(".")
        if name == path.name and _OF_A_WRITER.fullmatch(end):
            with contextlib.suppress(OSError):
                if other.lstat().st_mtime < time.time() - _ABANDONED_S:
                    other.unlink()
