"""Recorder of TensorFlow's own profiler: a folder for TensorBoard, and a trace for Perfetto.

TensorFlow's own protobuf reads the recordings (`*.xplane.pb`), of which the trace is made. Trace
format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from perfrun.worker.folders import places
from perfrun.worker.profilers.profile_recorder import ProfileRecorder, Row, imported

MOST_EVENTS = 300_000  # in a trace: browsers become slow beyond
# Where TensorFlow keeps the messages XSpace, XPlane, XLine, XEvent: since 2.12, and before.
_MODULES = (
    "tensorflow.tsl.profiler.protobuf.xplane_pb2",
    "tensorflow.core.profiler.protobuf.xplane_pb2",
)
_LARGEST_BYTES = 64 * 2**20  # of a recording that is read here: about 20 s of our time


class Event(NamedTuple):
    """One piece of work on a line."""

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


def decode_planes(data: bytes) -> List[Plane]:
    """Return the planes of a recording. Raises protobuf's error for one that is cut short."""
    space = _messages().XSpace.FromString(data)
    return [_plane(plane) for plane in space.planes]


def _messages() -> Any:
    """Return TensorFlow's own description of the format. Raises UnavailableError."""
    for name in _MODULES[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return imported(_MODULES[-1], "the format of TensorFlow's recordings")


def _plane(plane: Any) -> Plane:
    names = {number: one.display_name or one.name for number, one in plane.event_metadata.items()}
    lines = [
        Line(
            line.name,
            line.id,
            line.timestamp_ns,
            [
                Event(names.get(event.metadata_id, "?"), event.offset_ps, event.duration_ps)
                for event in line.events
            ],
        )
        for line in plane.lines
    ]
    return Plane(plane.name, lines)


def self_times(planes: List[Plane]) -> Dict[str, Tuple[int, int]]:
    """Return count and own picoseconds of each event's name, without the events inside of it.

    The events are those of the devices, if there are any; else of the host.
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
    """Yield each event with its own time: events of a line are nested, or do not overlap."""
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
        """Add all events of a recording, as far as there is room."""
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


class TensorflowRecorder(ProfileRecorder):
    """tf.profiler.experimental: what TensorFlow runs on the host and on its devices."""

    tool = "tf.profiler.experimental"
    traces_every_operation = True
    scope = "TensorFlow operations of all threads and devices"

    def __init__(self, folder: str, apart: bool = True) -> None:
        super().__init__(folder)
        tensorflow: Any = imported("tensorflow", "TensorFlow")
        self.version = str(getattr(tensorflow, "__version__", None))
        self._profiler: Any = tensorflow.profiler.experimental
        self._kept, self._apart = 0, apart

    def start(self) -> None:
        # TensorFlow names a recording by the second, so two of one second would be one.
        own = "window_%d" % (self._kept + 1)
        apart = self._apart and self._kept
        self._profiler.start(os.path.join(self.folder, own) if apart else self.folder)

    def stop(self, keep: bool) -> None:
        if keep:
            self._profiler.stop()
            self._kept += 1
        else:
            self._profiler.stop(save=False)

    def top(self) -> List[Row]:
        rows: Dict[str, Row] = {}
        traced = Trace()
        for path in _recordings(self.folder):
            if os.path.getsize(path) > _LARGEST_BYTES:
                self.notes.append("%s is too large to be read here" % os.path.basename(path))
                continue
            with open(path, "rb") as file:
                planes = decode_planes(file.read())
            traced.add(planes)
            for name, (calls, self_ps) in self_times(planes).items():
                row = rows.setdefault(name, {"name": name, "calls": 0, "self_s": 0.0})
                row["calls"] += calls
                row["self_s"] += self_ps / 1e12
        if traced.events:
            traced.write(os.path.join(self.folder, "trace.json.gz"))
        if traced.left_out:
            self.notes.append("trace.json.gz lacks %d events, all later ones" % traced.left_out)
        if not rows:
            self.notes.append("nothing was recorded: the method ran no TensorFlow operation")
        return sorted(rows.values(), key=lambda row: -float(row["self_s"]))[: self.most_rows]


def _recordings(folder: str) -> List[str]:
    found = []
    for place, names in places(folder):
        found += [os.path.join(place, name) for name in names if name.endswith(".xplane.pb")]
    return sorted(found)
