"""Data for benchmarks: the items of `--data_downloads` under `--root_data_dir` (docs/workspace.md).

    <root>/<path>                    a file or folder; used as it is if it is there already
    <root>/.<name>.perfrun.json      a note beside it: its url and its SHA-256
    <root>/<name>.partial            an unfinished transfer

A tar archive is unpacked beside itself, and can write nowhere else.
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
from perfrun.worker.outcome_file import write_json
from perfrun.workspace import http_transfer

_BROKEN = (tarfile.TarError, EOFError, zlib.error, LZMAError)


def looks_packed(url: str) -> bool:
    """Return True when the file of this url is to be unpacked, by PerfZero's rule widened a bit."""
    return is_called_tar(url) or _name(url).endswith(".gz")


def is_called_tar(url: str) -> bool:
    """Return True when the url names a tar archive; a `.gz` alone may be any file."""
    return _name(url).endswith((".tgz", ".tar")) or ".tar." in _name(url)


def _name(url: str) -> str:
    return PurePosixPath(urlsplit(url).path).name.lower()


def unpack_beside(archive: Path, *, must_be_tar: bool) -> bool:
    """Unpack `archive` into its folder; False when it is no tar archive and need not be one.

    All of it is unpacked aside first, so that a broken or hostile archive leaves nothing. Existing
    files stay.

    Raises:
        WorkspaceError: it is broken, leads out of the folder, or would replace an existing file.
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
            # The standard filter resolves such paths, and attacks on that have succeeded.
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
    """Move all files to their places, once all of them can be moved."""
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
    """Yield pairs of old and new path: whole folders where none is in the way."""
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_dir() and not entry.is_symlink() and place.is_dir():
            yield from _moves(entry, place)
        else:
            yield entry, place


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
