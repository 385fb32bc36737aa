"""The standard streams: what perfrun writes to them is cleaned, and a full disk has its own error.

Nothing that others wrote reaches a terminal or a log with an escape sequence, whatever a command
forgets: each text passes `perfrun.shown.block` here. What is drawn, and the output of a benchmark,
goes to the stream below (`as_is`).
"""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False  # as type checkers read it: `typing` is a third of `perfrun --version`
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TextIO


_SHORTEST = 20  # characters; less can hold no secret that is known by its form


class OutputError(OSError):
    """Standard output cannot be written; a closed pipe stays a BrokenPipeError."""


@contextlib.contextmanager
def named_failures() -> Iterator[None]:
    """Clean what is written in this context; standard output raises OutputError and is flushed.

    A reader that closes the pipe before the last lines (`| head`) is no error.
    """
    stream, error_stream = sys.stdout, sys.stderr
    watched = _Watched(stream)
    sys.stdout, sys.stderr = _Clean(watched), _Clean(error_stream)
    try:
        yield
        _write_rest(watched)
    except SystemExit:  # --help, --version
        _write_rest(watched)
        raise
    except BaseException:
        try:
            watched.flush()
        except OSError:
            give_up_stdout()  # the first error is the one to report
        raise
    finally:
        sys.stdout, sys.stderr = stream, error_stream


def give_up_stdout() -> None:
    """Point standard output at the null device, so that Python's flush at exit prints no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_rest(watched: _Watched) -> None:
    try:
        watched.flush()
    except BrokenPipeError:
        give_up_stdout()
    if watched.failure is not None:  # a caller has caught it
        raise watched.failure


class _Clean:
    """A text stream to which only clean text is written; `as_is` takes any."""

    def __init__(self, as_is: Any) -> None:
        self.as_is = as_is

    def write(self, text: str) -> int:
        if len(text) > _SHORTEST or not text[:-1].isprintable():
            from perfrun.shown import block  # not for `perfrun --version`

            text = block(text)
        written: int = self.as_is.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.as_is, name)


class _Watched:
    """A text stream that raises OutputError and remembers the first one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OutputError | None = None

    def write(self, text: str) -> int:
        with self._named():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._named():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            failure = OutputError(error.errno, error.strerror)
            self.failure = self.failure or failure
            raise failure from None
