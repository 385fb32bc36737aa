"""Take values out of a suite file, each checked for its kind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.nightly.source import Source, Where

Keys = Mapping[str, tuple[str, tuple[type, ...]]]  # key -> flag of a run, kinds of value
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_NAMES: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


class Values:
    """The values of a source. Each method raises UsageError with the line of what is wrong."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.folder = Path(os.path.abspath(source.path)).parent  # noqa: PTH100 - no links resolved

    def take(self, where: Where, key: str, *kinds: type) -> Any:
        """The value of a key, or None where it is not given."""
        table = self.source.at(where)
        if key not in table:
            return None
        value = table[key]
        if isinstance(value, str) and "\0" in value:  # neither a path nor a command line has one
            raise self.source.error((*where, key), f"{key}: holds a null character")
        # A bool is an int to Python, and a mistake here.
        if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
            return value
        wanted = " or ".join(_NAMES[kind] for kind in kinds)
        raise self.source.error((*where, key), f"{key}: must be {wanted}, not {_shown(value)}")

    def path(self, where: Where, key: str) -> Path | None:
        text = self.take(where, key, str)
        if text == "":
            raise self.source.error((*where, key), f"{key}: names no path")
        return None if text is None else self.folder / Path(text).expanduser()

    def judged(self, where: Where, parse: Callable[[], Any]) -> Any:
        """Call a parser of the command line, and say of its error where it is in the file."""
        try:
            return parse()
        except UsageError as error:
            raise self.source.error(where, _without_flag(str(error))) from None

    def flags(self, where: Where, keys: Keys) -> tuple[tuple[str, str], ...]:
        flags = []
        for key, (flag, kinds) in keys.items():
            value = self.take(where, key, *kinds)
            if isinstance(value, list):
                value = ",".join(self.texts((*where, key)))
            if value is not None and value != "":
                flags.append((flag, str(value)))
        return tuple(flags)

    def texts(self, where: Where) -> list[str]:
        for number, item in enumerate(self.source.at(where)):
            if not isinstance(item, str):
                raise self.source.error((*where, number), f"{where[-1]}: {item!r} is not text")
            if "\0" in item:
                raise self.source.error((*where, number), f"{where[-1]}: holds a null character")
        return list(self.source.at(where))

    def tables(self, key: str, *, needed: bool) -> int:
        """How many `[[key]]` there are."""
        value = self.source.data.get(key)
        if value is None and needed:
            raise UsageError(f"{self.source.path}: has no [[{key}]]")
        if value is None:
            return 0
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.source.error((key,), f"{key}: write a table for each: [[{key}]]")
        if needed and not value:
            raise self.source.error((key,), f"{key}: is empty")
        return len(value)

    def needed(self, where: Where, key: str) -> str:
        value = self.take(where, key, str)
        if not value:
            at = (*where, key) if value == "" else where
            raise self.source.error(at, f"[[{where[0]}]] needs {key} = ...")
        return str(value)

    def expanded(self, key: str) -> str | None:
        """A text in which `${NAME}` is an environment variable: secrets stay out of the file."""
        text: str | None = self.take((), key, str)
        if text is None:
            return None
        for name in _VARIABLE.findall(text):
            if name not in os.environ:
                raise self.source.error((key,), f"{key}: the variable {name} is not set")
        return _VARIABLE.sub(lambda found: os.environ[found[1]], text) or None


def _without_flag(text: str) -> str:
    return re.sub(r"^--\w+(: |=)", "", text)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
