"""Standard output, whose write errors (a full disk) have their own exception class."""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False  # as type checkers read it: `typing` is a third of `perfrun --version`
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TextIO


class OutputError(OSError):
    """Standard output cannot be written; a closed pipe stays a BrokenPipeError."""


@contextlib.contextmanager
def named_failures() -> Iterator[None]:
    """Make standard output raise OutputError in this context, and flush it at the end.

    A reader that closes the pipe before the last lines (`| head`) is no error.
    """
    stream = sys.stdout
    watched = _Watched(stream)
    sys.stdout = watched
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
        sys.stdout = stream


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
