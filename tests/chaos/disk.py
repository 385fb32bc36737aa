"""A disk that forgets what was not synced: system calls of a run, replayed on a model of a disk.

The rules are those of POSIX, and no kinder. The content of a file is kept once the file has been
synced. Its name is kept once the folder that holds it has been synced. Of everything else, any part
may be kept, in any order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

VARIANTS = ("synced", "names", "content", "torn", "zeros", "all", "some-1", "some-2", "some-3")
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_LINE = re.compile(r"^(\w+)\((.*)\) += (-?\d+)(?:<(.*)>)?(?: .*)?$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_DESCRIPTOR = re.compile(r"^(\d+|AT_FDCWD)<((?:[^<>]|\(deleted\))*)>")


@dataclass(frozen=True)
class Call:
    """A system call that succeeded."""

    name: str
    descriptor: int | None  # the first argument, when it is one
    folder: str | None  # its path
    texts: tuple[bytes, ...]
    rest: str  # the arguments as strace wrote them
    result: int


def calls_of(log: str) -> Iterator[Call]:
    """Parse the output of `strace -y -xx`."""
    for line in log.splitlines():
        match = _LINE.match(line)
        if match is None or int(match[3]) < 0:
            continue
        first = _DESCRIPTOR.match(match[2])
        descriptor = int(first[1]) if first and first[1].isdigit() else None
        texts = tuple(_decoded(text) for text, _ in _STRING.findall(match[2]))
        folder = _decoded(first[2]).decode() if first else None
        rest = _STRING.sub("", match[2])
        yield Call(match[1], descriptor, folder, texts, rest, int(match[3]))


def _written(call: Call) -> bytes:
    """The bytes that were written; none of a write so long that strace cut it: the reserve."""
    return call.texts[0][: call.result] if len(call.texts[0]) >= call.result else b""


def _decoded(text: str) -> bytes:
    return _HEX.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1")


@dataclass
class File:
    """The content of a file: what is on the disk, and the changes that may not be."""

    safe: bytes = b""
    now: bytearray = field(default_factory=bytearray)
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut off there

    def change(self, at: int, data: bytes | None) -> None:
        self.changes.append((at, data))
        _write(self.now, at, data)

    def sync(self) -> None:
        self.safe = bytes(self.now)
        self.changes = []


def _write(content: bytearray, at: int, data: bytes | None) -> None:
    content.extend(b"\0" * (at - len(content)))
    content[at : at + len(data) if data is not None else None] = data or b""


@dataclass
class Folder:
    """The names in a folder: those on the disk, and the changes that may not be."""

    safe: dict[str, File | Folder] = field(default_factory=dict)
    now: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def apply(self, change: dict[str, File | Folder | None]) -> None:
        self.changes.append(change)
        _apply(self.now, change)

    def sync(self) -> None:
        self.safe = dict(self.now)
        self.changes = []


def _apply(names: dict[str, File | Folder], change: dict[str, File | Folder | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The model, with one folder of the real disk as its root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.top = Folder()
        self._open: dict[int, tuple[File, int | None]] = {}  # descriptor -> file, offset or append

    def load(self, name: str, path: Path) -> None:
        """Take a folder as it is, all of it on the disk."""
        self.top.apply({name: _loaded(path)})
        self.top.sync()

    def _find(self, path: str) -> tuple[Folder, str] | None:
        """The folder that holds a path, and its name in it; None outside of the model."""
        parts = Path(path).parts
        above = self._root.parts
        if parts[: len(above)] != above or len(parts) == len(above):
            return None
        folder = self.top
        for part in parts[len(above) : -1]:
            inner = folder.now.get(part)
            if not isinstance(inner, Folder):
                return None
            folder = inner
        return folder, parts[-1]

    def _node(self, path: str) -> File | Folder | None:
        if Path(path) == self._root:
            return self.top
        found = self._find(path)
        return found[0].now.get(found[1]) if found else None

    def do(self, call: Call) -> bool:
        """Carry out a call; True when it changed or synced anything in the model."""
        handler = getattr(self, f"_{call.name}", None)
        return bool(handler and handler(call))

    def _path(self, call: Call, index: int = 0) -> str:
        text = call.texts[index].decode() if len(call.texts) > index else ""
        return text if text.startswith("/") else f"{call.folder or ''}/{text}"

    def _openat(self, call: Call) -> bool:
        self._open.pop(call.result, None)
        found = self._find(self._path(call))
        if found is None:
            return False
        folder, name = found
        node, changed = folder.now.get(name), False
        if node is None and "O_CREAT" in call.rest:
            node, changed = File(), True
            folder.apply({name: node})
        if not isinstance(node, File):
            return changed
        if "O_TRUNC" in call.rest and node.now:
            node.change(0, None)
            changed = True
        self._open[call.result] = (node, None if "O_APPEND" in call.rest else 0)
        return changed

    def _close(self, call: Call) -> bool:
        self._open.pop(call.descriptor if call.descriptor is not None else -1, None)
        return False

    def _opened(self, call: Call) -> File | None:
        found = self._open.get(call.descriptor if call.descriptor is not None else -1)
        return found[0] if found and call.folder and self._is_below(call.folder) else None

    def _is_below(self, path: str) -> bool:
        return path.startswith(f"{self._root}/")

    def _write(self, call: Call) -> bool:
        file = self._opened(call)
        if file is None or call.descriptor is None:
            return False
        data = _written(call)
        offset = self._open[call.descriptor][1]
        file.change(len(file.now) if offset is None else offset, data)
        if offset is not None:
            self._open[call.descriptor] = (file, offset + len(data))
        return True

    def _pwrite64(self, call: Call) -> bool:
        file = self._opened(call)
        if file is None:
            return False
        data = _written(call)
        file.change(int(call.rest.rpartition(",")[2]), data)
        return True

    def _ftruncate(self, call: Call) -> bool:
        file = self._opened(call)
        if file is None:
            return False
        file.change(int(call.rest.rpartition(",")[2]), None)
        return True

    def _fsync(self, call: Call) -> bool:
        file = self._opened(call)
        if file is not None:
            file.sync()
            return True
        node = self._node(call.folder or "")
        if node is not None:
            node.sync()
        return node is not None

    _fdatasync = _fsync

    def _mkdir(self, call: Call) -> bool:
        found = self._find(self._path(call))
        if found:
            found[0].apply({found[1]: Folder()})
        return found is not None

    _mkdirat = _mkdir

    def _unlink(self, call: Call) -> bool:
        found = self._find(self._path(call))
        if found is None or found[1] not in found[0].now:
            return False
        found[0].apply({found[1]: None})
        return True

    _unlinkat = _rmdir = _unlink

    def _rename(self, call: Call) -> bool:
        old, new = self._find(self._path(call)), self._find(self._path(call, 1))
        if old is None or new is None or (node := old[0].now.get(old[1])) is None:
            return False
        if old[0] is new[0]:  # one step: both or neither
            old[0].apply({old[1]: None, new[1]: node})
        else:
            new[0].apply({new[1]: node})
            old[0].apply({old[1]: None})
        return True

    _renameat = _renameat2 = _rename

    def after_power_loss(self, variant: str) -> dict[str, bytes | None]:
        """Return what is left: the content by relative path, None for a folder."""
        return dict(_left(self.top, "", variant, random.Random(variant)))


def _loaded(path: Path) -> File | Folder:
    if not path.is_dir():
        data = path.read_bytes()
        return File(data, bytearray(data))
    folder = Folder()
    for inner in sorted(path.iterdir()):
        folder.apply({inner.name: _loaded(inner)})
    folder.sync()
    return folder


def _left(
    folder: Folder, above: str, variant: str, draw: random.Random
) -> Iterator[tuple[str, bytes | None]]:
    names = dict(folder.safe)
    if variant not in ("synced", "content"):
        for change in folder.changes:
            if not variant.startswith("some") or draw.random() < 0.5:
                _apply(names, change)
    for name, node in names.items():
        path = f"{above}{name}"
        if isinstance(node, File):
            yield path, _content(node, variant, draw)
        else:
            yield path, None
            yield from _left(node, f"{path}/", variant, draw)


def _content(file: File, variant: str, draw: random.Random) -> bytes:
    if variant in ("synced", "names"):
        return file.safe
    if variant in ("content", "all"):
        return bytes(file.now)
    content = bytearray(file.safe)
    for number, (at, data) in enumerate(file.changes, 1):
        how = variant
        if variant.startswith("some"):
            how = draw.choice(("whole", "lost", "torn", "zeros"))
        elif variant == "torn" and number < len(file.changes):
            how = "whole"  # the last one is torn
        if how == "lost":
            continue
        kept = data
        if data and how == "torn":
            kept = data[: len(data) // 2]
        elif data and how == "zeros":
            kept = b"\0" * len(data)
        _write(content, at, kept)
    return bytes(content)
