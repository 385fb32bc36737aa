"""process_info.log: what a trial used over time, a line for each moment. Good enough to plot."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_SHORTEST_S = 0.1  # PerfZero's window for cpu_percent: more lines would repeat it
_LINES_PER_AGE = 1000  # a trial twice as long has some 700 more lines, not twice as many
_PEAK = "tree_pss"  # whose peaks are kept
_HIGHER = 1.001  # what makes a peak worth a line of its own
# Lines are formatted and written together: with cold caches the first costs ten times the others.
_WRITE_EVERY_S = 1.0


class Timeline:
    """Writes samples as JSON lines that get rarer as the trial gets longer, peaks excepted.

    Of the samples between two lines the highest is written too, with its own time, if it stands
    out: thinning never takes a peak away. A log that cannot be written stops nobody. It lacks the
    last second of a trial whose harness was killed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._next_s = 0.0
        self._lines: list[Mapping[str, float]] = []  # still to be written
        self._rest = b""  # of what a full disk took a part of, or nothing
        self._next_write_s = 0.0
        self._highest: Mapping[str, float] | None = None  # since the last line, if it stands out
        self._to_beat = 0.0  # value that stands out

    def __enter__(self) -> Timeline:
        with contextlib.suppress(OSError):
            self._file = self._path.open("ab", buffering=0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._keep_peak(0.0)
        self._write()
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()

    def wants(self, elapsed_s: float, value: float) -> bool:
        """Whether a sample of this time and tree's PSS would change anything."""
        return elapsed_s >= self._next_s or value > self._to_beat

    def add(self, sample: Mapping[str, float]) -> None:
        """Take a sample. Its `time` is in seconds, and never less than the last one's."""
        elapsed_s, value = sample["time"], sample[_PEAK]
        if not self.wants(elapsed_s, value):
            return
        if elapsed_s < self._next_s:
            self._highest, self._to_beat = sample, value
            return
        self._next_s = elapsed_s + max(_SHORTEST_S, elapsed_s / _LINES_PER_AGE)
        self._keep_peak(value)
        self._lines.append(sample)
        self._to_beat = _HIGHER * value
        if elapsed_s >= self._next_write_s:
            self._next_write_s = elapsed_s + _WRITE_EVERY_S
            self._write()

    def _keep_peak(self, value: float) -> None:
        """Add the highest sample since the last line if it stands out from the next one, too."""
        highest, self._highest = self._highest, None
        if highest and highest[_PEAK] > _HIGHER * value:
            self._lines.append(highest)

    def _write(self) -> None:
        text = "".join(json.dumps(sample) + "\n" for sample in self._lines)
        self._lines.clear()
        if self._file:
            self._rest += text.encode("ascii")
            with contextlib.suppress(OSError):
                self._rest = self._rest[self._file.write(self._rest) :]
