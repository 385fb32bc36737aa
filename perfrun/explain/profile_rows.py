"""The rows of a profile trial, read as a stranger's words and named alike on both sides."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.run.profiling import recorded_in
from perfrun.summary.document import TrialResult
from perfrun.untrusted import Folder, Refused
from perfrun.worker.profilers.profile_recorder import ALL_ROWS, MOST_ROWS

LARGEST_BYTES = 8 * 2**20  # of a file of rows
_LONGEST_NAME = 300
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,16}")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r".*/lib(?:64)?/python3\.\d{1,2}/")
# Key of a row by kind, and its unit; a time is divided by the steps.
_FIGURES = {
    "cprofile": ("self_s", "s"),
    "torch": ("self_s", "s"),
    "tensorflow": ("self_s", "s"),
    "sampling": ("self_s", "s"),
    "memory": ("bytes", "bytes"),
    "memory_lines": ("bytes", "bytes"),
    "counters": ("count", "events"),
}
KINDS = tuple(_FIGURES)


@dataclass(frozen=True)
class RowKey:
    """What is the same row on both sides: a line moves when code above it is edited."""

    name: str
    file: str  # below the checkout, the packages or the library; empty for C code and operators
    number: int = 0  # of functions of this name in the file, in their order


@dataclass(frozen=True, kw_only=True)
class ProfileRow:
    """A row of one profile; figures are of one step."""

    name: str
    path: str  # as the profiler said it
    line: int
    value: float
    calls: float | None
    native: tuple[tuple[str, float, float], ...] = ()  # C functions that it calls: calls, value


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a profile trial recorded."""

    tool: str
    unit: str
    figure: str  # key of the rows that is their value
    is_per_step: bool  # False where the method does not measure: figures are of the whole
    rows: tuple[ProfileRow, ...]
    notes: tuple[str, ...]


def unlike(readings: Sequence[Reading]) -> str | None:
    """Return how the figures of readings differ in kind; None when they can be compared."""
    found = {one.figure + (" of a step" if one.is_per_step else "") for one in readings}
    return (
        None if len(found) < 2 else f"its profiles have unlike figures: {', '.join(sorted(found))}"
    )


class NoRows(Exception):  # noqa: N818 - always caught
    """Raised for a profile trial that has no rows; the message says why."""


def reading_of(kind: str, result: TrialResult) -> Reading:
    """Read the rows of a profile trial. Raises NoRows."""
    recorded = recorded_in(result)[0]
    if not result.status.ran or recorded.get("error"):
        why = recorded.get("error") or result.document["perfrun"]["outcome"]["reason"]
        raise NoRows(str(why or result.status.value))
    try:
        with Folder(Path(result.summary).parent, "profile") as folder:
            said = folder.json(ALL_ROWS, LARGEST_BYTES)
    except (OSError, Refused) as error:
        raise NoRows(f"its rows cannot be read: {error}") from None
    key, unit = _FIGURES[kind]
    if kind == "torch":
        key = _key_of_operators(_objects(said), key)
    steps = _steps(recorded.get("windows"))
    is_per_step = steps is not None and unit != "bytes"
    per = steps if is_per_step and steps else 1
    rows = (_row(one, key, per) for one in _objects(said))
    return Reading(
        tool=str(recorded.get("tool") or kind),
        unit=unit,
        figure=key,
        is_per_step=is_per_step,
        rows=tuple(row for row in rows if row is not None),
        notes=tuple(map(str, recorded.get("notes") or ())),
    )


def _key_of_operators(rows: Sequence[Mapping[str, Any]], usual: str) -> str:
    """Return the figure of operators: times of a device, or medians, where all rows have them."""
    if any(_number(row, "device_s") for row in rows):
        return "device_s"
    has_medians = bool(rows) and all(_number(row, "median_s") is not None for row in rows)
    return "median_s" if has_medians else usual


def _objects(said: Any) -> list[Mapping[str, Any]]:
    if not isinstance(said, list):
        return []
    return [one for one in said[:MOST_ROWS] if isinstance(one, Mapping)]


def _steps(windows: Any) -> int | None:
    found = [one.get("steps") for one in windows or () if isinstance(one, Mapping)]
    known = [one for one in found if isinstance(one, int) and one > 0]
    return sum(known) if known and len(known) == len(found) else None


def _row(said: Mapping[str, Any], key: str, per: int) -> ProfileRow | None:
    """Return a row; None for one that has no name or no figure."""
    name, value = said.get("name"), _number(said, key)
    if not isinstance(name, str) or not name or value is None:
        return None
    where = said.get("where")
    path, _, line = (where if isinstance(where, str) else "").rpartition(":")
    calls = _number(said, "calls")
    calls = _number(said, "allocations") if calls is None else calls / per
    return ProfileRow(
        name=_ADDRESS.sub("0x..", name[:_LONGEST_NAME]),
        path=path[: 4 * _LONGEST_NAME],
        line=int(line) if line.isascii() and line.isdigit() and len(line) < 9 else 0,
        value=value / per,
        calls=calls,
        native=tuple(_native(said.get("native"), per)),
    )


def _native(said: Any, per: int) -> Iterable[tuple[str, float, float]]:
    for one in said[:10] if isinstance(said, list) else ():
        if isinstance(one, list) and len(one) == 3 and isinstance(one[0], str):
            calls, value = (_finite(number) for number in one[1:])
            if calls is not None and value is not None:
                name = _ADDRESS.sub("0x..", one[0][:_LONGEST_NAME])
                yield name, calls / per, value / per


def _number(said: Mapping[str, Any], key: str) -> float | None:
    return _finite(said.get(key))


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e18 else None


def short_path(path: str, roots: Sequence[str]) -> str:
    """Return a file's path below its checkout, its packages or its library: alike on both sides."""
    for root in roots:
        if path.startswith(root.rstrip("/") + "/"):
            return path[len(root.rstrip("/")) + 1 :]
    for pattern in (_PACKAGES, _LIBRARY):
        if found := pattern.match(path):
            return path[found.end() :]
    return path


Keyed = dict[RowKey, ProfileRow]


def keyed(sides: Sequence[Sequence[Reading]], roots: Sequence[Sequence[str]]) -> list[list[Keyed]]:
    """Return the rows of each reading by what is the same on both sides.

    Functions of one name in a file are told apart by their order, if both sides have as many of
    them; else they are one row.
    """
    lines = [_lines(side, own) for side, own in zip(sides, roots, strict=True)]
    found: list[list[Keyed]] = []
    for number, (side, own) in enumerate(zip(sides, roots, strict=True)):
        other = lines[1 - number]
        profiles = []
        for reading in side:
            rows: Keyed = {}
            for row in reading.rows:
                name = (row.name, short_path(row.path, own))
                here = lines[number][name]
                alike = len(here) == len(other.get(name, here))
                key = RowKey(*name, here.index(row.line) if alike else 0)
                rows[key] = _added(rows[key], row) if key in rows else row
            profiles.append(rows)
        found.append(profiles)
    return found


def _lines(side: Sequence[Reading], roots: Sequence[str]) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], set[int]] = {}
    for reading in side:
        for row in reading.rows:
            found.setdefault((row.name, short_path(row.path, roots)), set()).add(row.line)
    return {name: sorted(lines) for name, lines in found.items()}


def _added(one: ProfileRow, other: ProfileRow) -> ProfileRow:
    calls = None if one.calls is None or other.calls is None else one.calls + other.calls
    return ProfileRow(
        name=one.name,
        path=one.path,
        line=min(one.line, other.line),
        value=one.value + other.value,
        calls=calls,
        native=(*one.native, *other.native),
    )
