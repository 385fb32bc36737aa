"""Transfer the bytes of one url to a file aside: by http(s), resumed and retried, or by a copy.

`workspace.downloads` checks the file and gives it its final name.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from perfrun.errors import WorkspaceError
from perfrun.text import redact

if TYPE_CHECKING:
    import requests

_BLOCK = 1 << 20
_TRIES_WITHOUT_PROGRESS = 5
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_CONNECT_S = 20.0
_SILENCE_S = 120.0
_MAY_PASS = (408, 425, 429, 500, 502, 503, 504)


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


def download(url: str, partial: Path, notify: Callable[[str], None]) -> str:
    """Fetch an http(s) url into `partial` and return its SHA-256.

    A transfer that was interrupted is continued if the server confirms that the file is still the
    same, else started anew.

    Raises:
        WorkspaceError: the server refuses, or cannot be reached.
    """
    import requests  # 60 ms, not needed when the data is there

    failures = 0
    with requests.Session() as session:
        while True:
            before = _size(partial)
            try:
                return _attempt(session, url, partial)
            except _TransferBroken as error:
                failures = 1 if _size(partial) > before else failures + 1
                if failures >= _TRIES_WITHOUT_PROGRESS:
                    raise WorkspaceError(
                        f"cannot download {redact(url)}: {error} ({failures} tries)"
                    ) from None
                pause_s = max(error.pause_s, _FIRST_PAUSE_S * 2 ** (failures - 1))
                notify(f"downloading {redact(url)}: {error}; trying again")
                time.sleep(min(pause_s, _LONGEST_PAUSE_S))


def _attempt(session: requests.Session, url: str, partial: Path) -> str:
    import requests
    import urllib3

    have, validator = _resumable(url, partial)
    headers = {"Accept-Encoding": "identity"}  # the bytes of the file, for lengths and ranges
    if have and validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    try:
        with session.get(
            url, headers=headers, stream=True, timeout=(_CONNECT_S, _SILENCE_S)
        ) as response:
            answer = _read_answer(response.status_code, response.headers, url, partial, have)
            if not answer.start:
                _start_anew(url, partial, answer.validator)
            # Not iter_content: that would unpack a .gz which a server calls "encoded".
            blocks = response.raw.stream(_BLOCK, decode_content=False)
            return _write(blocks, partial, answer)
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
        raise WorkspaceError(f"cannot download {redact(url)}: {redact(str(error))}") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _TransferBroken(_reason(error)) from None


def _read_answer(
    status: int, headers: Mapping[str, str], url: str, partial: Path, have: int
) -> _Answer:
    """Return the range that status and headers announce; raise when they announce none."""
    length = headers.get("Content-Length", "")
    size = int(length) if length.isdigit() else None
    validator = headers.get("ETag") or headers.get("Last-Modified")
    if validator and validator.startswith("W/"):
        validator = headers.get("Last-Modified")  # a weak tag does not stand for the same bytes
    if status == 206:
        unit_range, _, total = headers.get("Content-Range", "").rpartition("/")
        if not unit_range.startswith(f"bytes {have}-"):
            partial.unlink(missing_ok=True)
            raise _TransferBroken("the server sent another range than asked for")
        return _Answer(
            start=have, total=int(total) if total.isdigit() else None, validator=validator
        )
    if status == 200:
        return _Answer(start=0, total=size, validator=validator)
    if status == 416:
        partial.unlink(missing_ok=True)
        raise _TransferBroken("the file has changed at the server")
    if status in _MAY_PASS:
        after = headers.get("Retry-After", "")
        raise _TransferBroken(
            f"the server answers {status}", float(after) if after.isdigit() else 0.0
        )
    raise WorkspaceError(f"cannot download {redact(url)}: the server answers {status}")


def _write(blocks: Iterator[bytes], partial: Path, answer: _Answer) -> str:
    digest = hashlib.sha256()
    with partial.open("r+b" if answer.start else "wb") as stream:
        _digest_stream(stream.read, digest, answer.start)
        stream.seek(answer.start)
        stream.truncate()
        for block in blocks:
            stream.write(block)
            digest.update(block)
        size = stream.tell()
    if answer.total is not None and size != answer.total:
        if size > answer.total:
            partial.unlink()
        raise _TransferBroken(f"got {size} of {answer.total} bytes")
    return digest.hexdigest()


def _digest_stream(
    read: Callable[[int], bytes], digest: hashlib._Hash, size: int | None = None
) -> None:
    left = size if size is not None else 1 << 62
    while left > 0 and (block := read(min(_BLOCK, left))):
        digest.update(block)
        left -= len(block)


def _resumable(url: str, partial: Path) -> tuple[int, str | None]:
    """Return the size of an unfinished transfer and its validator; 0 when it cannot go on."""
    try:
        noted = json.loads(_validator_file(partial).read_text(encoding="utf-8"))
        if noted["url"] == redact(url) and noted["validator"]:
            return _size(partial), str(noted["validator"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, None


def _start_anew(url: str, partial: Path, validator: str | None) -> None:
    """Remove the old bytes, then write the validator of the new ones, before the first comes.

    In this order a process that is killed between two of the steps never leaves bytes beside the
    validator of other bytes, with which the next call would continue them.
    """
    forget(partial)
    note = json.dumps({"url": redact(url), "validator": validator})
    _validator_file(partial).write_text(note + "\n", encoding="utf-8")


def _validator_file(partial: Path) -> Path:
    return partial.with_name(f".{partial.name}.json")


def forget(partial: Path) -> None:
    """Remove an unfinished transfer and its validator."""
    if partial.is_dir() and not partial.is_symlink():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)
    forget_validator(partial)


def forget_validator(partial: Path) -> None:
    """Remove the validator of a transfer that is complete."""
    _validator_file(partial).unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reason(error: BaseException) -> str:
    """Return the innermost cause, which says most under the layers of requests and urllib3."""
    while True:
        inner = getattr(error, "reason", None) or next(
            (part for part in error.args if isinstance(part, BaseException)), None
        )
        if not isinstance(inner, BaseException):
            return redact(f"{str(error).rpartition('>: ')[2] or type(error).__name__}")[:200]
        error = inner


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        _digest_stream(stream.read, digest)
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
    target.mkdir()
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_symlink():
            meant = entry.resolve()
            if meant.is_relative_to(root):
                place.symlink_to(os.path.relpath(meant, entry.parent.resolve()))
                continue
            if root.is_relative_to(meant):
                raise WorkspaceError(f"cannot copy {entry}: the link leads to a folder above it")
        if entry.is_dir():
            _copy_folder(entry.resolve(), place, root)
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
