"""Progress of a run: the interface of whatever shows it, and the output of the benchmarks.

`reports.terminal` implements the interface.
"""

from __future__ import annotations

import codecs
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from perfrun.summary.document import TrialResult

_PERIOD_S = 0.1  # while something is printed
_LONGEST_PERIOD_S = 0.5  # after a silence: each poll takes time from the benchmark
_CHUNK_BYTES = 1 << 16


class Screen(Protocol):
    """The interface through which a run shows its progress."""

    def prepare(self) -> None:
        """Import what is needed to show a run, before a benchmark runs."""

    def note(self, text: str) -> None:
        """Show one line of information."""

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        """Show that a trial begins."""

    def stdout(self, text: str) -> None:
        """Show text that the benchmark printed."""

    def stderr(self, text: str) -> None:
        """Show text that the benchmark printed to standard error."""

    def trial_finished(self, result: TrialResult) -> None:
        """Show that a trial has ended; its summary is on disk."""

    def profile_started(self, method: str, kind: str) -> None:
        """Show that an extra trial under a profiler begins."""

    def profile_finished(self, result: TrialResult) -> None:
        """Show that an extra trial under a profiler has ended."""


class Follower(threading.Thread):
    """Thread that passes new text in files on to writers. It never fails a run."""

    def __init__(self, writers: dict[Path, Callable[[str], None]]) -> None:
        super().__init__(name="perfrun-follower", daemon=True)
        self._writers = writers
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Pass on new text until `finish` is called, then the rest."""
        with contextlib.ExitStack() as stack:
            followed = []
            for path, write in self._writers.items():
                with contextlib.suppress(OSError):
                    file = stack.enter_context(path.open("rb"))
                    decoder = codecs.getincrementaldecoder("utf-8")("replace")
                    followed.append((file, decoder, write))
            period_s = _PERIOD_S
            while followed:
                last = self._stop_event.wait(period_s)
                grown = [_pass_on(file, decoder, write) for file, decoder, write in followed]
                if last:
                    for _, decoder, write in followed:
                        _end(decoder, write)
                    return
                period_s = _PERIOD_S if any(grown) else min(1.5 * period_s, _LONGEST_PERIOD_S)

    def finish(self) -> None:
        """Pass on the rest and stop."""
        self._stop_event.set()
        self.join()


def _pass_on(
    file: BinaryIO, decoder: codecs.IncrementalDecoder, write: Callable[[str], None]
) -> bool:
    """Write the new text; True when there was any."""
    grown = False
    # A terminal that is gone (OSError) or a closed stream (ValueError) stops no benchmark.
    with contextlib.suppress(OSError, ValueError):
        while data := file.read(_CHUNK_BYTES):
            grown = True
            write(decoder.decode(data))
    return grown


def _end(decoder: codecs.IncrementalDecoder, write: Callable[[str], None]) -> None:
    """Write a replacement for a character that is incomplete at the end."""
    with contextlib.suppress(OSError, ValueError):
        rest = decoder.decode(b"", final=True)
        if rest:
            write(rest)
