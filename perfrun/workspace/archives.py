"""Unpack tar archives that a stranger wrote.

Everything is unpacked into a folder aside, through descriptors of its folders, and moved to its
place when all of it is there. Symbolic links are made last, so nothing is ever written through one.
The members are read by `tarfile`, and extracted by this module: the filters of `tarfile` have been
evaded more than once, and those of older Pythons stay as they are.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from perfrun.errors import WorkspaceError
from perfrun.untrusted import opened, remove_tree

if TYPE_CHECKING:
    Parts = tuple[str, ...]  # of a path below the folder of the archive

MOST_TIMES = 100  # so many times the size of an archive may its content have,
MOST_BYTES = 1 << 30  # and so much besides
MOST_MEMBERS = 100_000  # and one more for each 64 bytes of the archive
MOST_STREAMED = 1_000_000  # members of an archive whose size nobody knows
MOST_DEPTH = 64  # folders in each other
MOST_NAME = 1024  # bytes of a path
_MOST_HEADER = 1 << 20  # bytes that say what one member is: names, extended headers, sparse maps
_MOST_GLOBAL = 1000  # keys of global extended headers
_MOST_XZ_MEMORY = 1 << 30
_LATEST = 1 << 33  # seconds since the epoch; what lies beyond is no time of change
_BLOCK = 1 << 20
_SHOWN = 100  # characters of a name in a message
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What `tarfile` and the decompressors raise for bytes that make no sense.
_SENSELESS = (
    *(tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile),
    *(ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError),
    MemoryError,
)


class _Broken(Exception):  # noqa: N818 - always caught here
    """An archive that cannot be read to its end."""


class _Refused(Exception):  # noqa: N818 - always caught here
    """An archive that would do what archives may not."""


def unpack_beside(
    archive: Path,
    *,
    must_be_tar: bool,
    most_bytes: int | None = None,
    links: bool = True,
    compressed: bool = True,
) -> bool:
    """Unpack `archive` into its folder; False when it is no tar archive and need not be one.

    All of it is unpacked aside first, so that a broken or hostile archive leaves nothing. Existing
    files stay. `most_bytes` is the most that its content may have, whatever its size; without
    `links` it may hold none, neither symbolic nor hard, and without `compressed` it must be plain.

    Raises:
        WorkspaceError: it is broken, leads out of the folder, is larger than its size allows, or
            would replace an existing file.
    """
    aside = archive.with_name(f".{archive.name}.unpacking")
    with opened(archive) as (file, size):
        try:
            most = MOST_TIMES * size + MOST_BYTES if most_bytes is None else most_bytes
            with _content(file, most, compressed=compressed) as content:
                tar = _opened_tar(content)
                if tar is None:
                    if must_be_tar:
                        raise WorkspaceError(f"{archive} is not a tar archive that Python can read")
                    return False
                remove_tree(aside)
                aside.mkdir(0o700)
                with _folder(archive.parent) as folder, _folder(aside.name, folder) as inside:
                    _extract(tar, content, inside, MOST_MEMBERS + size // 64, links=links)
                    _move_in(inside, folder, archive.parent)
        except _Broken as error:
            raise WorkspaceError(f"{archive} is broken: {error}") from None
        except _Refused as error:
            raise WorkspaceError(f"{archive} is not unpacked: {error}") from None
        finally:
            remove_tree(aside)
    return True


def unpack_stream(stream: IO[bytes], folder: Path, *, most_bytes: int) -> None:
    """Unpack a plain archive without links, as it arrives, into a folder that is empty.

    What was unpacked before a failure stays there: the caller removes the folder.

    Raises:
        WorkspaceError: it is broken, leads out of the folder, has a link, or is too large.
    """
    content = _Content(stream, most_bytes)
    tar = _opened_tar(content)
    if tar is None:
        raise WorkspaceError("what came is not a tar archive that Python can read")
    try:
        with _folder(folder) as inside:
            _extract(tar, content, inside, MOST_STREAMED, links=False)
    except _Broken as error:
        raise WorkspaceError(f"what came is broken: {error}") from None
    except _Refused as error:
        raise WorkspaceError(f"what came is not unpacked: {error}") from None


@contextlib.contextmanager
def _folder(path: Path | str, folder: int | None = None) -> Iterator[int]:
    """Open a folder; a path from the top is the user's and may contain links."""
    flags = _FOLDER if folder is not None else os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# Reading


