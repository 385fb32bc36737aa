"""What a run, and whoever makes runs, needs of what shows them; `reports.terminal` is one.

Show what a running benchmark prints, from the files it prints into.
"""

from __future__ import annotations

import codecs
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from perfrun.summary.document import TrialResult


class Screen(Protocol):
    """What a run shows while it goes on."""

    def prepare(self) -> None:
        """Load what showing needs, while there is time."""

    def note(self, text: str) -> None:
        """One line about what happens."""

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        """A trial begins."""

    def stdout(self, text: str) -> None:
        """The benchmark printed something."""

    def stderr(self, text: str) -> None:
        """The benchmark printed something to its standard error."""

    def trial_finished(self, result: TrialResult) -> None:
        """A trial has ended, and its summary is on disk."""

    def profile_started(self, method: str, kind: str) -> None:
        """An extra trial under a profiler begins."""

    def profile_finished(self, result: TrialResult) -> None:
        """An extra trial under a profiler has ended."""


_PERIOD_S = 0.1  # while something is printed
_LONGEST_PERIOD_S = 0.5  # after a while of silence: each look takes time from the benchmark
_CHUNK_BYTES = 1 << 16


class Follower(threading.Thread):
    """Passes the growth of files on to writers, as text. Never fails: it only shows."""

    def __init__(self, writers: dict[Path, Callable[[str], None]]) -> None:
        super().__init__(name="perfrun-follower", daemon=True)
        self._writers = writers
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Follow until `finish` is called; then pass on the rest."""
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
        """Pass on what is there and stop."""
        self._stop_event.set()
        self.join()


def _pass_on(
    file: BinaryIO, decoder: codecs.IncrementalDecoder, write: Callable[[str], None]
) -> bool:
    """Write what is new; say whether there was anything."""
    grown = False
    # A terminal that has gone away (OSError), or a stream closed under us, stops no benchmark.
    with contextlib.suppress(OSError, ValueError):
        while data := file.read(_CHUNK_BYTES):
            grown = True
            write(decoder.decode(data))
    return grown


def _end(decoder: codecs.IncrementalDecoder, write: Callable[[str], None]) -> None:
    """Write what stands for a character that was begun and never finished."""
    with contextlib.suppress(OSError, ValueError):
        rest = decoder.decode(b"", final=True)
        if rest:
            write(rest)
