"""The parser of a command, the flags that several commands have, and values as people type them.

A flag is declared once, with its help and its check. Errors are one line: UsageError.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from perfrun.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ("table", "json")
_MOST_DIGITS = 18  # it fits into 64 bits
_MOST_SHOWN = 80  # characters of a value
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class CommandParser(argparse.ArgumentParser):
    """argparse whose errors are UsageErrors that begin with the command's name (`prog`)."""

    def __init__(self, prog: str, text: str | None, epilog: str, usage: str | None = None) -> None:
        super().__init__(
            prog, usage, text, epilog, formatter_class=HelpFormatter, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")

    def flag(
        self,
        name: str,
        metavar: str,
        text: str,
        parse: Callable[[str, str], object] | None = None,
        default: object = None,
        **options: Any,
    ) -> None:
        """Declare a flag with a value by name, placeholder and help; empty means not given.

        `parse` makes a value of what is typed and the flag's name. Its UsageError is what the user
        reads: argparse puts no words around it.
        """
        if parse:
            options["type"] = lambda typed: parse(typed, name) if typed else default
        self.add_argument(name, metavar=metavar, help=text, default=default, **options)

    def switch(self, name: str, text: str) -> None:
        """Declare a flag without a value."""
        self.add_argument(name, action="store_true", help=text)

    def add_workspace(self) -> None:
        """Declare `--workspace` of a command that reads results."""
        self.flag("--workspace", "DIR", "whose results are read (default ./workspace)")

    def add_store(self) -> None:
        """Declare `--store` of a command that reads an index."""
        text = "index to use instead of WORKSPACE/perfrun.db: a file or postgresql+psycopg://..."
        self.flag("--store", "URL|FILE", text)

    def add_format(self, words: Sequence[str] = FORMATS) -> None:
        """Declare `--format`; the first word is the default."""
        parse = partial(parse_word, words=words)
        self.flag("--format", "|".join(words), "what to print on stdout", parse, words[0])

    def add_clone(self) -> None:
        """Declare `--clone` of a command that reads series."""
        text = "full clone of the checkout NAME: points in the order of its commits"
        parse = partial(parse_clone, flag="--clone")
        self.flag("--clone", "NAME=DIR", text, default=[], action="append", type=parse)

    def add_pair_rules(self, min_effect: float, what: str = "pair") -> None:
        """Declare the flags of a command that runs pairs, or rounds, until it is decided."""
        text = f"changes surely below this are none (default {100 * min_effect:g}%%)"
        self.flag("--min_effect", "PERCENT", text, parse_share, min_effect)
        self.flag("--time_budget", "SECONDS", f"begin no {what} beyond (20m, 1h)", parse_duration)
        seed = partial(parse_whole, least=0)
        self.flag("--seed", "N", "of the order (default: random, recorded)", seed)


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


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags of the command, and those of the benchmark, which follow `--`."""
    at = list(words).index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def parse_shell_words(text: str, flag: str) -> list[str]:
    """Split flags that are the value of a flag as a shell does. Raises UsageError."""
    import shlex  # no run of its own needs it

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{flag}={text!r}: {str(error).lower()}") from None


def parse_workspace(text: str | None) -> Path:
    """The absolute path of the workspace. Raises UsageError."""
    from pathlib import Path  # `perfrun --help` does without

    try:
        return Path(text or "workspace").absolute()
    except FileNotFoundError:
        raise UsageError("the current folder has been removed; change to another one") from None


def parse_word(text: str | None, flag: str, words: Sequence[str]) -> str:
    """One of some words, the first one when the flag is not given. Raises UsageError."""
    if text and text not in words:
        known = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
        raise UsageError(f"{flag}={shown(text)}: must be {known}")
    return text or words[0]


def parse_clone(word: str, flag: str) -> tuple[str, Path]:
    """`NAME=DIR`. Raises UsageError."""
    from pathlib import Path

    name, _, folder = word.partition("=")
    if not name or not Path(folder).is_dir() or not folder:
        raise UsageError(f"{flag}={word}: must be NAME=DIR, the folder of a git repository")
    return name, Path(folder).absolute()


def parse_whole(text: str | None, flag: str, least: int = 1) -> int | None:
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


def parse_share(text: str | None, flag: str) -> float | None:
    """`2%` or `0.02`; None when not given."""
    if not text:
        return None
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"{flag}={text}: write 1% or 0.01") from None
    if not 0 <= share < 1:
        raise UsageError(f"{flag}={text}: must be at least 0 and below 100%")
    return share


def parse_duration(text: str | None, flag: str) -> float | None:
    """Seconds, or a number with s, m, h or d."""
    if not text:
        return None
    found = re.fullmatch(r"(.*?)\s*(s|m|min|h|d|)", text.strip(), re.DOTALL)
    try:
        seconds = float(found[1]) * _UNITS[found[2]] if found else math.nan
    except ValueError:
        raise UsageError(f"{flag}={shown(text)}: write seconds, or 20m, 1h, 1d") from None
    if not 0 < seconds < math.inf:
        raise UsageError(f"{flag}={shown(text)}: must be more than 0 seconds")
    return seconds


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
