"""An LMDB of Caffe's `Datum` records, as `convert_imageset` writes it; decoded without protobuf.

Wire format: https://protobuf.dev/programming-guides/encoding/. Field numbers are those of `Datum`
in Caffe's `caffe.proto`. Pixels that are not encoded lie plane by plane (C x H x W), colour as
blue, green, red, because Caffe reads images with OpenCV.
"""

from __future__ import annotations

import importlib
import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._support.datasets import pictures
from benchmarks._support.datasets.pictures import DataError

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOAT_DATA, _ENCODED = range(1, 8)


class DatumError(ValueError):
    """The bytes are not a whole Datum."""


@dataclass(frozen=True, kw_only=True)
class Datum:
    """One labelled image: the bytes of a JPEG or PNG file if `encoded`, else its raw pixels."""

    channels: int = 0
    height: int = 0
    width: int = 0
    data: bytes = b""
    label: int = 0
    float_data: tuple[float, ...] = ()
    encoded: bool = False


def encode(datum: Datum) -> bytes:
    """Return the record as Caffe writes it, without the fields that have their default."""
    numbers = (
        (_CHANNELS, datum.channels),
        (_HEIGHT, datum.height),
        (_WIDTH, datum.width),
        (_LABEL, datum.label),
        (_ENCODED, int(datum.encoded)),
    )
    out = b"".join(_key(number, _VARINT) + _varint(value) for number, value in numbers if value)
    if datum.data:
        out += _key(_DATA, _LEN) + _varint(len(datum.data)) + datum.data
    for value in datum.float_data:  # proto2: one field for each, not packed
        out += _key(_FLOAT_DATA, _I32) + struct.pack("<f", value)
    return out


def decode(record: bytes) -> Datum:
    """Return the record of the bytes, without unknown fields; DatumError if it is incomplete."""
    numbers: dict[int, int] = {}
    data = b""
    floats: list[float] = []
    for number, value in _fields(record):
        if number == _DATA:
            data = _bytes(value)
        elif number == _FLOAT_DATA:
            floats += [one for (one,) in struct.iter_unpack("<f", _whole_floats(value))]
        elif number in (_CHANNELS, _HEIGHT, _WIDTH, _LABEL, _ENCODED):
            numbers[number] = _int32(value)
    return Datum(
        channels=numbers.get(_CHANNELS, 0),
        height=numbers.get(_HEIGHT, 0),
        width=numbers.get(_WIDTH, 0),
        data=data,
        label=numbers.get(_LABEL, 0),
        float_data=tuple(floats),
        encoded=bool(numbers.get(_ENCODED, 0)),
    )


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # a negative number is its two's complement in 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(record: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(record):
        key, position = _read_varint(record, position)
        wire_type = key & 7
        if wire_type == _VARINT:
            number, position = _read_varint(record, position)
            yield key >> 3, number
            continue
        if wire_type not in (_I64, _LEN, _I32):
            raise DatumError(f"wire type {wire_type} is not one of protobuf's")
        size = 8 if wire_type == _I64 else 4
        if wire_type == _LEN:
            size, position = _read_varint(record, position)
        value = record[position : position + size]
        if len(value) != size:
            raise DatumError("it ends in the middle of a field")
        position += size
        yield key >> 3, value


def _read_varint(record: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(record):
            raise DatumError("it ends in the middle of a number")
        byte = record[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DatumError("a number has more than 64 bits")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise DatumError("a number stands where bytes belong")
    return value


def _whole_floats(value: int | bytes) -> bytes:
    data = _bytes(value)
    if len(data) % 4:
        raise DatumError("a float has 4 bytes")
    return data


def _int32(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise DatumError("bytes stand where a number belongs")
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


FILE = "data.mdb"


class CaffeLmdb:
    """The records of an LMDB, by number in the order of their keys.

    DataError is raised for a folder without records, and for a truncated file: LMDB maps it into
    memory, and a record beyond its end would kill the process (SIGBUS).
    """

    backend = "caffe_lmdb"
    classes: tuple[str, ...] = ()  # a Datum has the number of its class only

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _check_whole(folder, _environment(folder))
        with _environment(folder).begin() as transaction:
            # Only the keys are read: the images lie in other pages.
            self._keys = list(transaction.cursor().iternext(keys=True, values=False))
        if not self._keys:
            raise DataError(f"{folder}: an LMDB without records")

    def __len__(self) -> int:
        return len(self._keys)

    def datum(self, number: int) -> Datum:
        """Return the record as it is stored; DataError names the key of a broken one."""
        with _environment(self.folder).begin() as transaction:
            record = transaction.get(self._keys[number])
        try:
            return decode(record)
        except DatumError as error:
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
        """Return the name of a record for messages: its folder and key."""
        return f"{self.folder}, record {self._keys[number].decode(errors='backslashreplace')!r}"

    def planes(self, number: int, datum: Datum) -> list[bytes]:
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
        # A lock would write into the user's folder, and nobody writes records meanwhile.
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
