"""The parser of a command, and of values that several have; errors are one line: UsageError."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from perfrun.errors import UsageError

_MOST_DIGITS = 18  # it fits into 64 bits
_MOST_SHOWN = 80  # characters of a value


class CommandParser(argparse.ArgumentParser):
    """argparse whose errors are UsageErrors that begin with the command's name (`prog`)."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


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
