"""Data for benchmarks: everything `--data_downloads` names, under `--root_data_dir`.

    <root>/<path>                    a file or folder; used as it is if it is there already
    <root>/.<name>.perfrun.json      beside it: where it came from and its SHA-256
    <root>/<name>.partial            a transfer under way, or to be continued

Docs: docs/workspace.md.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from perfrun import transfer
from perfrun.archives import is_called_tar, looks_packed, unpack_beside
from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.plan import DataSpec
from perfrun.redaction import redact


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One item of data as it is on disk."""

    url: str  # redacted
    path: str
    sha256: str | None  # None for a folder
    size_bytes: int | None  # None for a folder
    downloaded: bool  # by this call
    unpacked: bool  # its content is unpacked beside it, by this call or an earlier one


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The note beside a file; believed as long as size and time of change are the file's."""

    url: str | None  # None: it was there before perfrun
    sha256: str | None
    size: int | None
    mtime_ns: int | None
    unpacked: bool | None  # None: still to be done; False: nothing to unpack


def provide_data(
    items: Sequence[DataSpec], *, root: Path, notify: Callable[[str], None]
) -> tuple[Dataset, ...]:
    """Have every item under `root`, and say what is there.

    Raises:
        WorkspaceError: an item cannot be had, or what is there is not what was asked for.
    """
    return tuple(_provide(item, root, notify) for item in items)


def _provide(item: DataSpec, root: Path, notify: Callable[[str], None]) -> Dataset:
    path = root / item.relative_path
    try:
        record = _read_record(path)
        settled = os.path.lexists(path) and (record is None or record.unpacked is not None)
        downloaded = False
        if not settled:
            downloaded = _bring(item, path, notify)
        return _describe(item, path, downloaded, notify)
    except OSError as error:
        raise WorkspaceError(
            f"--root_data_dir {root}: {error.strerror or error} ({error.filename or path})"
        ) from None


def _bring(item: DataSpec, path: Path, notify: Callable[[str], None]) -> bool:
    """Fetch and unpack, unless another run did so meanwhile; say whether it was fetched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.perfrun.lock")) as lock:
        lock.own(lambda: notify(f"waiting for another run that downloads {redact(item.url)}"))
        downloaded = not os.path.lexists(path)
        if downloaded:
            notify(f"downloading {redact(item.url)}")
            _fetch(item, path, notify)
        record = _read_record(path)
        if record is not None and record.unpacked is None:
            unpacked = unpack_beside(path, must_be_tar=is_called_tar(_url(item)))
            _write_record(path, replace(record, unpacked=unpacked))
    return downloaded


def _url(item: DataSpec) -> str:
    """Return the url as PerfZero takes it: less one trailing `*`, then less one `/`."""
    return item.url.removesuffix("*").removesuffix("/")


def _fetch(item: DataSpec, path: Path, notify: Callable[[str], None]) -> None:
    """Transfer to a file aside, check it, note what it is, and give it its name."""
    url = _url(item)
    partial = path.with_name(f"{path.name}.partial")
    if url.startswith("file:"):
        transfer.forget(partial)
        sha256 = transfer.copy(transfer.local_path(url), partial)
    else:
        sha256 = transfer.download(url, partial, notify)
    if item.sha256 and sha256 != item.sha256:
        transfer.forget(partial)
        raise WorkspaceError(
            f"{redact(item.url)} has sha256 {sha256}, not {item.sha256} as asked; nothing was kept"
            if sha256
            else f"{redact(item.url)} is a folder, which has no sha256"
        )
    stat = partial.stat()
    packed = sha256 is not None and looks_packed(url)
    # Before the rename: a file without a record would be taken for the user's own.
    _write_record(
        path,
        _Record(
            url=redact(item.url),
            sha256=sha256,
            size=stat.st_size if sha256 else None,
            mtime_ns=stat.st_mtime_ns if sha256 else None,
            unpacked=None if packed else False,
        ),
    )
    partial.rename(path)
    transfer.forget_note(partial)


def _describe(
    item: DataSpec, path: Path, downloaded: bool, notify: Callable[[str], None]
) -> Dataset:
    record = _read_record(path)
    if record is None:
        record = _record_of_own(path, notify)
    if item.sha256 and record.sha256 != item.sha256:
        has = f"has sha256 {record.sha256}" if record.sha256 else "is a folder"
        raise WorkspaceError(
            f"{path} {has}, not sha256 {item.sha256} as asked; move it away to download it anew"
        )
    return Dataset(
        url=redact(item.url),
        path=str(path),
        sha256=record.sha256,
        size_bytes=record.size,
        downloaded=downloaded,
        unpacked=bool(record.unpacked),
    )


def _record_of_own(path: Path, notify: Callable[[str], None]) -> _Record:
    """Return, and if possible keep, a record of data that perfrun did not bring."""
    if path.is_dir():
        return _Record(url=None, sha256=None, size=None, mtime_ns=None, unpacked=False)
    notify(f"computing the sha256 of {path}")
    stat = path.stat()
    record = _Record(
        url=None,
        sha256=transfer.sha256_of(path),
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        unpacked=False,
    )
    # A read-only folder of data is good enough; it is then hashed again next time.
    with contextlib.suppress(OSError):
        _write_record(path, record)
    return record


def _read_record(path: Path) -> _Record | None:
    """Return the record beside `path`; None if there is none, or it is of another file."""
    try:
        record = _Record(**json.loads(_record_file(path).read_text(encoding="utf-8")))
        stat = path.stat()
    except (OSError, ValueError, TypeError):
        return None
    if path.is_dir():
        return record if record.sha256 is None else None
    return record if (record.size, record.mtime_ns) == (stat.st_size, stat.st_mtime_ns) else None


def _write_record(path: Path, record: _Record) -> None:
    place = _record_file(path)
    aside = place.with_name(f"{place.name}.new")
    aside.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    aside.replace(place)


def _record_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.perfrun.json")
