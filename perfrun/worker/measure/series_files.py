"""The files of a series in a trial's private folder, which survive whatever kills the process.

`series_<n>.rows` has one row for each interval: four signed 64-bit integers, little-endian:

    wall_ns, cpu_ns, device_ns, steps

`steps` counts the steps of the interval. It is negative before the timed part: the very first row
is the first call, the other negative ones are the warm-up. `device_ns` is -1 where no device was
asked. The file is mapped into memory, so the kernel has a row as soon as it is written. `steps` is
written last, so a row without it is incomplete. `numpy.fromfile(path, "<i8").reshape(-1, 4)` reads
the file.

`series_<n>.json` says what the rows mean. It is written before anything is timed, again when the
warm-up has ended, and at last with all figures, so a worker that is killed leaves it behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
from array import array
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from perfrun.worker.outcome_file import SERIES, write_json

_ROW = struct.Struct("<4q")
_FIRST_ROWS = 1024
SUFFIX = ".rows"
_LEFT_OUT = ("times_s",)  # they are in the rows


class Columns(NamedTuple):
    """All intervals, by column: a list of rows would take ten times the memory."""

    wall_ns: Sequence[int]
    cpu_ns: Sequence[int]
    device_ns: Sequence[int]
    steps: Sequence[int]

    def part(self, begin: int, end: Optional[int] = None) -> "Columns":
        """Return the intervals from `begin` to `end`."""
        return Columns(*[column[begin:end] for column in self])


class Rows:
    """The rows of a series: in a file if there is a `path` and room on the disk, else in memory."""

    def __init__(self, path: Optional[str] = None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        self._file = None if path is None else os.open(path, flags, 0o666)
        self._buffer: Any = bytearray()
        self._size = 0
        self.trouble: Optional[str] = None  # why not all rows are in the file
        self._grow()

    def append(self, wall_ns: int, cpu_ns: int, device_ns: int, steps: int) -> None:
        """Add a row. This takes about a microsecond, between two timed intervals."""
        end = self._size + _ROW.size
        if end > len(self._buffer):
            self._grow()
        _ROW.pack_into(self._buffer, self._size, wall_ns, cpu_ns, device_ns, steps)
        self._size = end

    def read(self) -> Columns:
        """Return all rows so far."""
        return parse_rows(bytes(self._buffer[: self._size]))

    def close(self) -> None:
        """Cut the file to the rows in it. After this, `read` no longer works."""
        if self._file is None:
            return
        if isinstance(self._buffer, mmap.mmap):  # not when the disk was full from the start
            self._buffer.close()
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._size)
        os.close(self._file)
        self._file = None

    def _grow(self) -> None:
        size = max(_FIRST_ROWS * _ROW.size, 2 * len(self._buffer))
        if self._file is not None:
            try:
                self._map(size)
                return
            except OSError as error:
                self._leave_file(str(error))
        self._buffer = bytearray(self._buffer).ljust(size, b"\0")

    def _map(self, size: int) -> None:
        # Take the blocks first: writing to a mapped page without room on the disk is a SIGBUS.
        assert self._file is not None
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file, 0, size)
        else:
            os.ftruncate(self._file, size)
        larger = mmap.mmap(self._file, size)
        if self._size:
            self._buffer.close()
        self._buffer = larger

    def _leave_file(self, why: str) -> None:
        """Continue in memory; the rows in the file stay there."""
        self.trouble = why
        kept = bytes(self._buffer[: self._size])
        self.close()
        self._buffer = kept


def parse_rows(data: bytes) -> Columns:
    """Return the rows of a file's content, even if its writer was killed."""
    values = array("q")
    values.frombytes(data[: len(data) - len(data) % _ROW.size])
    if sys.byteorder == "big":
        values.byteswap()
    view = memoryview(values)  # its slices copy nothing
    columns = Columns(*[view[number::4] for number in range(4)])
    rows = len(columns.steps)
    while rows and not columns.steps[rows - 1]:  # blocks that were taken and not used
        rows -= 1
    return columns.part(0, rows)


class SeriesWriter:
    """Writer of a series: to disk, or in memory where there is no folder or the disk fails."""

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
        """Add facts and write all of them down."""
        self._facts.update(facts)
        if self._path is None:
            return
        try:
            write_json(self._path, self._facts)
        except OSError as error:
            self.rows.trouble = self.rows.trouble or str(error)

    def finish(self, facts: Dict[str, Any]) -> None:
        """Write the final facts."""
        self.update({key: value for key, value in facts.items() if key not in _LEFT_OUT})

    def close(self) -> None:
        """Close the file of rows."""
        self.rows.close()


def _open(folder: Optional[str]) -> Tuple[Rows, Optional[str], Optional[str]]:
    """Open the rows under the first free number; return them, the base path, and any error."""
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
