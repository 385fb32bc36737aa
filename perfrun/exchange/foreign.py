"""The results of other tools as values, and the checks of the files that they come from.

A file of another tool may hold anything. It is read up to a size, parsed strictly, and checked
against the types that its format promises; what is wrong is one line with file and place.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfrun.errors import UsageError
from perfrun.summary.series_identity import is_number, text
from perfrun.untrusted import Refused, opened

LARGEST_BYTES = 64 * 2**20  # as for summaries; no tool's results are near it
_LONGEST_NAME = 1000  # characters
_LONGEST_SHOWN = 60
_LATEST_S = 1e11  # as in summaries
_Kind = TypeVar("_Kind")


class ForeignError(UsageError):
    """A file of another tool that cannot be used; the text names file, place and reason."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that a foreign result states besides its times."""

    name: str
    value: float
    unit: str = ""  # '' when not stated
    direction: str = ""  # lower, higher or none; '' when not stated


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Times of one process, in seconds a step. None is not stated."""

    median_s: float  # or what the format has in its place
    times_s: tuple[float, ...] = ()  # in the order of measurement; empty when not kept
    steps: int | None = None  # in each time
    first_call_s: float | None = None
    mean_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None
    cpu_s: float | None = None
    figures: tuple[Figure, ...] = ()  # that follow from the same steps, as a throughput


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts about the machine and the interpreter, as far as they are stated."""

    hostname: str = ""
    cpu_model: str = ""
    platform: str = ""
    kernel: str = ""
    logical_cpus: int | None = None
    memory_bytes: int | None = None
    python: str = ""
    implementation: str = ""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The commit that was measured, as far as it is stated."""

    project: str
    git_hash: str
    branch: str = ""
    is_dirty: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ForeignTrial:
    """One process that measured one method, as another tool describes it."""

    method: str
    timestamp: float | None  # seconds since the epoch
    run: str = ""  # what the trials of one run of the tool share; '' = the file
    timing: Timing | None = None
    figures: tuple[Figure, ...] = ()  # measured by themselves
    extras: Mapping[str, float | str] = field(default_factory=dict)
    failure: str | None = None  # why there are no figures
    peak_rss_bytes: int | None = None
    machine: Machine = field(default_factory=Machine)
    commit: Commit | None = None
    source: str = ""  # SHA-256 of the benchmark's source
    flags: tuple[str, ...] = ()  # that say what was measured
    packages: Mapping[str, str] = field(default_factory=dict)  # name -> version
    tool_version: str = ""


class Source:
    """A file of another tool that was read, and the checks of what is in it."""

    def __init__(self, path: Path, content: bytes, modified: float) -> None:
        self.path = path
        self.modified = modified  # seconds since the epoch
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.document = _parsed(path, content)

    def wrong(self, where: str, why: str) -> ForeignError:
        """Return the error for a place of the file."""
        return ForeignError(f"{self.path}: {where} {why}" if where else f"{self.path}: {why}")

    def convert(self, kind: type[_Kind], value: Any = None, where: str = "") -> _Kind:
        """Convert the document, or a part of it, to a type. Raises ForeignError."""
        try:
            return msgspec.convert(self.document if value is None else value, kind)
        except msgspec.ValidationError as error:
            what, _, place = str(error).partition(" - at `$")
            inner = place.rstrip("`")
            named = f"{where}{inner}".lstrip(".") or "the file"
            raise self.wrong(f"{named}:", what[:1].lower() + what[1:].replace("`", "")) from None
        except OverflowError:
            raise self.wrong(where, "has a number that is too large") from None
        except UnicodeEncodeError:
            raise self.wrong(where, "has half of a character (a lone surrogate) in it") from None

    def name(self, value: str, where: str) -> str:
        """Check a name. Raises ForeignError."""
        if not value or not value.strip():
            raise self.wrong(where, "is empty")
        if len(value) > _LONGEST_NAME:
            raise self.wrong(where, f"is longer than {_LONGEST_NAME} characters")
        if not value.isprintable() or text(value) != value:
            raise self.wrong(where, f"has characters that cannot be printed: {shown(value)}")
        return value

    def number(self, value: Any, where: str, least: float | None = None) -> float:
        """Check a finite number. Raises ForeignError."""
        if not is_number(value):
            raise self.wrong(where, f"is {shown(value)}, not a finite number")
        if least is not None and value < least:
            raise self.wrong(where, f"is {shown(value)}, less than {least:g}")
        return float(value)

    def numbers(self, values: Sequence[Any], where: str, least: float) -> tuple[float, ...]:
        """Check a list of finite numbers. Raises ForeignError."""
        return tuple(self.number(value, f"{where}[{at}]", least) for at, value in enumerate(values))

    def time(self, value: str | None, where: str, *, in_utc: bool = False) -> float | None:
        """Parse a time in ISO form; without a zone it is local, or UTC. Raises ForeignError."""
        if not value:
            return None
        try:
            stated = datetime.fromisoformat(value.replace("Z", "+00:00"))
            if in_utc and stated.tzinfo is None:
                stated = stated.replace(tzinfo=timezone.utc)
            found = stated.timestamp()
        except (ValueError, OverflowError, OSError):
            found = -1.0
        return self.seconds(found, where, value)

    def seconds(self, value: Any, where: str, stated: Any = None) -> float:
        """Check a time in seconds since the epoch. Raises ForeignError."""
        if not is_number(value) or not 0 <= value < _LATEST_S:
            raise self.wrong(where, f"is {shown(value if stated is None else stated)}, not a time")
        return float(value)


def read_source(path: Path, *, follow: bool = True) -> Source:
    """Read a file of another tool. Raises ForeignError.

    A file that the user names may be a link; one that is found in a folder may not (`follow`).
    """
    # A pipe does not block this, and a device is not read.
    try:
        place = os.path.realpath(path) if follow else path
        with opened(place) as (number, size), open(number, "rb", closefd=False) as file:
            if size > LARGEST_BYTES:
                raise ForeignError(f"{path}: is larger than {LARGEST_BYTES // 2**20} MiB")
            return Source(path, file.read(size), os.fstat(number).st_mtime)
    except Refused:
        raise ForeignError(f"{path}: is no file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ForeignError(f"{path}: {why}") from None


def _parsed(path: Path, content: bytes) -> Any:
    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(name for name, count in Counter(n for n, _ in pairs).items() if count > 1)
            raise ForeignError(f"{path}: an object has the key {shown(twice)} twice")
        return found

    try:
        return json.loads(content, object_pairs_hook=unique)
    except UnicodeDecodeError:
        raise ForeignError(f"{path}: is not UTF-8 text") from None
    except RecursionError:
        raise ForeignError(f"{path}: is JSON nested too deep") from None
    except ValueError as error:
        why = "is empty" if not content.strip() else f"is not JSON, or cut short: {error}"
        raise ForeignError(f"{path}: {why}") from None


def shown(value: Any) -> str:
    """Return a value of a file for a message: on one line, and shortened."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a huge number"  # Python refuses to convert its digits
    told = ascii(value)
    return told if len(told) <= _LONGEST_SHOWN else f"{told[:_LONGEST_SHOWN]}..."


def short_text(value: Any) -> str:
    """Return a fact as one line of a bounded length; '' for what is no text or number."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return ""
    told = text(value) if not isinstance(value, int) or abs(value) < 10**40 else ""
    return " ".join(told.split())[:_LONGEST_NAME]


def whole(value: Any) -> int | None:
    """Return a positive whole number, which a tool may have written as text; None for else."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**62:
        return value
    return None
