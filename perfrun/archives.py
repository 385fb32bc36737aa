"""Unpack a tar archive beside itself, without letting it reach anywhere else."""

from __future__ import annotations

import filecmp
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from perfrun.errors import WorkspaceError

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
