"""Read and write files where a trial can write, and parse what it says.

A trial may leave anything under a name that the harness uses: a link to a private key, a named pipe
that blocks its reader, a device without an end, a file of terabytes without a block. So a folder is
held by its descriptor, no link is followed on the way to a file, only regular files are opened, and
nothing is read beyond a limit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

MOST_NAMES = 10_000  # of a folder that are returned
MOST_ENTRIES = 1_000_000  # of a folder that are looked at: a second
MOST_DEPTH = 64  # of lists and objects in each other
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A descriptor that only names a file: to open it so waits for nothing, whatever it is.
_NAMED = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ASIDE = ".next"
_LARGEST_INTEGER = 2**64


class Refused(ValueError):  # noqa: N818 - it is an answer, not a mistake of ours
    """A file that is not opened, or a text that is not parsed; the message says why."""


class Other(Protocol):
    """Another user, as whom this process may look at files (`trial_user.TrialUser`)."""

    @property
    def uid(self) -> int: ...

    def eyes(self) -> contextlib.AbstractContextManager[None]: ...


class Folder:
    """A folder in which a trial can write, held open; a context manager.

    `below` names folders in it, one for each argument; none of them may be a link. Every method
    raises OSError where the system does, and Refused for what is no regular file.
    """

    def __init__(self, path: Path, *below: str) -> None:
        self._path = path.joinpath(*below)
        self._descriptor = os.open(path, _FOLDER)
        for name in below:
            outer = self._descriptor
            try:
                self._descriptor = os.open(_single(name), _FOLDER, dir_fd=outer)
            finally:
                os.close(outer)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder; afterwards no method may be called."""
        os.close(self._descriptor)

    @property
    def path(self) -> Path:
        """The path by which it was opened, for messages."""
        return self._path

    @property
    def descriptor(self) -> int:
        """Its descriptor, valid until it is closed."""
        return self._descriptor

    def names(self, prefix: str = "") -> list[str]:
        """Return the names that begin with the prefix, sorted; at most `MOST_NAMES` of them."""
        with os.scandir(self._descriptor) as entries:
            names = (entry.name for entry in islice(entries, MOST_ENTRIES))
            found = islice((name for name in names if name.startswith(prefix)), MOST_NAMES)
            return sorted(found)

    def exists(self, name: str) -> bool:
        """Return True when there is a regular file of that name."""
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Return a regular file's size in bytes; None where there is none."""
        try:
            status = os.stat(_single(name), dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return a file's content; Refused for one that is larger than `most_bytes`."""
        with self._opened(name) as (file, size):
            if size <= most_bytes:
                data = _exactly(file, most_bytes + 1)  # it may have grown since
                if len(data) <= most_bytes:
                    return data
        raise Refused(f"{name} is larger than {most_bytes} bytes")

    def tail(self, name: str, most_bytes: int) -> tuple[bytes, bool]:
        """Return the end of a file, and True when something stands before it."""
        with self._opened(name) as (file, size):
            begin = max(0, size - most_bytes)
            os.lseek(file, begin, os.SEEK_SET)
            return _exactly(file, min(size, most_bytes)), begin > 0

    def text(self, name: str, most_bytes: int) -> str | None:
        """Return a file's content as text; None when it cannot be read as one."""
        with contextlib.suppress(OSError, Refused):
            return self.read(name, most_bytes).decode("utf-8", "replace")
        return None

    def json(self, name: str, most_bytes: int) -> Any:
        """Return a file's JSON. Raises OSError or Refused."""
        try:
            return parse_json(self.read(name, most_bytes))
        except Refused as error:
            raise Refused(f"{name}: {error}") from None

    def write(self, name: str, data: bytes, mode: int = 0o666, *, sync_name: bool = True) -> None:
        """Replace a file: written aside under a random name, synced, renamed, the folder synced.

        What had the name before, a link too, is replaced and never written through. Without
        `sync_name`, whoever calls it syncs the folder.
        """
        aside = f"{_before_aside(name)}{os.urandom(8).hex()}{_ASIDE}"
        file = os.open(aside, _NEW, mode, dir_fd=self._descriptor)
        try:
            try:
                _all(file, data)
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(
                aside, _single(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor
            )
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(aside, dir_fd=self._descriptor)
            raise
        if sync_name:
            self.sync()

    def remove_unfinished(self, name: str) -> None:
        """Remove what a `write` of this name left that was killed. Nobody may write it now."""
        for left in self.names(_before_aside(name)):
            if left.endswith(_ASIDE):
                os.unlink(left, dir_fd=self._descriptor)

    def make(self, name: str) -> bool:
        """Make a folder in it, in the place of a link too; False when something has the name."""
        try:
            os.mkdir(_single(name), dir_fd=self._descriptor)
        except FileExistsError:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                return False
            os.unlink(name, dir_fd=self._descriptor)
            os.mkdir(name, dir_fd=self._descriptor)
        return True

    def move_away(self, name: str) -> None:
        """Give what has the name another one."""
        other = f"{_single(name)}.{os.urandom(8).hex()}"
        os.rename(name, other, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def append(self, name: str, data: bytes) -> None:
        """Append to a regular file that has no other name, or make it."""
        file = self.appending(name)
        try:
            _all(file, data)
        finally:
            os.close(file)

    def appending(self, name: str) -> int:
        """Return a descriptor that appends to a regular file without another name, or a new one."""
        try:
            return self.new(name)
        except FileExistsError:
            file = os.open(name, _APPEND, dir_fd=self._descriptor)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            os.close(file)
            raise Refused(f"{name} is no regular file of its own")
        return file

    def new(self, name: str) -> int:
        """Return a descriptor that writes a new file. Raises FileExistsError, for a link too."""
        return os.open(_single(name), _NEW, 0o666, dir_fd=self._descriptor)

    def replaced(self, name: str) -> int:
        """Return a descriptor that writes a new file in the place of what has the name."""
        self.remove(name)
        return self.new(name)

    def remove(self, name: str) -> None:
        """Remove a file, a link or a pipe, if there is one. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_single(name), dir_fd=self._descriptor)

    def entries(self, *, opens_up: bool = True, taken_from: Other | None = None) -> Iterator[Entry]:
        """Yield all that lies below, a folder after what is in it; at most a million entries.

        Folders of this user's that cannot be entered are opened up, if asked. Neither links nor
        other file systems are entered, and no depth is too deep. What belongs to the user
        `taken_from` is given to this one, which needs the rights to do so.
        """
        below = _below(self._descriptor, opens_up=opens_up, taken_from=taken_from)
        yield from islice(below, MOST_ENTRIES)

    def sync(self) -> None:
        """Sync the names in the folder; a file system that cannot is as safe as it can be."""
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, int]]:
        """Open a regular file for reading; yield its descriptor and its size."""
        with opened(_single(name), folder=self._descriptor) as found:
            yield found


class Entry:
    """A name in a folder, with the status that it had when it was met.

    `folder` is a descriptor, which is valid until the next entry is asked for.
    """

    def __init__(self, folder: int, name: str, status: os.stat_result) -> None:
        self.folder, self.name, self.status = folder, name, status

    @property
    def kind(self) -> int:
        """The part of the mode that tells files, folders, links, pipes and devices apart."""
        return stat.S_IFMT(self.status.st_mode)

    def remove(self) -> None:
        """Remove the name; a folder has to be empty. Raises OSError."""
        if self.kind == stat.S_IFDIR:
            os.rmdir(self.name, dir_fd=self.folder)
        else:
            os.unlink(self.name, dir_fd=self.folder)

    @contextlib.contextmanager
    def named(self) -> Iterator[Path]:
        """Yield a path to the very file or folder, of whatever kind. Raises OSError.

        Where another one has the name by now, FileNotFoundError.
        """
        file = os.open(self.name, _NAMED, dir_fd=self.folder)
        try:
            if _identity(os.fstat(file)) != _identity(self.status):
                raise FileNotFoundError(errno.ENOENT, "replaced", self.name)
            yield Path(f"/proc/self/fd/{file}")
        finally:
            os.close(file)


def take_from(path: Path, owner: Other) -> None:
    """Give all below a folder that a user has left there to this user. Never raises."""
    with contextlib.suppress(OSError), Folder(path) as folder:
        for _ in folder.entries(taken_from=owner):
            pass


def remove_tree(path: Path) -> None:
    """Remove a folder and all that is in it, or a link and not what it leads to. Never raises.

    Its parent is trusted. Unlike `shutil.rmtree`, it can remove folders of any depth.
    """
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            with Folder(path) as folder:
                for entry in _below(folder.descriptor):
                    with contextlib.suppress(OSError):
                        entry.remove()
            path.rmdir()
        else:
            path.unlink()


def _below(top: int, *, opens_up: bool = True, taken_from: Other | None = None) -> Iterator[Entry]:
    """Yield all entries below a folder; one descriptor is open at a time."""
    here = os.dup(top)
    device = os.fstat(top).st_dev
    names = _listed(here)
    above: list[tuple[list[str], os.stat_result, Entry]] = []  # what is left there, and its status
    try:
        while True:
            if not names:
                if not above:
                    return
                names, status, entry = above.pop()
                left, here = here, _upwards(here, status)
                os.close(left)
                yield Entry(here, entry.name, entry.status)
                continue
            name = names.pop()
            try:
                entry = Entry(here, name, os.stat(name, dir_fd=here, follow_symlinks=False))
                if taken_from is not None and entry.status.st_uid == taken_from.uid:
                    _take(entry, taken_from)
                is_folder = entry.kind == stat.S_IFDIR and entry.status.st_dev == device
                inner = _entered(entry, opens_up=opens_up) if is_folder else None
            except OSError:
                continue  # it has gone, or is not to be read
            if inner is None:
                yield entry
                continue
            above.append((names, os.fstat(here), entry))
            os.close(here)
            here, names = inner, _listed(inner)
    except OSError:
        return  # somebody moves the folders meanwhile
    finally:
        os.close(here)


def _listed(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, MOST_ENTRIES)]


def _take(entry: Entry, owner: Other) -> None:
    """Give an entry to this user: the very one that was met, and a link itself.

    Only its owner may take setuid and setgid bits away, as a change of the owner does.
    """
    with entry.named() as path:
        mode = stat.S_IMODE(entry.status.st_mode)
        if entry.kind == stat.S_IFREG and mode & (stat.S_ISUID | stat.S_ISGID):
            with owner.eyes():
                path.chmod(mode & ~(stat.S_ISUID | stat.S_ISGID))
        os.chown(path, os.geteuid(), os.getegid())


def _entered(entry: Entry, *, opens_up: bool) -> int | None:
    """Open a folder; None where that is not possible."""
    with contextlib.suppress(OSError):
        missing = stat.S_IRWXU & ~entry.status.st_mode
        if missing and opens_up:
            with entry.named() as path:
                path.chmod(stat.S_IMODE(entry.status.st_mode) | missing)
    try:
        return os.open(entry.name, _FOLDER, dir_fd=entry.folder)
    except OSError:
        return None


def _upwards(folder: int, expected: os.stat_result) -> int:
    """Open the folder above. Raises OSError where that is not the one that we came from."""
    above = os.open("..", _FOLDER, dir_fd=folder)
    if _identity(os.fstat(above)) != _identity(expected):
        os.close(above)
        raise FileNotFoundError(errno.ENOENT, "the folder was moved")
    return above


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def opened(path: Path | str, *, folder: int | None = None) -> Iterator[tuple[int, int]]:
    """Open a regular file, not through a link; yield its descriptor and its size in bytes."""
    name = Path(path).name
    try:
        file = os.open(path, _READ, dir_fd=folder)
    except ValueError:
        raise Refused("a name with a zero byte") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{name} is no regular file")
        yield file, status.st_size
    finally:
        os.close(file)


def read_file(path: Path, most_bytes: int) -> bytes:
    """Return a regular file's content; its folder is trusted. Raises OSError or Refused."""
    with Folder(path.parent) as folder:
        return folder.read(path.name, most_bytes)


def parse_json(data: bytes | str) -> Any:
    """Parse JSON that a stranger wrote. Raises Refused.

    Integers have at most 64 bits, lists and objects are at most `MOST_DEPTH` deep, and a surrogate
    that is no half of a pair, which no file could take, is replaced by `?`. NaN and infinities are
    numbers here, as `json` of the standard library writes them.
    """
    try:
        return _checked(json.loads(data), MOST_DEPTH)
    except RecursionError:
        raise Refused("JSON nested too deep") from None
    except Refused:
        raise
    except ValueError as error:  # UnicodeDecodeError, JSONDecodeError, too many digits
        raise Refused(f"not JSON, or cut short: {error}") from None


def _checked(value: Any, depth: int) -> Any:
    if depth < 0:
        raise Refused("JSON nested too deep")
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        if abs(value) >= _LARGEST_INTEGER:
            raise Refused("an integer of more than 64 bits")
        return value
    if isinstance(value, list):
        return [_checked(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {_checked(key, 0): _checked(item, depth - 1) for key, item in value.items()}
    return value


def _before_aside(name: str) -> str:
    return f".{name[:200]}."


def _single(name: str) -> str:
    """Return a name that is one part of a path, and no way out of the folder."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise Refused(f"{name!r} is no file's name")
    return name


def _exactly(file: int, size: int) -> bytes:
    """Read up to so many bytes; the buffer grows with what there is, not with what is asked."""
    parts, left = [], size
    while left > 0:
        part = os.read(file, min(left, 1024 * 1024))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
