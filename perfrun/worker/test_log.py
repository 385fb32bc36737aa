"""Writer and reader of the `test_log` protobuf file through which a benchmark reports.

Wire format: https://protobuf.dev/programming-guides/encoding/. Messages and field numbers are those
of TensorFlow's test_log.proto (BenchmarkEntries, BenchmarkEntry, EntryValue, MetricEntry). Writing
them by hand keeps the worker free of dependencies; TensorFlow's own protobuf reads the same bytes
(tests/integration checks both directions).
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

    Number = Union[int, float]

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
MOST_FIELDS = 1_000_000  # read in a second; a report has a few dozen
LONGEST_NAME = 1000  # characters


class TestLogError(ValueError):
    """Raised for bytes that are not a whole test_log file."""

    __test__ = False  # pytest: not a test class


def encode_entry(
    name: str,
    iters: int = 0,
    cpu_time: float = 0.0,
    wall_time: float = 0.0,
    throughput: float = 0.0,
    extras: Optional[Mapping[str, Union[float, str]]] = None,
    metrics: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """Return a BenchmarkEntries file with this one entry. Times are in seconds."""
    entry = _text(1, name)
    if iters:
        # int64: a negative number is its two's complement in 64 bits.
        entry += _key(2, _VARINT) + _varint(int(iters) & 0xFFFFFFFFFFFFFFFF)
    entry += _double(3, cpu_time) + _double(4, wall_time) + _double(5, throughput)
    for key, value in (extras or {}).items():
        if isinstance(value, str):
            kind = _key(2, _LEN) + _sized(value.encode("utf-8", "backslashreplace"))
        else:  # a member of a oneof is written even when it is zero
            kind = _key(1, _I64) + struct.pack("<d", value)
        entry += _message(6, _text(1, key) + _message(2, kind))
    for metric in metrics:
        body = _text(1, str(metric["name"])) + _double(2, metric["value"])
        for number, bound in ((3, "min_value"), (4, "max_value")):
            if metric.get(bound) is not None:
                body += _message(number, _double(1, metric[bound]))
        entry += _message(7, body)
    return _message(1, entry)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _message(number: int, body: bytes) -> bytes:
    return _key(number, _LEN) + _sized(body)


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode("utf-8", "backslashreplace")) if text else b""


def _double(number: int, value: Number) -> bytes:
    """Return a proto3 double field; proto3 does not write a zero."""
    return _key(number, _I64) + struct.pack("<d", value) if value != 0 else b""


def decode_entries(data: bytes, left: Optional[List[int]] = None) -> List[Dict[str, Any]]:
    """Return the entries of a BenchmarkEntries file. Raises TestLogError for all other bytes.

    Each is `{name, iters, cpu_time, wall_time, throughput, extras, metrics}`. A metric has only
    the keys that were on the wire (`name`, `value`, `min_value`, `max_value`), in wire order,
    because PerfZero's key order depends on it. `left` holds one number, which is counted down: the
    fields that may still be read, of this file and others.
    """
    fields = _Fields([MOST_FIELDS] if left is None else left)
    return [_entry(fields, _bytes(value)) for number, value in fields.of(data) if number == 1]


def _entry(fields: _Fields, data: bytes) -> Dict[str, Any]:
    entry: Dict[str, Any] = {
        "name": "",
        "iters": 0,
        "cpu_time": 0.0,
        "wall_time": 0.0,
        "throughput": 0.0,
        "extras": [],
        "metrics": [],
    }
    scalars = {3: "cpu_time", 4: "wall_time", 5: "throughput"}
    for number, value in fields.of(data):
        if number == 1:
            entry["name"] = _name(value)
        elif number == 2:
            entry["iters"] = _signed(value)
        elif number in scalars:
            entry[scalars[number]] = _float(value)
        elif number == 6:
            entry["extras"].append(_extra(fields, _bytes(value)))
        elif number == 7:
            entry["metrics"].append(_metric(fields, _bytes(value)))
    return entry


def _extra(fields: _Fields, data: bytes) -> Dict[str, Any]:
    extra: Dict[str, Any] = {"name": "", "value": ""}
    for number, value in fields.of(data):
        if number == 1:
            extra["name"] = _name(value)
        elif number == 2:
            for kind, content in fields.of(_bytes(value)):
                if kind == 1:
                    extra["value"] = _float(content)
                elif kind == 2:
                    extra["value"] = _bytes(content).decode("utf-8", "replace")
    return extra


def _metric(fields: _Fields, data: bytes) -> Dict[str, Any]:
    metric: Dict[str, Any] = {}
    for number, value in fields.of(data):
        if number == 1:
            metric["name"] = _name(value)
        elif number == 2:
            metric["value"] = _float(value)
        elif number in (3, 4):
            wrapped = [_float(v) for n, v in fields.of(_bytes(value)) if n == 1]
            metric["min_value" if number == 3 else "max_value"] = wrapped[-1] if wrapped else 0.0
    return metric


def _name(value: Union[int, bytes]) -> str:
    return _bytes(value).decode("utf-8", "replace")[:LONGEST_NAME]


class _Fields:
    """Takes messages apart, and counts their fields: a stranger's file may have millions."""

    def __init__(self, left: List[int]) -> None:
        self._left = left

    def of(self, data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
        """Yield (field number, raw value) of one message; 64-bit values as their 8 bytes."""
        position = 0
        while position < len(data):
            self._left[0] -= 1
            if self._left[0] < 0:
                raise TestLogError("there are more fields than any report has")
            key, position = _read_varint(data, position)
            wire_type = key & 7
            if wire_type == _VARINT:
                value: Union[int, bytes]
                value, position = _read_varint(data, position)
            elif wire_type in (_I64, _I32, _LEN):
                size = 8 if wire_type == _I64 else 4
                if wire_type == _LEN:
                    size, position = _read_varint(data, position)
                value = data[position : position + size]
                if len(value) != size:
                    raise TestLogError("the file ends in the middle of a field")
                position += size
            else:
                raise TestLogError("wire type %d is not one of protobuf's" % wire_type)
            yield key >> 3, value


def _read_varint(data: bytes, position: int) -> Tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise TestLogError("the file ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise TestLogError("a number has more than 64 bits")


def _bytes(value: Union[int, bytes]) -> bytes:
    if isinstance(value, int):
        raise TestLogError("a number stands where a text or message belongs")
    return value


def _float(value: Union[int, bytes]) -> float:
    data = _bytes(value)
    if len(data) != 8:
        raise TestLogError("a double has 8 bytes, not %d" % len(data))
    return float(struct.unpack("<d", data)[0])


def _signed(value: Union[int, bytes]) -> int:
    if not isinstance(value, int):
        raise TestLogError("a text stands where a number belongs")
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >= 1 << 63 else value
