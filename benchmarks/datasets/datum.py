"""Caffe's `Datum`, the record of its LMDB datasets, without protobuf.

Wire format: https://protobuf.dev/programming-guides/encoding/. Field numbers are those of `Datum`
in Caffe's `caffe.proto`. Pixels that are not encoded lie plane by plane (C x H x W), colour as
blue, green, red, because Caffe reads images with OpenCV.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

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
    """Return the record as Caffe writes it: a field that has its default is left out."""
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
    """Read a record; fields it does not know are passed over. DatumError if it is not whole."""
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
