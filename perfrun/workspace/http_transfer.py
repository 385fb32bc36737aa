"""Transfer the bytes of one url to a file aside: by http(s), resumed and retried, or by a copy.

`workspace.downloads` checks the file and gives it its final name.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from perfrun.errors import WorkspaceError
from perfrun.text import redact
from perfrun.untrusted import remove_tree

if TYPE_CHECKING:
    from perfrun.workspace.http_client import Client

_BLOCK = 1 << 20
_PART = 1 << 17  # of a body, that must come
_SILENCE_S = 120.0  # within this time
_ANSWER_S = 120.0  # for connection, redirect and headers, each time
_LONGEST_S = 24 * 3600.0  # for one url, with all its tries
_PROGRESS = 1 << 16  # bytes that a try must bring to count as one that succeeded in part
_RESERVE = 256 << 20  # free bytes that a transfer of unknown length leaves
_TRIES_WITHOUT_PROGRESS = 5
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_MAY_PASS = (408, 425, 429, 500, 502, 503, 504)
# In ASCII: `isdigit` takes superscripts, which `int` does not.
_NUMBER = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/(?:([0-9]{1,18})|\*)")
_VALIDATOR = re.compile(r"[!-~][ -~]{0,254}")


class Transfers(Protocol):
    """Where is recorded what an unfinished transfer consists of."""

    def read(self) -> dict[str, Any]:
        """Return what was written; empty when there is nothing."""

    def write(self, values: dict[str, Any]) -> None:
        """Write it anew."""

    def forget(self) -> None:
        """Remove it."""


class _TransferBroken(Exception):  # noqa: N818 - a state of the connection; always caught here
    """A transfer broke off, and may succeed when it is tried again."""

    def __init__(self, why: str, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """The range of bytes that an http response brings."""

    start: int  # offset of the first byte
    total: int | None  # size of the whole file, if the server tells it
    validator: str | None  # for If-Range


def download(url: str, partial: Path, records: Transfers, notify: Callable[[str], None]) -> str:
    """Fetch an http(s) url into `partial` and return its SHA-256.

    A transfer that was interrupted is continued if the server confirms that the file is still the
    same, else started anew.

    Raises:
        WorkspaceError: the server refuses, cannot be reached, or does not come to an end.
    """
    from perfrun.workspace.http_client import Client, NoAnswer  # 60 ms, not when the data is there

    failures, end_s = 0, time.monotonic() + _LONGEST_S
    while True:
        before = _size(partial)
        try:
            with Client() as client:
                return _attempt(client, url, partial, records, end_s)
        except (NoAnswer, _TransferBroken) as error:
            failures = 1 if _size(partial) >= before + _PROGRESS else failures + 1
            if failures >= _TRIES_WITHOUT_PROGRESS:
                why = f"{error} ({failures} tries)"
            elif time.monotonic() > end_s:
                why = f"it is not complete after {_LONGEST_S / 3600:g} hours"
            elif isinstance(error, NoAnswer) and error.is_final:
                why = str(error)
            else:
                notify(f"downloading {redact(url)}: {error}; trying again")
                asked_s = error.pause_s if isinstance(error, _TransferBroken) else 0.0
                pause_s = max(asked_s, _FIRST_PAUSE_S * 2 ** (failures - 1))
                time.sleep(min(pause_s, _LONGEST_PAUSE_S))
                continue
            raise WorkspaceError(f"cannot download {redact(url)}: {why}") from None


def _attempt(client: Client, url: str, partial: Path, records: Transfers, end_s: float) -> str:
    have, validator = _resumable(url, partial, records)
    headers = {"Accept-Encoding": "identity"}  # the bytes of the file, for lengths and ranges
    if have and validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    with client.get(url, headers, answer_s=_ANSWER_S) as response:
        answer = _read_answer(response.status_code, response.headers, url, partial, have)
        if not answer.start:
            _start_anew(url, partial, answer.validator, records)
        _check_room(answer, url, partial)

        def blocks() -> Iterator[bytes]:
            while block := client.read(response, _PART, within_s=_SILENCE_S):
                yield block
                if time.monotonic() > end_s:
                    raise _TransferBroken("it takes too long")

        return _write(blocks(), partial, answer, url)


def _check_room(answer: _Answer, url: str, partial: Path) -> None:
    free = shutil.disk_usage(partial.parent).free
    if answer.total is not None and answer.total - answer.start > free:
        raise WorkspaceError(
            f"cannot download {redact(url)}: the server announces {answer.total} bytes, and "
            f"{partial.parent} has room for {free}"
        )


def _read_answer(
    status: int, headers: Mapping[str, str], url: str, partial: Path, have: int
) -> _Answer:
    """Return the range that status and headers announce; raise when they announce none."""
    if status == 206:
        found = _RANGE.fullmatch(headers.get("Content-Range", ""))
        start, end, total = (
            (int(text) if text else None for text in found.groups())
            if found
            else (*(None, None, None),)
        )
        # Of a file that is complete already, some servers send a range that ends before it begins.
        if start != have or end is None or end < have - 1 or (total is not None and total <= end):
            partial.unlink(missing_ok=True)
            raise _TransferBroken("the server sent another range than asked for")
        return _Answer(start=have, total=total, validator=_validator(headers))
    if status == 200:
        length = headers.get("Content-Length")
        if length is not None and not _NUMBER.fullmatch(length):
            raise WorkspaceError(
                f"cannot download {redact(url)}: the server sends a Content-Length that is no "
                f"number: {length[:40]!a}"
            )
        return _Answer(
            start=0, total=int(length) if length else None, validator=_validator(headers)
        )
    if status == 416:
        partial.unlink(missing_ok=True)
        raise _TransferBroken("the file has changed at the server")
    if status in _MAY_PASS:
        after = headers.get("Retry-After", "")
        raise _TransferBroken(
            f"the server answers {status}", float(after) if _NUMBER.fullmatch(after) else 0.0
        )
    raise WorkspaceError(f"cannot download {redact(url)}: the server answers {status}")


def _validator(headers: Mapping[str, str]) -> str | None:
    """Return what a later request can name the file's state by; None when there is nothing."""
    validator = headers.get("ETag") or headers.get("Last-Modified")
    if validator and validator.startswith("W/"):
        validator = headers.get("Last-Modified")  # a weak tag does not stand for the same bytes
    return validator if validator and _VALIDATOR.fullmatch(validator) else None


