"""Progress of a run: the interface of whatever shows it, and the output of the benchmarks.

`reports.terminal` implements the interface.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from perfrun.summary.document import TrialResult
from perfrun.untrusted import Refused, opened

_PERIOD_S = 0.1  # while something is printed
_LONGEST_PERIOD_S = 0.5  # after a silence: each poll takes time from the benchmark
_CHUNK_BYTES = 1 << 16
_AT_ONCE_BYTES = 1 << 20  # of a stream in one period: ten megabytes a second
_AT_END_BYTES = 1 << 24  # that are still passed on when the trial has ended
_LAST_BYTES = 1 << 16  # passed on where there are more: there the cause of a failure stands
_MOST_BYTES = 1 << 28  # of a stream in all
_BLOCK_BYTES = 512  # of st_blocks
_MOST_HOLES = 100  # of a sparse file, in one period


class Screen(Protocol):
    """The interface through which a run shows its progress."""

    def prepare(self) -> None:
        """Import what is needed to show a run, before a benchmark runs."""

    def note(self, text: str) -> None:
        """Show one line of information."""

    def problem(self, text: str) -> None:
        """Show one line about something that went wrong; a quiet screen shows it, too."""

    is_live: bool  # somebody watches what goes on

    def outlook(
        self,
        *,
        left_s: float | None,
        half_width: float | None,
        phase: Callable[[], str | None] | None = None,
    ) -> None:
        """Take what is known when a trial begins: the time left, this method's interval, relative.

        `phase` reads the phase that the trial has reached.
        """

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        """Show that a trial begins."""

    def stdout(self, text: str) -> None:
        """Show text that the benchmark printed."""

    def stderr(self, text: str) -> None:
        """Show text that the benchmark printed to standard error."""

    def trial_finished(self, result: TrialResult) -> None:
        """Show that a trial has ended; its summary is on disk."""

    def trial_ended(self, result: TrialResult) -> None:
        """Take in that a trial has ended of which a line about its pair tells."""

    def pair_finished(self, number: int, most: int, method: str, text: str) -> None:
        """Show how the pairs of a method stand after so many, of so many at most."""

    def profile_started(self, method: str, kind: str) -> None:
        """Show that an extra trial under a profiler begins."""

    def profile_finished(self, result: TrialResult) -> None:
        """Show that an extra trial under a profiler has ended."""


class Follower(threading.Thread):
    """Thread that passes new text in files on to writers. It never fails a run, nor holds it up.

    A benchmark can write faster than a terminal shows, or make its output a sparse file of
    terabytes: holes are skipped, and what is too much is left out, with a line that says so.
    """

    def __init__(self, writers: dict[Path, Callable[[str], None]]) -> None:
        super().__init__(name="perfrun-follower", daemon=True)
        self._writers = writers
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Pass on new text until `finish` is called, then the rest."""
        with contextlib.ExitStack() as stack:
            followed = []
            for path, write in self._writers.items():
                with contextlib.suppress(OSError, Refused):
                    file, _ = stack.enter_context(opened(path))
                    followed.append(_Followed(file, path, write))
            period_s = _PERIOD_S
            while followed:
                last = self._stop_event.wait(period_s)
                if last:
                    for one in followed:
                        one.end()
                    return
                grown = [one.pass_on(_AT_ONCE_BYTES) for one in followed]
                period_s = _PERIOD_S if any(grown) else min(1.5 * period_s, _LONGEST_PERIOD_S)

    def finish(self) -> None:
        """Pass on the rest and stop."""
        self._stop_event.set()
        self.join()


class _Followed:
    """One file, and how far it has been passed on."""

    def __init__(self, file: int, path: Path, write: Callable[[str], None]) -> None:
        self._file, self._path, self._write = file, path, write
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = 0
        self._left = _MOST_BYTES

    def pass_on(self, most_bytes: int) -> bool:
        """Write new text, up to so many bytes; True when there was any."""
        grown = False
        most_bytes = min(most_bytes, self._left)
        # A terminal that is gone (OSError) or a closed stream (ValueError) stops no benchmark.
        with contextlib.suppress(OSError, ValueError):
            for _ in range(_MOST_HOLES):
                end = self._to_data()
                while most_bytes > 0 and self._at < end:
                    size = min(_CHUNK_BYTES, most_bytes, end - self._at)
                    data = os.pread(self._file, size, self._at)
                    if not data:  # it was cut short meanwhile
                        return grown
                    grown = True
                    self._at += len(data)
                    self._left -= len(data)
                    most_bytes -= len(data)
                    self._write(self._decoder.decode(data))
                if most_bytes <= 0 or self._at >= self._size():
                    break
        return grown

    def end(self) -> None:
        """Write the rest or, of too much, its end, and a replacement for half a character."""
        with contextlib.suppress(OSError, ValueError):
            if self._rest() > min(_AT_END_BYTES, self._left):
                self._skip_to_end()
            self.pass_on(_AT_END_BYTES)
            if self._to_data_at() < self._size():  # after very many holes
                self._skip_to_end()
                self.pass_on(_AT_END_BYTES)
            rest = self._decoder.decode(b"", final=True)
            if rest:
                self._write(rest)

    def _skip_to_end(self) -> None:
        begin = max(self._at, self._size() - _LAST_BYTES)
        skipped, self._at, self._left = begin - self._at, begin, _LAST_BYTES
        self._write(f"\nperfrun: {skipped} bytes are not shown here; they are in {self._path}\n")

    def _to_data(self) -> int:
        """Go past a hole in the file; return where the next one begins."""
        self._at = self._to_data_at()
        try:
            return os.lseek(self._file, self._at, os.SEEK_HOLE)
        except (OSError, AttributeError):
            return self._size()

    def _to_data_at(self) -> int:
        try:
            return os.lseek(self._file, self._at, os.SEEK_DATA)
        except AttributeError:  # a system that does not tell
            return self._at
        except OSError as error:
            return max(self._at, self._size()) if error.errno == errno.ENXIO else self._at

    def _rest(self) -> int:
        """Return the bytes that are still to be passed on; a file has no more than its blocks."""
        status = os.fstat(self._file)
        return min(status.st_size - self._at, status.st_blocks * _BLOCK_BYTES)

    def _size(self) -> int:
        return os.fstat(self._file).st_size
