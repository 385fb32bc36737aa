"""A TOML file that knows the line of each of its keys, for messages that say where."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10
    import tomli as tomllib

Where = tuple[str | int, ...]  # keys and indices from the top
_PLACE = re.compile(
    r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)$", re.S
)


class Source:
    """The text of a suite file and what it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = _read(path)
        self._lines = self.text.split("\n")
        try:
            self.data: dict[str, Any] = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise self._syntax(str(error)) from None
        except RecursionError:
            raise UsageError(f"{path}: not TOML: too deeply nested") from None
        except ValueError as error:  # a number of thousands of digits
            raise UsageError(f"{path}: {error}") from None

    def error(self, where: Where, text: str) -> UsageError:
        """Make the error for what is wrong at a place."""
        return UsageError(f"{self.path}:{self.line(where)}: {text}")

    def line(self, where: Where) -> int:
        """Return the line on which the value at a place begins, from 1.

        The shortest beginning of the file that is TOML and has the value ends with it. That costs
        a parse for each line, and is right for every way in which TOML can write a key.
        """
        begin = 0
        for end in range(1, len(self._lines) + 1):
            try:
                data = tomllib.loads("\n".join(self._lines[:end]))
            except tomllib.TOMLDecodeError:
                continue  # in the middle of a value of several lines
            if _holds(data, where):
                return self._first_of(begin, end)
            begin = end
        return 1

    def refuse_unknown(self, where: Where, known: Collection[str]) -> None:
        """Raise for a key that is not known, with the known one that it resembles."""
        table = self.at(where)
        assert isinstance(table, Mapping)
        for key in table:
            if key not in known:
                raise self.error((*where, key), f"unknown key {key!r}{near(key, known)}")

    def at(self, where: Where) -> Any:
        """Return the value at a place."""
        value: Any = self.data
        for step in where:
            value = value[step]
        return value

    def _first_of(self, begin: int, end: int) -> int:
        for number in range(begin, end):
            if self._lines[number].strip() and not self._lines[number].lstrip().startswith("#"):
                return number + 1
        return end

    def _syntax(self, text: str) -> UsageError:
        found = _PLACE.match(text)
        if not found:
            return UsageError(f"{self.path}: not TOML: {text}")
        line = found["line"] or len(self.text.rstrip("\n").split("\n"))
        return UsageError(f"{self.path}:{line}: not TOML: {found['what']}")


def near(word: str, known: Collection[str]) -> str:
    """Say what was perhaps meant, or what there is."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are: {', '.join(sorted(known))}" if known else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _holds(data: Any, where: Sequence[str | int]) -> bool:
    for step in where:
        if isinstance(step, int):
            if not isinstance(data, list) or len(data) <= step:
                return False
        elif not isinstance(data, dict) or step not in data:
            return False
        data = data[step]
    return True
