"""Show what a running benchmark prints, from the files it prints into."""

from __future__ import annotations

import codecs
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_PERIOD_S = 0.1
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
            while followed:
                last = self._stop_event.wait(_PERIOD_S)
                for file, decoder, write in followed:
                    _pass_on(file, decoder, write)
                if last:
                    return

    def finish(self) -> None:
        """Pass on what is there and stop."""
        self._stop_event.set()
        self.join()


def _pass_on(
    file: BinaryIO, decoder: codecs.IncrementalDecoder, write: Callable[[str], None]
) -> None:
    # A terminal that has gone away (OSError), or a stream closed under us, stops no benchmark.
    with contextlib.suppress(OSError, ValueError):
        while data := file.read(_CHUNK_BYTES):
            write(decoder.decode(data))
