"""A submission sent to another machine, and a shard's results sent back: as streams of tar.

What arrives is unpacked by `perfrun.workspace.archives`, which believes nothing that an archive
says. Only regular files are sent: no links. The last member says that all of it was sent: a stream
that is cut short between two members would look whole.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import msgspec
from msgspec import Meta, Struct

from perfrun.durable import make_folder
from perfrun.errors import UsageError, WorkspaceError
from perfrun.fleet.engines import EngineFlag, Options
from perfrun.options.containment import parse_size
from perfrun.run.digest import sha256_of
from perfrun.shards.places import WITH_RESULT, Attempt, Ended, How, read_ended
from perfrun.shards.plan import Plan
from perfrun.shards.plan_file import FILE, read_plan, sent_text
from perfrun.shown import line
from perfrun.summary.record import SUMMARY, BadSummary, read_content
from perfrun.untrusted import (
    MOST_DEPTH,
    MOST_ENTRIES,
    Folder,
    Refused,
    opened,
    remove_tree,
)
from perfrun.workspace.archives import MOST_NAME, unpack_stream

REMOTE = "remote.json"  # in what comes back: how the attempt ended over there
WHOLE = "whole.json"  # the last member: everything has been sent, but for what it names
LARGEST_FILE = 4 * 2**30
LARGEST_RESULTS = 32 * 2**30  # of a shard
PART = "part-"  # begin of the name of a part of a submission
_PART_BYTES = 700 * 1024  # a Secret has at most 1 MiB
_MOST_PARTS = 64
_MOST_PLAN_BYTES = 2**30
_MOST_HEADERS = 2**28  # of an archive, besides the content of its files
_MOST_WHOLE = 2**20
_MOST_NAMED = 1000  # files that are left out, by name
_DEEPEST = MOST_DEPTH - 4
_LONGEST_REASON = 1000

LIMIT_FLAGS = (
    EngineFlag(
        name="largest_file",
        metavar="SIZE",
        text="files of results that are larger stay where they are (4g)",
    ),
    EngineFlag(
        name="largest_results",
        metavar="SIZE",
        text="the most that a shard's results may have in all (32g); the largest files stay there",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most bytes that results may have to be brought here."""

    file: Annotated[int, Meta(ge=1, lt=2**62)] = LARGEST_FILE
    results: Annotated[int, Meta(ge=1, lt=2**62)] = LARGEST_RESULTS

    @property
    def words(self) -> tuple[str, ...]:
        """The flags of `perfrun shard --send`."""
        return f"--largest_file={self.file}", f"--largest_results={self.results}"


def parse_limits(file: str | None, results: str | None) -> Limits:
    """Return the limits that two flags give. Raises UsageError."""
    return Limits(
        file=parse_size("--largest_file", file) or LARGEST_FILE,
        results=parse_size("--largest_results", results) or LARGEST_RESULTS,
    )


def limits_of(options: Options) -> Limits:
    """Return the limits that an engine's flags give. Raises UsageError."""
    return parse_limits(options.get("largest_file"), options.get("largest_results"))


class _Whole(Struct, frozen=True):
    left_out: Annotated[int, Meta(ge=0, lt=2**40)] = 0  # files
    left_out_bytes: Annotated[int, Meta(ge=0, lt=2**62)] = 0
    # The largest of them, by path and size.
    names: Annotated[
        list[tuple[Annotated[str, Meta(max_length=4096)], Annotated[int, Meta(ge=0, lt=2**62)]]],
        Meta(max_length=_MOST_NAMED),
    ] = []


class _Seconds(Struct, frozen=True):
    seconds: Annotated[float, Meta(ge=0, le=1e8)] = 0.0


@dataclass(frozen=True, kw_only=True)
class Received:
    """What came of an attempt on another machine."""

    ended: Ended
    seconds: float  # that it took there, by the clock there
    left_out: str = ""  # what was too large and stayed there, in words; empty: nothing


