"""Keep Python from running the code before an edit: see `tell_edits_apart`."""

from __future__ import annotations

import os
import time
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any

YOUNG_S = 2.0  # the coarsest clock of a file system in use (FAT)
_HEADER = 16  # bytes of a compiled file before its code: PEP 552
_BY_TIME, _BY_HASH = (kind.to_bytes(4, "little") for kind in (0, 3))


def tell_edits_apart() -> None:
    """Let Python know compiled files of sources that have just been changed by their hash.

    Python takes a compiled file for current when its source has the same size and the same second
    of change. A script that changes a constant and runs perfrun again within that second would
    measure the old code, under the hash of the new one. PEP 552 has compiled files that are current
    as long as their source has the hash that they name.
    """
    compile_, write = SourceFileLoader.source_to_code, SourceFileLoader.set_data

    def source_to_code(self: Any, data: Any, *given: Any, **options: Any) -> Any:
        if _is_young(self.path):
            from importlib.util import source_hash

            self.perfrun_hash = source_hash(data)
        return compile_(self, data, *given, **options)

    def set_data(self: Any, path: Any, data: Any, **options: Any) -> None:
        known = getattr(self, "perfrun_hash", None)
        if known and data[4:8] == _BY_TIME:
            data = bytes(data[:4]) + _BY_HASH + known + bytes(data[_HEADER:])
        write(self, path, data, **options)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]
    SourceFileLoader.set_data = set_data  # type: ignore[method-assign]


def _is_young(path: str) -> bool:
    try:
        return -YOUNG_S < time.time() - os.stat(path).st_mtime < YOUNG_S
    except OSError:
        return True