class _Content:
    """The content of an archive as a file for `tarfile`: read forwards only, and never too much."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._position = 0
        self._most = most
        self.header_left = _MOST_HEADER  # bytes that may be read before the next member's content

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        if not 0 <= size <= max(self.header_left, _BLOCK):
            raise _Broken("a header that is too long")
        data = self._next(size)
        self.header_left -= len(data)
        if self.header_left < 0:
            raise _Broken("a header that is too long")
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        # Backwards, a compressed archive would be read again from its beginning, each time.
        if whence != os.SEEK_SET or position < self._position:
            raise _Broken("its parts lie in no order")
        while self._position < position:
            if not self._next(min(_BLOCK, position - self._position)):
                break
        return self._position

    def seekable(self) -> bool:
        return True

    def _next(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except (OSError, *_SENSELESS) as error:
            raise _Broken(str(error) or type(error).__name__) from None
        self._position += len(data)
        if self._position > self._most:
            raise _Refused(_too_large(self._most))
        return data


def _too_large(most: int) -> str:
    return (
        f"its content is larger than {most} bytes, which is much for its size; "
        "unpack it yourself if it is meant so"
    )


@contextlib.contextmanager
def _content(file: int, most: int, *, compressed: bool) -> Iterator[_Content]:
    """Yield the content of an archive, decompressed by what its first bytes say, if it may be."""
    with os.fdopen(os.dup(file), "rb") as raw:
        if not compressed:
            yield _Content(raw, most)
            return
        begin = raw.read(1 << 16)
        raw.seek(0)
        with _decompressed(raw, begin) as stream:
            yield _Content(stream, most)


@contextlib.contextmanager
def _decompressed(raw: IO[bytes], begin: bytes) -> Iterator[IO[bytes]]:
    if begin.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=raw) as unzipped:
            yield cast("IO[bytes]", unzipped)
    elif begin.startswith(b"BZh"):
        with bz2.BZ2File(raw) as unzipped:
            yield cast("IO[bytes]", unzipped)
    elif begin.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        try:
            lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY).decompress(begin, max_length=1)
        except lzma.LZMAError as error:
            raise _Broken(str(error)) from None
        with lzma.LZMAFile(raw) as unzipped:
            yield cast("IO[bytes]", unzipped)
    else:
        yield raw


def _opened_tar(content: _Content) -> tarfile.TarFile | None:
    """Return the archive with its first member read; None when it is none."""
    try:
        return tarfile.TarFile(fileobj=cast("IO[bytes]", content))
    except (_Broken, *_SENSELESS):  # also one that is compressed and cut off in the first member
        return None


# Unpacking


def _extract(
    tar: tarfile.TarFile, content: _Content, aside: int, most_members: int, *, links: bool
) -> None:
    """Unpack all members into a folder that is empty."""
    tree = _Tree(aside)
    try:
        for count, member in enumerate(_members(tar, content)):
            if count == most_members:
                raise _Refused(f"more than {most_members} members")
            if not links and (member.issym() or member.islnk()):
                raise _Refused(f"{_short(member.name)} is a link")
            tree.put(tar, member)
        tree.make_links()
    finally:
        tree.close()


def _members(tar: tarfile.TarFile, content: _Content) -> Iterator[tarfile.TarInfo]:
    while True:
        content.header_left = _MOST_HEADER
        try:
            member = tar.next()
        except _SENSELESS as error:
            raise _Broken(str(error) or type(error).__name__) from None
        if member is None:
            return
        tar.members.clear()  # type: ignore[attr-defined] # it keeps all of them, for lookups
        if len(tar.pax_headers) > _MOST_GLOBAL:
            raise _Broken("too many global headers")
        content.header_left = 1 << 62
        yield member


class _Tree:
    """The folder that is unpacked into, and the links that are not made yet."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._links: dict[Parts, str] = {}
        self._last: tuple[Parts, int] = ((), os.dup(root))  # the folder of the last member
        self._bytes = 0

    def close(self) -> None:
        os.close(self._last[1])

    def put(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Unpack one member, a symbolic link excepted, which is only noted."""
        parts = _parts(member.name)
        if not parts:
            if member.isdir():
                return  # the folder itself
            raise _Refused(f"{_short(member.name)} is no name")
        self._check_way(parts)
        if member.isdir():
            self._reach(parts)
            return
        folder = self._reach(parts[:-1])
        if member.issym():
            self._note_link(parts, member.linkname)
        elif member.islnk():
            self._link(folder, parts, member.linkname)
        elif member.isreg():
            self._write(folder, parts, tar, member)
        else:
            raise _Refused(f"{_short(member.name)} is neither a file, a folder nor a link")

    def make_links(self) -> None:
        """Make the symbolic links."""
        links, self._links = self._links, {}
        for parts, target in links.items():
            os.symlink(target, parts[-1], dir_fd=self._reach(parts[:-1]))

    def _check_way(self, parts: Parts) -> None:
        for length in range(1, len(parts)):
            if parts[:length] in self._links:
                raise _Refused(f"{_text(parts)} would be unpacked through a link")

    def _reach(self, parts: Parts) -> int:
        """Return the descriptor of a folder, made where it is missing; open until the next call."""
        if self._last[0] == parts:
            return self._last[1]
        here = os.dup(self._root)
        try:
            for length, name in enumerate(parts, 1):
                if parts[:length] in self._links:
                    raise _Refused(f"{_text(parts)} is there twice, once as a link")
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                try:
                    below = os.open(name, _FOLDER, dir_fd=here)
                except NotADirectoryError:
                    raise _Refused(f"{_text(parts)} leads through a file") from None
                os.close(here)
                here = below
        except BaseException:
            os.close(here)
            raise
        os.close(self._last[1])
        self._last = (parts, here)
        return here

    def _note_link(self, parts: Parts, target: str) -> None:
        """Check and note a link: one that leads inside wherever the links on its way lead.

        Its target is normalised: a `..` after a name would lead up from wherever that name leads.
        """
        plain = posixpath.normpath(target)
        up = plain.split("/").count("..")
        if not target or "\0" in target or plain.startswith("/") or up >= len(parts):
            raise _Refused(f"{_text(parts)} links out of it, to {_short(target)}")
        self._make_room(self._last[1], parts)
        self._links[parts] = plain

    def _link(self, folder: int, parts: Parts, name: str) -> None:
        """Make a second name of a file that is unpacked already."""
        of = _parts(name)
        self._check_way(of)
        if of == parts:
            return
        if of in self._links:  # both names are links with one target, each from its own place
            self._note_link(parts, self._links[of])
            return
        self._make_room(folder, parts)
        try:
            with self._held(of[:-1]) as source:
                if not stat.S_ISREG(os.stat(of[-1], dir_fd=source, follow_symlinks=False).st_mode):
                    raise _Refused(f"{_text(parts)} is a second name of a folder")
                os.link(
                    of[-1], parts[-1], src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False
                )
        except (FileNotFoundError, NotADirectoryError, IndexError):
            raise _Refused(
                f"{_text(parts)} is a second name of {_short(name)}, which does not come before it"
            ) from None

    @contextlib.contextmanager
    def _held(self, parts: Parts) -> Iterator[int]:
        """Open a folder that is unpacked already."""
        here = os.dup(self._root)
        try:
            for name in parts:
                below = os.open(name, _FOLDER, dir_fd=here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    def _write(
        self, folder: int, parts: Parts, tar: tarfile.TarFile, member: tarfile.TarInfo
    ) -> None:
        most = cast("Any", tar.fileobj)._most  # the file is a `_Content`
        self._bytes += member.size
        if member.size < 0 or self._bytes > most:  # a sparse one can be larger than the archive
            raise _Refused(_too_large(most))
        self._make_room(folder, parts)
        file = os.open(parts[-1], _NEW, 0o600, dir_fd=folder)
        with os.fdopen(file, "wb", buffering=0) as writing:
            for block in _blocks(tar, member):
                rest = memoryview(block)
                while rest:
                    rest = rest[writing.write(rest) :]
            mode = member.mode & 0o755 | 0o600
            os.fchmod(file, mode if mode & 0o100 else mode & ~0o111)
            if 0 <= member.mtime < _LATEST:
                os.utime(file, (member.mtime, member.mtime))

    def _make_room(self, folder: int, parts: Parts) -> None:
        """Remove what an earlier member of this name has left: the last one counts."""
        self._links.pop(parts, None)
        try:
            os.unlink(parts[-1], dir_fd=folder)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            raise _Refused(f"{_text(parts)} is there twice, once as a folder") from None


def _blocks(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    left = member.size
    try:
        reader = tar.extractfile(member)
        while left > 0 and reader is not None:
            block = reader.read(min(_BLOCK, left))
            if not block:
                raise _Broken("unexpected end of data")
            left -= len(block)
            yield block
    except _SENSELESS as error:
        raise _Broken(str(error) or type(error).__name__) from None


def _parts(name: str) -> Parts:
    """Return the parts of a member's path. One from the top is taken as one from the folder."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or "\0" in name:
        raise _Refused(f"{_short(name)} leads out of it")
    if len(parts) > MOST_DEPTH or len(os.fsencode(name)) > MOST_NAME:
        raise _Refused(f"{_short(name)} is too long or too deep a path")
    return parts


def _text(parts: Parts) -> str:
    return _short("/".join(parts))


def _short(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN else repr(name[:_SHOWN]) + "..."


# Moving to its place


def _move_in(aside: int, folder: int, path: Path) -> None:
    """Move all files to their places, once all of them can be moved."""
    _merge(aside, folder, path, moves=False)
    _merge(aside, folder, path, moves=True)


def _merge(source: int, target: int, path: Path, *, moves: bool) -> None:
    """Move whole folders where none is in the way, or only check that all can be moved."""
    for name in sorted(os.listdir(source)):
        new = os.stat(name, dir_fd=source, follow_symlinks=False)
        try:
            old = os.stat(name, dir_fd=target, follow_symlinks=False)
        except FileNotFoundError:
            if moves:
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
            continue
        if stat.S_ISDIR(new.st_mode) and stat.S_ISDIR(old.st_mode):
            with _folder(name, source) as here, _folder(name, target) as there:
                _merge(here, there, path / name, moves=moves)
        elif not moves and not _is_same(name, source, new, target, old):
            raise WorkspaceError(
                f"unpacking would replace {path / name}, which differs; move it away"
            )


def _is_same(name: str, source: int, new: os.stat_result, target: int, old: os.stat_result) -> bool:
    """Return True for two files of the same bytes, and two links of the same target."""
    if stat.S_IFMT(new.st_mode) != stat.S_IFMT(old.st_mode):
        return False
    if stat.S_ISLNK(new.st_mode):
        return os.readlink(name, dir_fd=source) == os.readlink(name, dir_fd=target)
    if not stat.S_ISREG(new.st_mode) or new.st_size != old.st_size:
        return False
    with opened(name, folder=source) as (here, _), opened(name, folder=target) as (there, _):
        while block := os.read(here, _BLOCK):
            if block != _exactly(there, len(block)):
                return False
        return not os.read(there, 1)


def _exactly(file: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    return data
