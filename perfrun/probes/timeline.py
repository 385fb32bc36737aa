"""process_info.log: what a trial used over time, a line for each moment. Good enough to plot."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

_SHORTEST_S = 0.1  # PerfZero's window for cpu_percent: more lines would repeat it
_LINES_PER_AGE = 1000  # a trial twice as long has some 700 more lines, not twice as many
_PEAK = "tree_pss"  # whose peaks are kept
_HIGHER = 1.001  # what makes a peak worth a line of its own


class Timeline:
    """Writes samples as JSON lines that get rarer as the trial gets longer, peaks excepted.

    Of the samples between two lines the highest is written too, with its own time, if it stands
    out: thinning never takes a peak away. A log that cannot be written stops nobody.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._next_s = 0.0
        self._highest: Mapping[str, float] | None = None  # since the last line
        self._last = 0.0  # value of the last line

    def __enter__(self) -> Timeline:
        with contextlib.suppress(OSError):
            self._file = self._path.open("a", encoding="ascii", buffering=1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write_peak(0.0)
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()

    def add(self, sample: Mapping[str, float]) -> None:
        """Take a sample. Its `time` is in seconds, and never less than the last one's."""
        elapsed_s, value = sample["time"], sample[_PEAK]
        if elapsed_s < self._next_s:
            if self._highest is None or value > self._highest[_PEAK]:
                self._highest = sample
            return
        self._next_s = elapsed_s + max(_SHORTEST_S, elapsed_s / _LINES_PER_AGE)
        self._write_peak(value)
        self._write(sample)

    def _write_peak(self, value: float) -> None:
        highest, self._highest = self._highest, None
        if highest and highest[_PEAK] > _HIGHER * max(self._last, value):
            self._write(highest)

    def _write(self, sample: Mapping[str, float]) -> None:
        self._last = sample[_PEAK]
        if self._file:
            with contextlib.suppress(OSError):
                self._file.write(json.dumps(sample) + "\n")
