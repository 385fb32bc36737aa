"""Call a target with one input; it may raise what it names, and takes at most a second."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from .target import Target

LONGEST_S = 1.0  # of the processor, which load of the machine does not lengthen


class FuzzError(AssertionError):
    """A target raised what it does not name, or took too long; the text has the input."""


def check(target: Target, data: bytes) -> bool:
    """Call the target; return True when it accepted the input. Raises FuzzError."""
    try:
        with _limited():
            target.call(data)
    except target.errors as error:
        line = getattr(error, "line", str(error))
        try:
            line.encode()
        except UnicodeEncodeError:
            raise FuzzError(f"{target.name}: a message that no file takes, for {data!r}") from error
        return False
    except Exception as error:
        raise FuzzError(f"{target.name}: {type(error).__name__}: {error}, for {data!r}") from error
    return True


class _TooLongError(BaseException):
    """No `except Exception` of a parser may catch it."""


@contextmanager
def _limited() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
    try:
        yield
    except _TooLongError as error:
        raise TimeoutError(f"longer than {LONGEST_S:g} s of the processor") from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
