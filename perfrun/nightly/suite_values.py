"""Read a TOML file: its values, checked against a schema, and their lines for errors."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import sys
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfrun.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10
    import tomli as tomllib

Where = tuple[str | int, ...]  # keys and indices from the top
T = TypeVar("T")
_MOST_BYTES = 16 * 2**20
# The tokens of TOML that can contain the end of a line, and those that show a statement's end.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'|#[^\n]*|"
    r"[][{}\n]",
    re.S,
)
_KEY = re.compile(r'(?:"(?:\\.|[^"\\])*"|' + r"'[^']*'|[^\"'=#])+=")
# These parse the messages of msgspec: the place below the checked value, and the mistake there.
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_FIELD = re.compile(r"(unknown|required) field `(.*)`", re.S)
_LIMIT = re.compile(r"Expected `[^`]+` ([<>])= (-?\d+)")
_KINDS = re.compile(r"Expected `([^`]+)`, got")
_NAMES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


class TomlFile:
    """The text of a file and its values. Methods raise UsageError: `suite.toml:12: ...`."""

    def __init__(self, path: Path, patterns: Mapping[str, str]) -> None:
        self.path = path
        self.patterns = patterns  # of the schema, with the message for a text that does not match
        self.folder = Path(os.path.abspath(path)).parent  # noqa: PTH100 - no links resolved
        self.text = _read(path)
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()
        try:
            self.data: dict[str, Any] = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"at line (\d+)", str(error))
            line = found[1] if found else len(self.text.rstrip("\n").split("\n"))
            raise UsageError(f"{path}:{line}: not TOML: {error}") from None
        except RecursionError:
            raise UsageError(f"{path}: not TOML: too deeply nested") from None
        except ValueError as error:  # a number of thousands of digits
            raise UsageError(f"{path}: {error}") from None

    def at(self, where: Where) -> Any:
        """Return the value at a place."""
        value: Any = self.data
        for step in where:
            value = value[step]
        return value

    def converted(self, where: Where, kind: type[T]) -> T:
        """Return the value at a place, converted to the type of the schema."""
        try:
            return msgspec.convert(self.at(where), kind)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            steps = tuple(int(index) if index else key for key, index in _STEP.findall(path))
            raise self._mismatch((*where, *steps), text, _known(kind, steps)) from None

    def refuse(self, is_wrong: object, where: Where, text: str) -> None:
        """Raise the error for a place if its value is wrong."""
        if is_wrong:
            raise self.error(where, text)

    def error(self, where: Where, text: str) -> UsageError:
        """Return the error for a place."""
        line = text.replace("\n", "\\n").replace("\r", "\\r")  # keys can hold them
        return UsageError(f"{self.path}:{self.line(where)}: {line}")

    def line(self, where: Where) -> int:
        """Return the line of a key or a table, or of the next one that contains it."""
        found: Any = self._lines
        for step in where:
            if isinstance(found, int) or (isinstance(found, dict) and step not in found):
                break
            found = found[step]
        while not isinstance(found, int):  # a table: its header, or its first key
            found = next(iter(found.values())) if isinstance(found, dict) else found[0]
        return found

    @cached_property
    def _lines(self) -> dict[str, Any]:
        """The tables of the file, with the line of each value in its place.

        The TOML reader makes them from the same keys and headers. The line of a header is under
        the file's digest, a key that the file cannot have.
        """
        statements, begin, depth, line = [f"{self.digest} = 1"], 0, 0, 1
        for token in _TOKEN.finditer(self.text + "\n"):
            depth += (token[0] in "[{") - (token[0] in "]}")
            if token[0] != "\n" or depth:
                continue
            statement = self.text[begin : token.end()]
            if statement.lstrip().startswith("["):
                statements.append(f"{statement}\n{self.digest} = {line}")
            elif key := _KEY.match(statement):
                statements.append(f"{key[0]} {line}")
            begin, line = token.end(), line + statement.count("\n")
        return tomllib.loads("\n".join(statements))

    def _mismatch(self, where: Where, text: str, known: Collection[str]) -> UsageError:
        """Return msgspec's finding as an error in the words of a suite file."""
        field, kinds, limit = (one.search(text) for one in (_FIELD, _KINDS, _LIMIT))
        key = next((step for step in reversed(where) if isinstance(step, str)), "")
        if field and field[1] == "unknown":
            text = f"unknown key {field[2]!r}{near(field[2], known)}"
            return self.error((*where, field[2]), text)
        if field and not where:
            return UsageError(f"{self.path}: has no [[{field[2]}]]")
        if field:
            return self.error(where, f"[[{key}]] needs {field[2]} = ...")
        if limit:
            more = "more" if limit[1] == ">" else "less"
            return self.error(where, f"{key}: must be {limit[2]} or {more}")
        if not kinds:
            what = [words for regex, words in self.patterns.items() if repr(regex) in text]
            return self.error(where, f"{key}: {what[0] if what else 'is empty'}")
        if known and (kinds[1] == "array" or isinstance(where[-1], int)):
            return self.error(where, f"{key}: write a table for each: [[{key}]]")
        found = kinds[1].replace("int | float", "float").split(" | ")
        wanted = " or ".join(_NAMES[kind] for kind in found if kind in _NAMES)
        value = _shown(self.at(where))
        if isinstance(where[-1], int):
            return self.error(where, f"{key}: {value} is not {wanted}")
        return self.error(where, f"{key}: must be {wanted}, not {value}")


def near(word: str, known: Collection[str]) -> str:
    """Return the word that was perhaps meant, or all that there are."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are: {', '.join(sorted(known))}" if known else ""


def _known(kind: Any, steps: Where) -> tuple[str, ...]:
    """Return the keys of the table at a place in a schema."""
    found: Any = msgspec.inspect.type_info(kind)
    for step in steps:
        if isinstance(step, str):
            found = {field.name: field.type for field in getattr(found, "fields", ())}.get(step)
            tables = [one for one in getattr(found, "types", ()) if hasattr(one, "fields")]
            found = tables[0] if tables else getattr(found, "item_type", found)
    return tuple(field.name for field in getattr(found, "fields", ()))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path}: is larger than 16 MiB; name a suite file")
    try:
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text") from None


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return _NAMES["object" if isinstance(value, dict) else "array"]
    try:
        text = repr(value)
    except ValueError:  # thousands of digits
        return _NAMES["int"]
    return text if len(text) <= 60 else text[:57] + "..."
