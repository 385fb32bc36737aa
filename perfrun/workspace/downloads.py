"""Data for benchmarks: the items of `--data_downloads` under `--root_data_dir` (docs/workspace.md).

    <root>/<path>                    a file or folder; used as it is if it is there already
    <root>/.<name>.perfrun.json      a note beside it: its url and its SHA-256
    <root>/<name>.partial            an unfinished transfer

A tar archive is unpacked beside itself, and can write nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.plan import DataSpec
from perfrun.text import redact
from perfrun.worker.outcome_file import write_json
from perfrun.workspace import http_transfer
from perfrun.workspace.archives import unpack_beside


def looks_packed(url: str) -> bool:
    """Return True when the file of this url is to be unpacked, by PerfZero's rule widened a bit."""
    return is_called_tar(url) or _name(url).endswith(".gz")


def is_called_tar(url: str) -> bool:
    """Return True when the url names a tar archive; a `.gz` alone may be any file."""
    return _name(url).endswith((".tgz", ".tar")) or ".tar." in _name(url)


def _name(url: str) -> str:
    return PurePosixPath(urlsplit(url).path).name.lower()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One item of data on disk."""

    url: str  # redacted
    path: str
    sha256: str | None  # None for a folder
    size_bytes: int | None  # None for a folder
    downloaded: bool  # by this call
    unpacked: bool  # its content is unpacked beside it, by this call or an earlier one


@dataclass(frozen=True, kw_only=True)
class _DataNote:
    """The note beside a file; it counts as long as the file has its size and time of change."""

    url: str | None  # None: it was there before perfrun
    sha256: str | None
    size: int | None
    mtime_ns: int | None
    unpacked: bool | None  # None: still to be done; False: nothing to unpack


def provide_data(
    items: Sequence[DataSpec], *, root: Path, notify: Callable[[str], None]
) -> tuple[Dataset, ...]:
    """Download the items that are not under `root` yet, and return all of them.

    Raises:
        WorkspaceError: an item cannot be downloaded, or has another SHA-256 than asked for.
    """
    return tuple(_provide(item, root, notify) for item in items)


def _provide(item: DataSpec, root: Path, notify: Callable[[str], None]) -> Dataset:
    path = root / item.relative_path
    try:
        note = _read_note(path)
        settled = os.path.lexists(path) and (note is None or note.unpacked is not None)
        downloaded = False
        if not settled:
            downloaded = _bring(item, path, notify)
        return _describe(item, path, downloaded, notify)
    except OSError as error:
        raise WorkspaceError(
            f"--root_data_dir {root}: {error.strerror or error} ({error.filename or path})"
        ) from None


def _bring(item: DataSpec, path: Path, notify: Callable[[str], None]) -> bool:
    """Fetch and unpack an item unless another run did so; return True when it was fetched here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.perfrun.lock")) as lock:
        lock.own(lambda: notify(f"waiting for another run that downloads {redact(item.url)}"))
        downloaded = not os.path.lexists(path)
        if downloaded:
            notify(f"downloading {redact(item.url)}")
            _fetch(item, path, notify)
        note = _read_note(path)
        if note is not None and note.unpacked is None:
            unpacked = unpack_beside(path, must_be_tar=is_called_tar(_url(item)))
            _write_note(path, replace(note, unpacked=unpacked))
    return downloaded


def _url(item: DataSpec) -> str:
    """Return the url without one trailing `*` and then one trailing `/`, as PerfZero does."""
    return item.url.removesuffix("*").removesuffix("/")


def _fetch(item: DataSpec, path: Path, notify: Callable[[str], None]) -> None:
    """Transfer an item to a file aside, check it, write its note, and rename it."""
    url = _url(item)
    partial = path.with_name(f"{path.name}.partial")
    if url.startswith("file:"):
        http_transfer.forget(partial)
        sha256 = http_transfer.copy(http_transfer.local_path(url), partial)
    else:
        sha256 = http_transfer.download(url, partial, notify)
    if item.sha256 and sha256 != item.sha256:
        http_transfer.forget(partial)
        raise WorkspaceError(
            f"{redact(item.url)} has sha256 {sha256}, not {item.sha256} as asked; nothing was kept"
            if sha256
            else f"{redact(item.url)} is a folder, which has no sha256"
        )
    stat = partial.stat()
    packed = sha256 is not None and looks_packed(url)
    # Before the rename: a file without a note counts as the user's own.
    _write_note(
        path,
        _DataNote(
            url=redact(item.url),
            sha256=sha256,
            size=stat.st_size if sha256 else None,
            mtime_ns=stat.st_mtime_ns if sha256 else None,
            unpacked=None if packed else False,
        ),
    )
    partial.rename(path)
    http_transfer.forget_validator(partial)


def _describe(
    item: DataSpec, path: Path, downloaded: bool, notify: Callable[[str], None]
) -> Dataset:
    note = _read_note(path)
    if note is None:
        note = _note_of_users_data(path, notify)
    if item.sha256 and note.sha256 != item.sha256:
        has = f"has sha256 {note.sha256}" if note.sha256 else "is a folder"
        raise WorkspaceError(
            f"{path} {has}, not sha256 {item.sha256} as asked; move it away to download it anew"
        )
    return Dataset(
        url=redact(item.url),
        path=str(path),
        sha256=note.sha256,
        size_bytes=note.size,
        downloaded=downloaded,
        unpacked=bool(note.unpacked),
    )


def _note_of_users_data(path: Path, notify: Callable[[str], None]) -> _DataNote:
    """Return a note of data that perfrun did not download, and write it if possible."""
    if path.is_dir():
        return _DataNote(url=None, sha256=None, size=None, mtime_ns=None, unpacked=False)
    notify(f"computing the sha256 of {path}")
    stat = path.stat()
    note = _DataNote(
        url=None,
        sha256=http_transfer.sha256_of(path),
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        unpacked=False,
    )
    # In a read-only folder of data the file is hashed again next time.
    with contextlib.suppress(OSError):
        _write_note(path, note)
    return note


def _read_note(path: Path) -> _DataNote | None:
    """Return the note beside `path`; None if there is none, or it is of another file."""
    try:
        note = _DataNote(**json.loads(_note_file(path).read_text(encoding="utf-8")))
        stat = path.stat()
    except (OSError, ValueError, TypeError):
        return None
    if path.is_dir():
        return note if note.sha256 is None else None
    return note if (note.size, note.mtime_ns) == (stat.st_size, stat.st_mtime_ns) else None


def _write_note(path: Path, note: _DataNote) -> None:
    write_json(str(_note_file(path)), asdict(note))


def _note_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.perfrun.json")
