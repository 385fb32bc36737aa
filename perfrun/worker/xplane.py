"""Read what TensorFlow's profiler writes (`*.xplane.pb`), without protobuf or TensorFlow.

Messages and field numbers: XSpace, XPlane, XLine, XEvent of tsl/profiler/protobuf/xplane.proto.
Trace format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple, Union

MOST_EVENTS = 300_000  # in a trace: browsers become slow beyond

Value = Union[int, bytes]


class Event(NamedTuple):
    """One thing that was done on a line."""

    name: str
    begin_ps: int  # since the line's own beginning
    duration_ps: int


class Line(NamedTuple):
    """A thread of the host, or a stream of a device."""

    name: str
    number: int
    begin_ns: int
    events: List[Event]


class Plane(NamedTuple):
    """The host, or one device."""

    name: str
    lines: List[Line]


def decode(data: bytes) -> List[Plane]:
    """Return the planes of a recording. Raises ValueError or IndexError for what is cut short."""
    return [_plane(value) for number, value in _fields(data) if number == 1]


def _plane(data: Value) -> Plane:
    name, names, lines = "", {}, []
    for number, value in _fields(data):
        if number == 2:
            name = _text(value)
        elif number == 3:
            lines.append(value)
        elif number == 4:
            entry = dict(_fields(value))
            names[entry.get(1, 0)] = _event_name(entry.get(2, b""))
    return Plane(name, [_line(line, names) for line in lines])


def _event_name(data: Value) -> str:
    fields = dict(_fields(data))
    return _text(fields.get(4) or fields.get(2, b""))


def _line(data: Value, names: Dict[Any, str]) -> Line:
    name, number_of_line, begin_ns, events = "", 0, 0, []
    for number, value in _fields(data):
        if number == 1:
            number_of_line = int(value)
        elif number == 2:
            name = _text(value)
        elif number == 3:
            begin_ns = int(value)
        elif number == 4:
            fields = dict(_fields(value))
            events.append(
                Event(
                    names.get(fields.get(1, 0), "?"), int(fields.get(2, 0)), int(fields.get(3, 0))
                )
            )
    return Line(name, number_of_line, begin_ns, events)


def _text(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _fields(data: Value) -> Iterator[Tuple[int, Value]]:
    """Field numbers and values of one message."""
    if not isinstance(data, bytes):
        raise ValueError("a number where a message was expected")
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise ValueError("the recording is cut short")
            yield key >> 3, data[at : at + size]
            at += size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield key >> 3, struct.unpack_from("<q" if kind == 1 else "<i", data, at)[0]
            at += size
        else:
            raise ValueError("not a recording: wire type %d" % kind)


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def self_times(planes: List[Plane]) -> Dict[str, Tuple[int, int]]:
    """Count and picoseconds of each event's name, less what the events inside of it took.

    Of the devices, where there are some; else of the host.
    """
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    busy = [plane for plane in devices if any(line.events for line in plane.lines)]
    found: Dict[str, Tuple[int, int]] = {}
    for plane in busy or [p for p in planes if p.name.startswith("/host:CPU")]:
        for line in plane.lines:
            for name, own_ps in _own(line.events):
                calls, so_far = found.get(name, (0, 0))
                found[name] = (calls + 1, so_far + own_ps)
    return found


def _own(events: List[Event]) -> Iterator[Tuple[str, int]]:
    """Each event with the time that is its own: events of a line are nested, or apart."""
    stack: List[List[Any]] = []  # name, end, own time
    for event in sorted(events, key=lambda one: (one.begin_ps, -one.duration_ps)):
        while stack and stack[-1][1] <= event.begin_ps:
            name, _, own_ps = stack.pop()
            yield name, own_ps
        if stack:
            stack[-1][2] -= event.duration_ps
        stack.append([event.name, event.begin_ps + event.duration_ps, event.duration_ps])
    for name, _, own_ps in stack:
        yield name, own_ps


class Trace:
    """Events in the form that Perfetto and chrome://tracing read."""

    def __init__(self) -> None:
        self.events: List[Dict[str, Any]] = []
        self.left_out = 0
        self._processes = 0

    def add(self, planes: List[Plane]) -> None:
        """Take over all events of a recording, as far as there is room."""
        for plane in planes:
            if not any(line.events for line in plane.lines):
                continue
            self._processes += 1
            self._name("process_name", plane.name, 0)
            for line in plane.lines:
                self._name("thread_name", line.name, line.number)
                for event in line.events:
                    self._event(line, event)

    def _name(self, what: str, name: str, thread: int) -> None:
        facts = {"ph": "M", "pid": self._processes, "tid": thread, "name": what}
        self.events.append({**facts, "args": {"name": name}})

    def _event(self, line: Line, event: Event) -> None:
        if len(self.events) >= MOST_EVENTS:
            self.left_out += 1
            return
        self.events.append(
            {
                "ph": "X",
                "pid": self._processes,
                "tid": line.number,
                "name": event.name,
                "ts": line.begin_ns / 1e3 + event.begin_ps / 1e6,  # microseconds
                "dur": event.duration_ps / 1e6,
            }
        )

    def write(self, path: str) -> None:
        """Write the trace, compressed."""
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump({"traceEvents": self.events, "displayTimeUnit": "ms"}, file)