def send_plan(plan: Plan, stream: BinaryIO) -> None:
    """Write the plan and its code into a stream. Raises OSError, and BrokenPipeError."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add_content(tar, FILE, sent_text(plan), 0o600)
        if (plan.folder / "code").is_dir():
            for folder, parts, name in _files(plan.folder, ("code",)):
                _add_from(tar, folder, name, "/".join((*parts, name)))
        _add_content(tar, WHOLE, msgspec.json.encode(_Whole()))


def receive_plan(folder: Path, stream: BinaryIO) -> None:
    """Put a submission that a stream holds into a folder, whole, unless it is there already.

    Raises WorkspaceError and UsageError.
    """
    if (folder / FILE).exists():
        read_plan(folder)
        return
    aside = folder.with_name(f".{folder.name}.{os.urandom(6).hex()}")
    try:
        make_folder(aside)
        unpack_stream(stream, aside, most_bytes=_MOST_PLAN_BYTES)
        read_plan(aside)
        _whole(aside)
        (aside / WHOLE).unlink()
        with contextlib.suppress(OSError):  # another one was first: the same submission
            aside.rename(folder)
        read_plan(folder)
    except OSError as error:
        raise WorkspaceError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        remove_tree(aside)


def packed_plan(plan: Plan) -> Iterator[bytes]:
    """Yield the plan and its code in compressed parts that fit in Secrets. Raises UsageError."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream:
        send_plan(plan, cast("BinaryIO", stream))
    content = packed.getvalue()
    if len(content) > _MOST_PARTS * _PART_BYTES:
        raise UsageError(
            f"the plan and its code are {size_text(len(content))} compressed, of which pods get "
            f"{size_text(_MOST_PARTS * _PART_BYTES)}; leave large files out of --python_path, or "
            "share the workspace with --claim"
        )
    for begin in range(0, len(content), _PART_BYTES):
        yield content[begin : begin + _PART_BYTES]


def unpack_plan(folder: Path, parts: Path) -> None:
    """Put a submission that `packed_plan` made into a folder. Raises WorkspaceError, UsageError.

    Kubernetes mounts its parts as links.
    """
    try:
        names = sorted(parts.glob(f"{PART}*"))[:_MOST_PARTS]
        content = b"".join(name.read_bytes()[: _PART_BYTES + 1] for name in names)
    except OSError as error:
        raise WorkspaceError(f"{parts}: cannot be read: {error.strerror}") from None
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        receive_plan(folder, cast("BinaryIO", stream))


def send_results(attempt: Attempt, stream: BinaryIO, limits: Limits) -> None:
    """Write how an attempt ended and the folders of its trials into a stream. Raises OSError.

    Files beyond the limits are left out, and named. Summaries are always sent.
    """
    ended, begun = attempt.ended, attempt.begun
    if ended is None:
        raise UsageError(f"{attempt.folder}: has not ended: there is nothing to send")
    seconds = max(0.0, ended.ended - begun.begun) if begun else 0.0
    large = _too_large(attempt, ended, limits)
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add_content(tar, REMOTE, json.dumps({**asdict(ended), "seconds": seconds}).encode())
        for path, folder, file in _results(attempt, ended):
            if path not in large:
                _add_from(tar, folder, file, path)
        named = sorted(large.items(), key=lambda one: (-one[1], one[0]))[:_MOST_NAMED]
        whole = _Whole(
            left_out=len(large),
            left_out_bytes=sum(large.values()),
            names=[(_valid(path)[-4096:], size) for path, size in named],
        )
        _add_content(tar, WHOLE, msgspec.json.encode(whole))


def _valid(path: str) -> str:
    """Return a path as JSON can have it: a trial may give files names that are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def _results(attempt: Attempt, ended: Ended) -> Iterator[tuple[str, Folder, str]]:
    """Yield the files of an attempt's trials: path, folder, name."""
    for trial, _ in ended.trials:
        for folder, parts, file in _files(attempt.folder, ("output", trial)):
            yield "/".join((*parts, file)), folder, file


def _too_large(attempt: Attempt, ended: Ended, limits: Limits) -> dict[str, int]:
    """Return the files that are beyond a limit, with their sizes: of the total, the largest.

    One whose path no archive may have counts as too large, or nothing would come.
    """
    found, sizes, total = {}, [], 0
    for path, folder, file in _results(attempt, ended):
        size = folder.size(file) or 0
        if path.count("/") == 2 and file == SUMMARY:
            total += size
        elif size > limits.file or len(os.fsencode(path)) > MOST_NAME:
            found[path] = size
        else:
            sizes.append((size, path))
            total += size
    for size, path in sorted(sizes, reverse=True):
        if total <= limits.results:
            break
        found[path] = size
        total -= size
    return found


