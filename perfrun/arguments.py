"""The parser of a command, and of values that several have; errors are one line: UsageError."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from perfrun.errors import UsageError

_MOST_DIGITS = 18  # it fits into 64 bits
_MOST_SHOWN = 80  # characters of a value


class CommandParser(argparse.ArgumentParser):
    """argparse whose errors are UsageErrors that begin with the command's name (`prog`)."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's, which would import `shutil` for the width of the terminal: 3 ms of every run."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"width": _columns() - 2, **options})


def _columns() -> int:
    """How wide the terminal is, by the rules of `shutil.get_terminal_size`."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


def parse_whole(text: str | None, flag: str, least: int) -> int | None:
    """Parse a whole number of a flag; None when it is not given. Raises UsageError."""
    if not text:
        return None
    plain = text.strip()
    if not re.fullmatch(r"\d+", plain, re.ASCII):
        raise UsageError(f"{flag}={shown(text)}: must be a whole number, {least} or more")
    if len(plain.lstrip("0")) > _MOST_DIGITS:
        raise UsageError(f"{flag}={shown(text)}: is too large a number")
    if int(plain) < least:
        raise UsageError(f"{flag}={shown(text)}: must be a whole number, {least} or more")
    return int(plain)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that somebody may have meant; None when none is like it."""
    from difflib import get_close_matches  # only a mistake pays for it

    return next(iter(get_close_matches(word, list(known), n=1)), None)


def parse_regex(pattern: str, what: str) -> re.Pattern[str]:
    """Compile a regular expression; `what` begins the message. Raises UsageError."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        why = str(error)
    except RecursionError:
        why = "too deeply nested"
    raise UsageError(f"{what}: {shown(pattern)!r} is not a regular expression: {why}")


def shown(text: str) -> str:
    """A value of the command line as a message has it: on one line, and not a long one."""
    told = text if text.isprintable() else repr(text)
    return told if len(told) <= _MOST_SHOWN else f"{told[:_MOST_SHOWN]}..."
