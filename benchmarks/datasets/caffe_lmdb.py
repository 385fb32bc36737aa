"""An LMDB of Caffe's `Datum` records, as `convert_imageset` writes it."""

from __future__ import annotations

import importlib
import io
import os
from pathlib import Path
from typing import Any

from benchmarks.datasets import datum as datums
from benchmarks.datasets import pictures
from benchmarks.datasets.defect import DataError

FILE = "data.mdb"


class CaffeLmdb:
    """The records of an LMDB, by number in the order of their keys.

    DataError for a folder that has none, and for a file that is not whole: LMDB maps it into
    memory, and a record beyond its end would kill the process (SIGBUS).
    """

    backend = "caffe_lmdb"
    classes: tuple[str, ...] = ()  # a Datum has the number of its class only

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _check_whole(folder, _environment(folder))
        with _environment(folder).begin() as transaction:
            # Keys alone: the images lie in pages of their own, which this does not read.
            self._keys = list(transaction.cursor().iternext(keys=True, values=False))
        if not self._keys:
            raise DataError(f"{folder}: an LMDB without records")

    def __len__(self) -> int:
        return len(self._keys)

    def datum(self, number: int) -> datums.Datum:
        """Return the record as it is stored; DataError names the key of one that is broken."""
        with _environment(self.folder).begin() as transaction:
            record = transaction.get(self._keys[number])
        try:
            return datums.decode(record)
        except datums.DatumError as error:
            raise DataError(f"{self.name(number)}: not a Datum, {error}") from None

    def image(self, number: int) -> tuple[Any, int]:
        """Return the decoded image, a `PIL.Image`, and its label."""
        datum = self.datum(number)
        if datum.encoded:
            return pictures.decoded(io.BytesIO(datum.data), self.name(number)), datum.label
        image = pictures.library()
        size = (datum.width, datum.height)
        bands = [image.frombytes("L", size, plane) for plane in self.planes(number, datum)]
        return bands[0] if len(bands) == 1 else image.merge("RGB", bands), datum.label

    def name(self, number: int) -> str:
        """Say which record this is."""
        return f"{self.folder}, record {self._keys[number].decode(errors='backslashreplace')!r}"

    def planes(self, number: int, datum: datums.Datum) -> list[bytes]:
        """Return the pixels of a record that is not encoded: grey, or red, green and blue."""
        pixels = datum.data or bytes(min(255, max(0, round(v))) for v in datum.float_data)
        size = datum.height * datum.width
        if datum.channels not in (1, 3) or len(pixels) != datum.channels * size or not pixels:
            raise DataError(
                f"{self.name(number)}: {len(pixels)} bytes of pixels do not make an image of "
                f"{datum.channels} x {datum.height} x {datum.width}"
            )
        planes = [pixels[begin : begin + size] for begin in range(0, len(pixels), size)]
        return planes[::-1]  # Caffe's first one is blue


def library() -> Any:
    """Return the module `lmdb`; DataError names the package where it is missing."""
    try:
        return importlib.import_module("lmdb")
    except ImportError as error:
        raise DataError(f"caffe_lmdb needs lmdb (pip install lmdb): {error}") from None


# LMDB forbids opening a folder twice in a process, and using what was opened before a fork.
_opened: dict[Path, tuple[int, Any]] = {}


def _environment(folder: Path) -> Any:
    process, environment = _opened.get(folder, (-1, None))
    if process != os.getpid():
        if environment is not None:
            environment.close()
        environment = _open(folder)
        _opened[folder] = (os.getpid(), environment)
    return environment


def _open(folder: Path) -> Any:
    lmdb = library()
    try:
        # No lock: it would write into the user's folder, and nobody writes records meanwhile.
        return lmdb.open(str(folder), readonly=True, lock=False, readahead=False, meminit=False)
    except lmdb.Error as error:
        size = (folder / FILE).stat().st_size
        raise DataError(
            f"{folder / FILE}: {size} bytes, but no LMDB that can be read ({error}); "
            "make or copy it again"
        ) from None


def _check_whole(folder: Path, environment: Any) -> None:
    expected = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    found = (folder / FILE).stat().st_size
    if found < expected:
        raise DataError(
            f"{folder / FILE}: truncated, {found} of {expected} bytes; make or copy it again"
        )
