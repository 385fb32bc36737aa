"""Write devices.csv: one row for each reading of each accelerator of a trial."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from perfrun.untrusted import Folder

_WRITE_EVERY_S = 5.0  # a row written alone costs ten times as much as one of many


class DeviceLog:
    """A new file of rows, written every few seconds.

    Rows that a full disk does not take are dropped whole and without a message: memory must not
    grow, and the summary does not need them. Later rows are tried again. If the path exists
    already, also as a link, it belongs to somebody else and nothing is written.
    """

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self._header = header
        self._text = io.StringIO()  # still to be written
        self._rows = csv.writer(self._text, lineterminator="\n")
        self._size = 0  # of the whole rows in the file
        self._next_write_s = 0.0
        self._file: BinaryIO | None = None
        inner = path.parent  # the benchmark can put a link in its place
        with contextlib.suppress(OSError), Folder(inner.parent, inner.name) as folder:
            self._file = os.fdopen(folder.new(path.name), "wb", buffering=0)

    def add(self, at_s: float, row: Sequence[object]) -> None:
        """Take one row. Its time is in seconds and never decreases."""
        if self._file is None:
            return
        self._rows.writerow((f"{at_s:.3f}", *map(_cell, row)))
        if at_s >= self._next_write_s:
            self._next_write_s = at_s + _WRITE_EVERY_S
            self._write()

    def close(self) -> None:
        """Write the remaining rows and close the file."""
        if self._file is None:
            return
        self._write()
        with contextlib.suppress(OSError):
            self._file.close()
        self._file = None

    def _write(self) -> None:
        assert self._file is not None
        rows = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        head = "" if self._size else ",".join(self._header) + "\n"
        data = (head + rows).encode()
        written = 0
        with contextlib.suppress(OSError):
            written = os.pwrite(self._file.fileno(), data, self._size)
        if written == len(data):
            self._size += written
        elif written:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._size)


def _cell(value: object) -> object:
    """Return a cell: empty when unknown, names joined by `+`, `none` for an empty tuple."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return value
