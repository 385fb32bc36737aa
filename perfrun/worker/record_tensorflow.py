"""TensorFlow's own profiler: a folder for TensorBoard, and a trace for Perfetto made of it."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from perfrun.worker import xplane
from perfrun.worker.recording import TOP_ROWS, Recorder, Row, imported

_LARGEST_BYTES = 64 * 2**20  # of a recording that is read here: about 20 s of our time


class TensorflowRecorder(Recorder):
    """tf.profiler.experimental: what TensorFlow runs on the host and on its devices."""

    tool = "tf.profiler.experimental"
    only_timed_steps = True
    scope = "TensorFlow operations of all threads and devices"

    def __init__(self, folder: str, apart: bool = True) -> None:
        super().__init__(folder)
        tensorflow: Any = imported("tensorflow", "TensorFlow")
        self.version = str(getattr(tensorflow, "__version__", None))
        self._profiler: Any = tensorflow.profiler.experimental
        self._kept, self._apart = 0, apart

    def start(self) -> None:
        # TensorFlow names a recording by the second: those of one second would be one.
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
        traced = xplane.Trace()
        for path in _recordings(self.folder):
            if os.path.getsize(path) > _LARGEST_BYTES:
                self.notes.append("%s is too large to be read here" % os.path.basename(path))
                continue
            with open(path, "rb") as file:
                planes = xplane.decode(file.read())
            traced.add(planes)
            for name, (calls, self_ps) in xplane.self_times(planes).items():
                row = rows.setdefault(name, {"name": name, "calls": 0, "self_s": 0.0})
                row["calls"] += calls
                row["self_s"] += self_ps / 1e12
        if traced.events:
            traced.write(os.path.join(self.folder, "trace.json.gz"))
        if traced.left_out:
            self.notes.append("trace.json.gz lacks %d events, all later ones" % traced.left_out)
        if not rows:
            self.notes.append("nothing was recorded: the method ran no TensorFlow operation")
        return sorted(rows.values(), key=lambda row: -float(row["self_s"]))[:TOP_ROWS]


def _recordings(folder: str) -> List[str]:
    found = []
    for place, _, names in os.walk(folder):
        found += [os.path.join(place, name) for name in names if name.endswith(".xplane.pb")]
    return sorted(found)