def _write(blocks: Iterator[bytes], partial: Path, answer: _Answer, url: str) -> str:
    digest = hashlib.sha256()
    file = os.open(partial, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "r+b") as stream:
        _digest_stream(stream.read, digest, answer.start)
        stream.seek(answer.start)
        stream.truncate()
        size = answer.start
        for block in blocks:
            size += len(block)
            if answer.total is not None and size > answer.total:
                partial.unlink()
                raise _TransferBroken(f"got more than {answer.total} bytes")
            if answer.total is None and size > _RESERVE:
                _check_reserve(url, partial)
            stream.write(block)
            digest.update(block)
    if answer.total is not None and size != answer.total:
        raise _TransferBroken(f"got {size} of {answer.total} bytes")
    return digest.hexdigest()


def _check_reserve(url: str, partial: Path) -> None:
    """Stop a transfer of unknown length before it has filled the disk."""
    free = shutil.disk_usage(partial.parent).free
    if free < _RESERVE:
        partial.unlink()
        raise WorkspaceError(
            f"cannot download {redact(url)}: the server does not say how large it is, and "
            f"{partial.parent} has room for {free} more bytes"
        )


def _digest_stream(
    read: Callable[[int], bytes], digest: hashlib._Hash, size: int | None = None
) -> None:
    left = size if size is not None else 1 << 62
    while left > 0 and (block := read(min(_BLOCK, left))):
        digest.update(block)
        left -= len(block)


