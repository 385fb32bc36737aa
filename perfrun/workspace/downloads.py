"""Data for benchmarks: `--data_downloads` in `--root_data_dir` (docs/reference/workspace.md).

    <root>/<path>                    a file or folder; used as it is if it is there already
    <root>/<name>.partial            an unfinished transfer
    <workspace>/data-records/        their urls and SHA-256 (`data_records`)

A tar archive is unpacked beside itself, and can write nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.plan import DataSpec
from perfrun.text import redact
from perfrun.untrusted import Refused, opened
from perfrun.workspace import http_transfer
from perfrun.workspace.archives import unpack_beside
from perfrun.workspace.data_records import DataRecord, DataRecords, record_of


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


def provide_data(
    items: Sequence[DataSpec], *, root: Path, records: Path, notify: Callable[[str], None]
) -> tuple[Dataset, ...]:
    """Download the items that are not under `root` yet, and return all of them.

    `records` is the folder of what is known of them, where no archive and no trial can write.

    Raises:
        WorkspaceError: an item cannot be downloaded, or has another SHA-256 than asked for.
    """
    known = DataRecords(records)
    return tuple(_provide(item, root, known, notify) for item in items)


def _provide(
    item: DataSpec, root: Path, records: DataRecords, notify: Callable[[str], None]
) -> Dataset:
    path = root / item.relative_path
    try:
        record = _record(path, records)
        settled = os.path.lexists(path) and (record is None or record.unpacked is not None)
        downloaded = False
        if not settled:
            downloaded = _bring(item, path, records, notify)
        return _describe(item, path, records, downloaded, notify)
    except Refused as error:
        raise WorkspaceError(f"--root_data_dir {root}: {error} ({path})") from None
    except OSError as error:
        raise WorkspaceError(
            f"--root_data_dir {root}: {error.strerror or error} ({error.filename or path})"
        ) from None


def _bring(item: DataSpec, path: Path, records: DataRecords, notify: Callable[[str], None]) -> bool:
    """Fetch and unpack an item unless another run did so; return True when it was fetched here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.perfrun.lock")) as lock:
        waits_for = f"waiting for another run that downloads {redact(item.url)}"
        lock.own(lambda: notify(f"{waits_for}{lock.holder}"))
        downloaded = not os.path.lexists(path)
        if downloaded:
            notify(f"downloading {redact(item.url)}")
            _fetch(item, path, records, notify)
        record = _record(path, records)
        if record is not None and record.unpacked is None:
            unpacked = unpack_beside(path, must_be_tar=is_called_tar(_url(item)))
            records.write(path, replace(record, unpacked=unpacked))
    return downloaded


def _url(item: DataSpec) -> str:
    """Return the url without one trailing `*` and then one trailing `/`, as PerfZero does."""
    return item.url.removesuffix("*").removesuffix("/")


def _fetch(item: DataSpec, path: Path, records: DataRecords, notify: Callable[[str], None]) -> None:
    """Transfer an item to a file aside, check it, record it, and rename it."""
    url = _url(item)
    partial = path.with_name(f"{path.name}.partial")
    transfer = records.transfer(path)
    if url.startswith("file:"):
        http_transfer.forget(partial, transfer)
        sha256 = http_transfer.copy(http_transfer.local_path(url), partial)
    else:
        sha256 = http_transfer.download(url, partial, transfer, notify)
    if item.sha256 and sha256 != item.sha256:
        http_transfer.forget(partial, transfer)
        raise WorkspaceError(
            f"{redact(item.url)} has sha256 {sha256}, not {item.sha256} as asked; nothing was kept"
            if sha256
            else f"{redact(item.url)} is a folder, which has no sha256"
        )
    packed = sha256 is not None and looks_packed(url)
    known = {"url": redact(item.url), "sha256": sha256, "unpacked": None if packed else False}
    # Before the rename: a file without a record counts as the user's own, and is not unpacked. And
    # after it: the rename is a change of the file, after which the record would prove no sum.
    records.write(path, record_of(partial.lstat(), **known))  # type: ignore[arg-type]
    partial.rename(path)
    records.write(path, record_of(path.lstat(), **known))  # type: ignore[arg-type]
    transfer.forget()


def _describe(
    item: DataSpec,
    path: Path,
    records: DataRecords,
    downloaded: bool,
    notify: Callable[[str], None],
) -> Dataset:
    record = _record(path, records)
    if record is None or not record.proves(path.stat()):
        record = _hashed(path, record, records, notify)
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


def _hashed(
    path: Path, known: DataRecord | None, records: DataRecords, notify: Callable[[str], None]
) -> DataRecord:
    """Return and write the record of data whose SHA-256 is not known, or not sure any more."""
    url = known.url if known is not None else None
    unpacked = known.unpacked if known is not None else False
    if path.is_dir():
        return record_of(path.stat(), url=url, sha256=None, unpacked=False)
    notify(f"computing the sha256 of {path}")
    with opened(path.resolve()) as (file, _):
        # Its state before: what changes it meanwhile makes the record one of another state.
        status = os.fstat(file)
        sha256 = http_transfer.sha256_of(file)
    record = record_of(status, url=url, sha256=sha256, unpacked=unpacked)
    records.write(path, record)
    return record


def _record(path: Path, records: DataRecords) -> DataRecord | None:
    """Return the record of the file that is there; None if there is none, or it is of another."""
    record = records.read(path)
    try:
        return record if record is not None and record.is_of(path.stat()) else None
    except OSError:
        return None
