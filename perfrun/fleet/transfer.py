"""A submission sent to another machine, and a shard's results sent back: as streams of tar.

What arrives is unpacked by `perfrun.workspace.archives`, which believes nothing that an archive
says. Only regular files are sent: no links.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from perfrun.durable import make_folder
from perfrun.errors import UsageError, WorkspaceError
from perfrun.shards.places import Attempt, Ended, read_ended
from perfrun.shards.plan import Plan
from perfrun.shards.plan_file import FILE, read_plan, sent_text
from perfrun.untrusted import (
    MOST_DEPTH,
    MOST_ENTRIES,
    Folder,
    Refused,
    opened,
    remove_tree,
)
from perfrun.workspace.archives import unpack_beside

REMOTE = "remote.json"  # in what comes back: how the attempt ended over there
MOST_BYTES = 4 * 2**30  # of a shard's results
_MOST_PLAN_BYTES = 2**30
_BLOCK = 1 << 20
_DEEPEST = MOST_DEPTH - 4


def send_plan(plan: Plan, stream: BinaryIO) -> None:
    """Write the plan and its code into a stream. Raises OSError, and BrokenPipeError."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add_content(tar, FILE, sent_text(plan), 0o600)
        if (plan.folder / "code").is_dir():
            for folder, parts, name in _files(plan.folder, ("code",)):
                _add_from(tar, folder, name, "/".join((*parts, name)))


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
        _unpacked(aside, stream, _MOST_PLAN_BYTES)
        read_plan(aside)
        with contextlib.suppress(OSError):  # another one was first: the same submission
            aside.rename(folder)
        read_plan(folder)
    except OSError as error:
        raise WorkspaceError(f"{folder}: cannot be written: {error.strerror or error}") from None
    finally:
        remove_tree(aside)


def send_results(attempt: Attempt, stream: BinaryIO) -> None:
    """Write how an attempt ended and the folders of its trials into a stream. Raises OSError."""
    ended = attempt.ended
    if ended is None:
        raise UsageError(f"{attempt.folder}: has not ended: there is nothing to send")
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add_content(tar, REMOTE, json.dumps(asdict(ended)).encode())
        for name, _ in ended.trials:
            for folder, parts, file in _files(attempt.folder, ("output", name)):
                _add_from(tar, folder, file, "/".join((*parts, file)))


def receive_results(attempt: Attempt, stream: BinaryIO) -> Ended:
    """Put the trials that a stream holds into an attempt; return how it ended over there.

    Nothing else that it holds stays. Raises WorkspaceError for a stream that is cut short, or is
    not what it should be.
    """
    aside = attempt.folder / "received"
    try:
        aside.mkdir()
        _unpacked(aside, stream, MOST_BYTES)
        ended = read_ended(aside, REMOTE)
        if ended is None:
            raise WorkspaceError("what came back does not say how the shard ended")
        output = aside / "output"
        if output.is_dir() and not output.is_symlink():
            output.rename(attempt.folder / "output")
    except OSError as error:
        why = error.strerror or error
        raise WorkspaceError(f"{attempt.folder}: cannot be written: {why}") from None
    finally:
        remove_tree(aside)
    return ended


def _unpacked(folder: Path, stream: BinaryIO, most: int) -> None:
    """Unpack a stream into a folder. Raises WorkspaceError and OSError."""
    archive = folder / "received.tar"
    try:
        left = most
        with archive.open("xb") as file:
            while data := stream.read(_BLOCK):
                left -= len(data)
                if left < 0:
                    raise WorkspaceError(f"what came is larger than {most // 2**30} GiB")
                file.write(data)
        unpack_beside(archive, must_be_tar=True, most_bytes=most, links=False, compressed=False)
    finally:
        archive.unlink(missing_ok=True)


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
