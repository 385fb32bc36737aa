"""Standard output: a disk that is full under it is another thing than any other OSError."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class OutputError(OSError):
    """Standard output takes no more; a reader that has gone stays a BrokenPipeError."""


@contextlib.contextmanager
def named_failures() -> Iterator[None]:
    """Make standard output raise OutputError, and write what is left in it at the end.

    A reader that goes away before the last lines (`| head`) changes nothing.
    """
    stream = sys.stdout
    watched: Any = _Watched(stream)
    sys.stdout = watched
    try:
        yield
        _write_rest(watched)
    except SystemExit:  # --help, --version
        _write_rest(watched)
        raise
    finally:
        sys.stdout = stream


def give_up_stdout() -> None:
    """Point standard output at the null device, so that Python's flush at exit says nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_rest(stream: TextIO) -> None:
    try:
        stream.flush()
    except BrokenPipeError:
        give_up_stdout()


class _Watched:
    """A text stream whose failures have a name of their own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _named():
            return self._stream.write(text)

    def flush(self) -> None:
        with _named():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from None
