"""Standard output that cannot be written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TextIO

import pytest

from perfrun.errors import UsageError
from perfrun.reports.output import OutputError, named_failures


@pytest.fixture
def full() -> Iterator[TextIO]:
    # Written out at each line; closing writes out what is left, which fails as well.
    with suppress(OSError), Path("/dev/full").open("w", buffering=1) as stream:
        yield stream


def passes_over_it() -> None:
    with suppress(OSError):
        sys.stdout.write("a table\n")


def begins_and_gives_up() -> None:
    sys.stdout.write("begun")  # stays in the buffer
    raise UsageError("no such thing")


def within(work: Callable[[], None], stream: TextIO) -> None:
    with redirect_stdout(stream):
        try:
            with named_failures():
                work()
        finally:
            assert sys.stdout is stream


def test_a_failure_that_somebody_passes_over_is_told_at_the_end(full: TextIO) -> None:
    with pytest.raises(OutputError, match="No space left"):
        within(passes_over_it, full)


def test_what_went_wrong_first_is_what_is_told(
    full: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[bool] = []
    monkeypatch.setattr("perfrun.reports.output.give_up_stdout", lambda: given_up.append(True))
    with pytest.raises(UsageError, match="no such thing"):
        within(begins_and_gives_up, full)
    assert given_up == [True]
