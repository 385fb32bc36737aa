"""Data for benchmarks: everything `--data_downloads` names, under `--root_data_dir`.

    <root>/<path>                    a file or folder; used as it is if it is there already
    <root>/.<name>.perfrun.json      beside it: where it came from and its SHA-256
    <root>/<name>.partial            a transfer under way, or to be continued

Docs: docs/workspace.md.

Unpack a tar archive beside itself, without letting it reach anywhere else.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.plan import DataSpec
from perfrun.text import redact
from perfrun.workspace import transfer

_BROKEN = (tarfile.TarError, EOFError, zlib.error, LZMAError)


def looks_packed(url: str) -> bool:
    """Say whether PerfZero's rule, a bit widened, wants the file of this url unpacked."""
    return is_called_tar(url) or _name(url).endswith(".gz")


def is_called_tar(url: str) -> bool:
    """Say whether the url's name promises a tar archive; a `.gz` alone may be any file."""
    return _name(url).endswith((".tgz", ".tar")) or ".tar." in _name(url)


def _name(url: str) -> str:
    return PurePosixPath(urlsplit(url).path).name.lower()


def unpack_beside(archive: Path, *, must_be_tar: bool) -> bool:
    """Unpack `archive` into its folder; False if it is no tar archive and need not be one.

    All of it is unpacked aside first, so that nothing is there when it turns out to be broken or
    hostile. Files that are there already stay.

    Raises:
        WorkspaceError: broken, leads out of the folder, or would replace an existing file.
    """
    if not _is_tar(archive):
        if must_be_tar:
            raise WorkspaceError(f"{archive} is not a tar archive that Python can read")
        return False
    if not hasattr(tarfile, "data_filter"):
        raise WorkspaceError(
            "unpacking archives safely needs Python 3.10.12, 3.11.4, 3.12 or newer"
        )
    aside = archive.with_name(f".{archive.name}.unpacking")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        _extract(archive, aside)
        _move_in(aside, archive.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def _is_tar(archive: Path) -> bool:
    try:
        return tarfile.is_tarfile(archive)
    except _BROKEN:  # compressed, and cut off within the first member
        return False


def _extract(archive: Path, aside: Path) -> None:
    links: set[PurePosixPath] = set()

    def checked(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
        path = PurePosixPath(member.name)
        through = {
            *path.parents,
            *(PurePosixPath(member.linkname).parents if member.islnk() else ()),
        }
        if links & through:
            # The standard filter resolves such paths, and has been outwitted doing so.
            raise WorkspaceError(f"{archive}: {member.name!r} would be unpacked through a link")
        if member.issym():
            links.add(path)
        return tarfile.data_filter(member, destination)

    try:
        with tarfile.open(archive) as tar:
            tar.extractall(aside, filter=checked)  # noqa: S202 - that is what `checked` is for
    except tarfile.FilterError as error:
        raise WorkspaceError(f"{archive} is not unpacked: {error}") from None
    except _BROKEN as error:
        raise WorkspaceError(f"{archive} is broken: {error or type(error).__name__}") from None
    aside.mkdir(exist_ok=True)  # an empty archive
    inside = aside.resolve()
    for path in aside.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(inside):
            raise WorkspaceError(f"{archive} is not unpacked: {path.name!r} links out of it")


def _move_in(aside: Path, folder: Path) -> None:
    """Move everything to its place, after looking whether all of it can be."""
    moves = list(_moves(aside, folder))
    for source, target in moves:
        if target.is_symlink() or target.exists():
            target_is_same = (
                source.is_file()
                and not source.is_symlink()
                and target.is_file()
                and filecmp.cmp(source, target, shallow=False)
            )
            link_is_same = (
                source.is_symlink()
                and target.is_symlink()
                and source.readlink() == target.readlink()
            )
            if not (target_is_same or link_is_same):
                raise WorkspaceError(
                    f"unpacking would replace {target}, which differs; move it away"
                )
    for source, target in moves:
        if not (target.is_symlink() or target.exists()):
            source.rename(target)


def _moves(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Yield what to rename to where: whole folders where nothing is in the way."""
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_dir() and not entry.is_symlink() and place.is_dir():
            yield from _moves(entry, place)
        else:
            yield entry, place


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
