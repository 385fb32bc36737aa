"""Check what a stranger said against a table of its fields: only declared values come out.

A document is checked field by field. A wrong field is left out, and a note says which one and why;
a document that lacks what it is about is refused as a whole (`Wrong`). A check is a function of
(value, place, notes) that returns the value or raises `Wrong`; the functions here make checks.

Why not msgspec, which checks the suites: its import takes 20 ms, a twelfth of a run of one no-op,
and it refuses a whole document for its first wrong field, so that the figures would be lost, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

MOST_NOTES = 20  # on one document
LONGEST_NOTE = 300  # characters
LONGEST_TEXT = 1000  # characters of a text, where nothing else is said
LARGEST_COUNT = 2**62  # sums of a few still fit 64 bits
LARGEST_SIZE = 2**50  # bytes: more than any memory; a thousand of them still fit 64 bits
LONGEST_S = 1e10  # seconds: three hundred years
_SHOWN = 40  # characters of a wrong value


class Wrong(ValueError):  # noqa: N818 - it is an answer, not a mistake of ours
    """A value that is not what its field wants; the text goes on from the field's name."""


class Notes:
    """Notes on one document, `name`: on what was left out of it. Their number is bounded."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: list[str] = []
        self._more = 0

    def add(self, text: str) -> None:
        """Add a note."""
        if len(self._lines) < MOST_NOTES:
            self._lines.append(short(f"{self._name}: {text}"))
        else:
            self._more += 1

    @property
    def lines(self) -> list[str]:
        """All notes; the last one counts those beyond the limit."""
        more = [f"{self._name}: {self._more} more notes like these"] if self._more else []
        return self._lines + more


Check = Callable[[Any, str, Notes], Any]


def text(most: int = LONGEST_TEXT) -> Check:
    """Want a text. What is longer than `most` characters is cut, and noted."""

    def check(value: Any, place: str, notes: Notes) -> str:
        if not isinstance(value, str):
            raise Wrong(f"is {shown(value)}, not a text")
        if len(value) > most:
            notes.add(f"{place} has {len(value)} characters; the first {most} are kept")
            value = value[:most]
        # A surrogate that is no half of a pair could be neither written nor sent.
        clean: str = value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
        return clean

    return check


def matching(pattern: str, what: str, most: int = LONGEST_TEXT) -> Check:
    """Want a text that the pattern matches as a whole, `what` in words."""

    def check(value: Any, _place: str, _notes: Notes) -> str:
        if isinstance(value, str) and len(value) <= most and re.fullmatch(pattern, value):
            return value
        raise Wrong(f"is {shown(value)}, not {what}")

    return check


def one_of(*known: str) -> Check:
    """Want one of these texts."""

    def check(value: Any, _place: str, _notes: Notes) -> str:
        if isinstance(value, str) and value in known:
            return value
        raise Wrong(f"is {shown(value)}, not one of {', '.join(known)}")

    return check


def whole(least: int = 0, most: int = LARGEST_COUNT) -> Check:
    """Want a whole number in these bounds; a bool is none."""

    def check(value: Any, _place: str, _notes: Notes) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise Wrong(f"is {shown(value)}, not a whole number from {least} to {most}")

    return check


def number(least: float = -1e300, most: float = 1e300) -> Check:
    """Want a number in these bounds; a bool is none, and a NaN is in no bounds."""

    def check(value: Any, _place: str, _notes: Notes) -> float:
        if type(value) in (int, float) and least <= value <= most:
            return value  # type: ignore[no-any-return]
        raise Wrong(f"is {shown(value)}, not a number from {least:g} to {most:g}")

    return check


def flag(value: Any, _place: str, _notes: Notes) -> bool:
    """Want true or false."""
    if isinstance(value, bool):
        return value
    raise Wrong(f"is {shown(value)}, not true or false")


def maybe(wanted: Check) -> Check:
    """Want null, or what another check wants."""

    def check(value: Any, place: str, notes: Notes) -> Any:
        return None if value is None else wanted(value, place, notes)

    return check


def listed(wanted: Check, most: int) -> Check:
    """Want a list. Its wrong items are left out, and those beyond the limit."""

    def check(value: Any, place: str, notes: Notes) -> list[Any]:
        if not isinstance(value, list):
            raise Wrong(f"is {shown(value)}, not a list")
        if len(value) > most:
            notes.add(f"{place} has {len(value)} items; the first {most} are kept")
        found = []
        for at, item in enumerate(value[:most]):
            try:
                found.append(wanted(item, place, notes))
            except Wrong as error:
                notes.add(f"{place}[{at}] {error}")
        return found

    return check


def mapped(wanted: Check, most: int, longest_name: int = LONGEST_TEXT) -> Check:
    """Want an object of any names. Its wrong values are left out, and those beyond the limit."""
    name_of = text(longest_name)

    def check(value: Any, place: str, notes: Notes) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"is {shown(value)}, not an object")
        if len(value) > most:
            notes.add(f"{place} has {len(value)} names; the first {most} are kept")
        found = {}
        for name in list(value)[:most]:
            inner = short(f"{place}.{name}", _SHOWN)
            try:
                found[name_of(name, inner, notes)] = wanted(value[name], inner, notes)
            except Wrong as error:
                notes.add(f"{inner} {error}")
        return found

    return check


def table(
    fields: Mapping[str, Check],
    *,
    needs: Collection[str] = (),
    absent: Mapping[str, Any] | None = None,
) -> Check:
    """Want an object with these fields. Wrong and unknown ones are left out and noted.

    Without a right value for each of `needs` the whole object is wrong. `absent` has the values of
    other fields that are absent or wrong.
    """

    def check(value: Any, place: str, notes: Notes) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"is {shown(value)}, not an object")
        found = dict(absent) if absent else {}
        before = f"{place}." if place else ""
        known = 0
        for name, wanted in fields.items():
            if name not in value:
                continue
            known += 1
            try:
                found[name] = wanted(value[name], before + name, notes)
            except Wrong as error:
                if name in needs:
                    raise Wrong(f"is wrong: {name} {error}") from None
                notes.add(f"{before}{name} {error}")
        for name in needs:
            if name not in found:
                raise Wrong(f"has no {name}")
        if known < len(value):
            unknown = [name for name in value if name not in fields]
            names = ", ".join(shown(name) for name in unknown[:3])
            notes.add(f"{place or 'it'} has {len(unknown)} unknown fields ({names}); left out")
        return found

    return check


def anything(most: int = 10_000, longest: int = LONGEST_TEXT) -> Check:
    """Want what JSON can hold, of at most so many values in all."""
    words = text(longest)

    def check(value: Any, place: str, notes: Notes) -> Any:
        left = most

        def copied(one: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Wrong(f"has more than {most} values")
            if isinstance(one, str):
                return words(one, place, notes)
            if isinstance(one, list | tuple):
                return [copied(item) for item in one]
            if isinstance(one, dict):
                return {words(name, place, notes): copied(item) for name, item in one.items()}
            if isinstance(one, int | float | None):
                return one
            raise Wrong(f"is {shown(one)}, which is not JSON's")

        return copied(value)

    return check


size = whole(0, LARGEST_SIZE)
seconds = number(0.0, LONGEST_S)


def checked(wanted: Check, said: Any, name: str, notes: list[str]) -> Any:
    """Check a whole document called `name`; its notes are added. Raises Wrong."""
    own = Notes(name)
    try:
        return wanted(said, "", own)
    finally:
        notes += own.lines


def bounded(notes: Sequence[str], most: int = MOST_NOTES) -> tuple[str, ...]:
    """Return the first notes, each cut, and how many there are besides."""
    left_out = len(notes) - most
    more = (f"{left_out} more notes are left out",) if left_out > 0 else ()
    return (*(short(note) for note in notes[:most]), *more)


def short(line: str, most: int = LONGEST_NOTE) -> str:
    """Return a text on one line, cut to so many characters."""
    line = " ".join(line[: most + 1].split())
    return line if len(line) <= most else line[: most - 3] + "..."


def shown(value: Any) -> str:
    """Return a wrong value in a few characters."""
    if isinstance(value, bool | None):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"  # Python refuses to write thousands of digits
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return short(repr(value[:_SHOWN] if isinstance(value, str) else value), _SHOWN)