def _resumable(url: str, partial: Path, records: Transfers) -> tuple[int, str | None]:
    """Return the size of an unfinished transfer and its validator; 0 when it cannot go on."""
    noted = records.read()
    try:
        status = partial.lstat()
    except OSError:
        return 0, None
    ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1  # no link to another file
    known = (noted.get("url"), noted.get("inode")) == (redact(url), status.st_ino)
    validator = noted.get("validator")
    if ours and known and isinstance(validator, str) and _VALIDATOR.fullmatch(validator):
        return status.st_size, validator
    return 0, None


def _start_anew(url: str, partial: Path, validator: str | None, records: Transfers) -> None:
    """Remove the old bytes, then write the validator of the new ones, before the first comes.

    In this order a process that is killed between two of the steps never leaves bytes beside the
    validator of other bytes, with which the next call would continue them.
    """
    forget(partial, records)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    inode = partial.lstat().st_ino
    records.write({"url": redact(url), "validator": validator, "inode": inode})


def forget(partial: Path, records: Transfers) -> None:
    """Remove an unfinished transfer and what is recorded of it."""
    records.forget()
    remove_tree(partial)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def sha256_of(file: int) -> str:
    """Return the SHA-256 of an open file, from where it stands."""
    digest = hashlib.sha256()
    _digest_stream(lambda size: os.read(file, size), digest)
    return digest.hexdigest()


def local_path(url: str) -> Path:
    """Return the path that a file:// url names.

    Raises:
        WorkspaceError: it names another host, or a path that does not exist.
    """
    host, slash, rest = url.removeprefix("file://").partition("/")
    if host not in ("", "localhost"):
        raise WorkspaceError(f"{redact(url)}: a file url cannot name the host {host!r}")
    for text in (unquote(rest), rest):
        if os.path.lexists(slash + text):
            return Path(slash + text)
    raise WorkspaceError(f"{redact(url)}: there is no such file or folder")


def copy(source: Path, partial: Path) -> str | None:
    """Copy a file or folder to `partial`; return the SHA-256 of a file, None for a folder.

    Links within the folder stay links; of a link that leads out of it, the target is copied.
    """
    root = source.resolve()
    if not root.is_dir():
        return _copy_file(root, partial)
    if partial.resolve().is_relative_to(root):
        raise WorkspaceError(f"cannot copy {source} into itself, to {partial.parent}")
    _copy_folder(root, partial, root)
    return None


def _copy_folder(source: Path, target: Path, root: Path) -> None:
    left = [(source, target)]  # no recursion: folders can be deeper in each other than that goes
    while left:
        source, target = left.pop()
        target.mkdir()
        for entry in sorted(source.iterdir()):
            place = target / entry.name
            if entry.is_symlink():
                meant = entry.resolve()
                if meant.is_relative_to(root):
                    place.symlink_to(os.path.relpath(meant, entry.parent.resolve()))
                    continue
                if root.is_relative_to(meant):
                    raise WorkspaceError(
                        f"cannot copy {entry}: the link leads to a folder above it"
                    )
            if entry.is_dir():
                left.append((entry.resolve() if entry.is_symlink() else entry, place))
            else:
                _copy_file(entry, place)


def _copy_file(source: Path, target: Path) -> str:
    try:
        if not stat.S_ISREG(source.stat().st_mode):
            raise WorkspaceError(f"cannot copy {source}: neither a file nor a folder")
        digest = hashlib.sha256()
        with source.open("rb") as reading, target.open("wb") as writing:
            while block := reading.read(_BLOCK):
                writing.write(block)
                digest.update(block)
        shutil.copymode(source, target)
    except FileNotFoundError:
        raise WorkspaceError(f"cannot copy {source}: the link leads nowhere") from None
    return digest.hexdigest()
