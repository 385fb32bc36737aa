"""The files of one series in the private folder of a trial: `series_<n>.json` and `.rows`.

The JSON is written before anything is timed, again when the warm-up has ended, and for the last
time with all figures; so a worker that is killed leaves behind what its raw times mean.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

from perfrun.worker.files import SERIES, write_json
from perfrun.worker.rows import SUFFIX, Rows

_LEFT_OUT = ("times_s",)  # they are in the rows


class SeriesWriter:
    """Keeps a series on disk, or in memory where there is no folder or the disk fails."""

    def __init__(self, folder: Optional[str], header: Dict[str, Any]) -> None:
        self._facts = header
        self._path: Optional[str] = None
        self.rows, base, trouble = _open(folder)
        if base is not None:
            self._path = base + ".json"
        if trouble is not None:
            self.rows.trouble = trouble
        self.update({})

    def update(self, facts: Dict[str, Any]) -> None:
        """Write down what has become known."""
        self._facts.update(facts)
        if self._path is None:
            return
        try:
            write_json(self._path, self._facts)
        except OSError as error:
            self.rows.trouble = self.rows.trouble or str(error)

    def finish(self, facts: Dict[str, Any]) -> None:
        """Write the last word."""
        self.update({key: value for key, value in facts.items() if key not in _LEFT_OUT})

    def close(self) -> None:
        """Close the file of rows."""
        self.rows.close()


def _open(folder: Optional[str]) -> Tuple[Rows, Optional[str], Optional[str]]:
    """Take the first free number."""
    number = 1
    while folder:
        base = os.path.join(folder, "%s%d" % (SERIES, number))
        try:
            return Rows(base + SUFFIX), base, None
        except FileExistsError:
            number += 1
        except OSError as error:
            return Rows(), None, str(error)
    return Rows(), None, None