def receive_results(attempt: Attempt, stream: BinaryIO, limits: Limits) -> Received:
    """Put the trials that a stream holds into an attempt; return how it ended over there.

    Nothing else that it holds stays. Raises WorkspaceError for a stream that is cut short, or is
    not what it should be.
    """
    aside = attempt.folder / "received"
    try:
        aside.mkdir()
        unpack_stream(stream, aside, most_bytes=limits.results + _MOST_HEADERS)
        whole = _whole(aside)
        ended = read_ended(aside, REMOTE)
        if ended is None:
            raise WorkspaceError("what came back does not say how the shard ended")
        with contextlib.suppress(msgspec.DecodeError), Folder(aside) as folder:
            seconds = msgspec.json.decode(folder.read(REMOTE, _MOST_HEADERS), type=_Seconds).seconds
            output = aside / "output"
            if output.is_dir() and not output.is_symlink():
                output.rename(attempt.folder / "output")
            return Received(ended=ended, seconds=seconds, left_out=_left_out(whole))
        raise WorkspaceError("what came back does not say how long the shard took")
    except OSError as error:
        why = error.strerror or error
        raise WorkspaceError(f"{attempt.folder}: cannot be written: {why}") from None
    finally:
        remove_tree(aside)


def with_result(attempt: Attempt, received: Received, ended_at: float, where: str) -> Ended | str:
    """Return the end of an attempt whose result has come; in words why it has none.

    `ended_at` is by the clock of this machine, as its begin is; `where` says what becomes of the
    files that were too large.
    """
    ended = received.ended
    # A benchmark that refuses its flags has failed without a trial.
    if ended.how not in WITH_RESULT or not (ended.trials or ended.how is How.FAILED):
        return "its results have no trial"
    missing = next((name for name, said in ended.trials if _digest(attempt, name) != said), "")
    if missing:
        return f"its trial {missing} did not come whole"
    left = f"too large to come: {received.left_out}, {where}" if received.left_out else ""
    reason = "; ".join(part for part in (ended.reason, left) if part)
    return replace(ended, ended=ended_at, reason=line(reason, _LONGEST_REASON))


def _digest(attempt: Attempt, name: str) -> str | None:
    """Return the SHA-256 of a trial's summary that came; None where none did."""
    if name in (".", ".."):
        return None
    try:
        return sha256_of(read_content(attempt.folder / "output" / name / SUMMARY))
    except (OSError, BadSummary):
        return None


def _left_out(whole: _Whole) -> str:
    """Return what was not sent, in words: the largest file, and how many others."""
    if not whole.left_out:
        return ""
    path, size = whole.names[0] if whole.names else ("files", whole.left_out_bytes)
    others = whole.left_out - 1
    more = f" and {others} more, {size_text(whole.left_out_bytes)} in all" if others > 0 else ""
    return f"{path.removeprefix('output/')} ({size_text(size)}){more}"


def size_text(size: int) -> str:
    """Return a size as people read it: `5.2 GiB`."""
    number, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.1f} {unit}" if unit != "B" else f"{size} B"


def _whole(folder: Path) -> _Whole:
    """Return the last member. Raises WorkspaceError where there is none: not all has come."""
    try:
        with Folder(folder) as opened_folder:
            return msgspec.json.decode(opened_folder.read(WHOLE, _MOST_WHOLE), type=_Whole)
    except (OSError, Refused, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise WorkspaceError("what came ends too early: its last part is missing") from None


def _files(top: Path, below: tuple[str, ...]) -> Iterator[tuple[Folder, tuple[str, ...], str]]:
    """Yield the regular files below a folder, each with its folder, held open. No link is followed.

    Raises OSError, and WorkspaceError for a folder of which not all could be sent.
    """
    waiting = [below]
    while waiting:
        parts = waiting.pop()
        with Folder(top, *parts) as folder:
            for name in _names(folder):
                if folder.exists(name):
                    yield folder, parts, name
                elif len(parts) < _DEEPEST and _is_folder(folder, name):
                    waiting.append((*parts, name))


def _names(folder: Folder) -> list[str]:
    """Return all names in a folder: what is sent is whole."""
    with os.scandir(folder.descriptor) as entries:
        found = sorted(entry.name for entry in islice(entries, MOST_ENTRIES + 1))
    if len(found) > MOST_ENTRIES:
        raise WorkspaceError(f"{folder.path}: has more than {MOST_ENTRIES:,} files: too many")
    return found


def _is_folder(folder: Folder, name: str) -> bool:
    status = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
    return stat.S_ISDIR(status.st_mode)


def _add_content(tar: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def _add_from(
    tar: tarfile.TarFile, folder: Folder, name: str, path: str, mode: int = 0o644
) -> None:
    try:
        with opened(name, folder=folder.descriptor) as (number, size):
            member = tarfile.TarInfo(path)
            member.size, member.mode = size, mode
            with open(number, "rb", closefd=False) as file:
                tar.addfile(member, file)
    except Refused:
        return  # it has become something else since
