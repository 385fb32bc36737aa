"""Keep Python from running the code before an edit: see `keep_none_of_new_files`."""

from __future__ import annotations

import os
import time
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any

YOUNG_S = 2.0  # the coarsest clock of a file system in use (FAT)


def keep_none_of_new_files() -> None:
    """Let Python write no compiled file beside a source that has just been changed.

    Python takes a compiled file for current when its source has the same size and the same second
    of change. A script that changes a constant and runs perfrun again within that second would
    measure the old code, under the hash of the new one.
    """
    write = SourceFileLoader.set_data

    def set_data(self: Any, path: Any, data: Any, **options: Any) -> None:
        try:
            age = time.time() - os.stat(self.path).st_mtime
        except OSError:
            return
        if not -YOUNG_S < age < YOUNG_S:
            write(self, path, data, **options)

    SourceFileLoader.set_data = set_data  # type: ignore[method-assign]
