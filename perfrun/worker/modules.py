"""Search for modules that could hold benchmarks, and for a method, without importing them."""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterator, List, Pattern, Sequence, Set, Tuple

from perfrun.worker.folders import places

# A module is not imported when neither it nor a module that it derives a class from has this.
_MENTIONS = re.compile(rb"\b\w*Benchmark\b|report_benchmark")
# Each part has a limit: a file of a repository may be written to keep a search busy.
_CLASS = re.compile(
    rb"^[ \t]{0,99}class[ \t]{1,99}\w{1,999}[ \t]{0,99}\(([^)]{0,2000})\)", re.MULTILINE
)
_FROM = re.compile(
    rb"^[ \t]{0,99}from[ \t]{1,99}([\w.]{1,999})[ \t]{1,99}import[ \t]{1,99}"
    rb"(\([^)]{0,4000}\)|[^\n#;]{0,4000})",
    re.MULTILINE,
)
_IMPORT = re.compile(rb"^[ \t]{0,99}import[ \t]{1,99}([^\n#;]{1,4000})", re.MULTILINE)
_AS = re.compile(r"(?<![\w.*])([\w.*]{1,999})(?:\s{1,99}as\s{1,99}(\w{1,999}))?")
_DEFINES = rb"\bdef[ \t]{1,9}NAME\b|\bNAME[ \t]{0,9}=|['\"]NAME['\"]"
_LARGEST_BYTES = 8 * 1024 * 1024  # of a module that is searched
_MOST_FILES = 100  # of a chain in which each file derives a class from the next one's


def modules_in(folder: str, package: Sequence[str]) -> List[str]:
    """Return the modules that could hold benchmarks in `folder`, which `package` comes from."""
    found = []
    root = os.path.normpath(os.path.join(folder, *[os.pardir] * len(package)))
    sources = _Sources(root)
    for place, files in places(folder):
        inside = os.path.relpath(place, folder)
        parts = [*package, *([] if inside == "." else inside.split(os.sep))]
        for name in files:
            stem, extension = os.path.splitext(name)
            names = parts if stem == "__init__" else [*parts, stem]
            is_module = extension == ".py" and names and all(n.isidentifier() for n in names)
            if is_module and sources.could_hold(os.path.normpath(os.path.join(place, name))):
                found.append(".".join(names))
    return sorted(found)


def could_define(root: str, module: str, class_name: str, method: str) -> bool:
    """Return True when the text of a module below `root` seems to define a method of a class.

    So do the files that its classes derive from. False says nothing: classes can be made otherwise.
    """
    sources = _Sources(os.path.normpath(root))
    path = sources.file(module.split("."))
    name = re.escape(method.encode())
    defines = re.compile(_DEFINES.replace(b"NAME", name))
    try:
        has_class = re.search(rb"\b%s\b" % re.escape(class_name.encode()), _content(path))
    except (OSError, ValueError):
        return False
    return bool(has_class) and sources.define(path, defines)


def _content(path: str) -> bytes:
    """Return the begin of a file; a link may lead to it, but not to a device or a pipe."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError("is no regular file")
        return file.read(_LARGEST_BYTES)


class _Sources:
    """The source files below a folder on the import path, and which could hold benchmarks."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: Dict[str, bool] = {}

    def could_hold(self, path: str, left: int = _MOST_FILES) -> bool:
        """Return True when a file names a benchmark class, or has a base class from such a file."""
        if path not in self._known and left:
            self._known[path] = False  # ends the search when two files import each other
            self._known[path] = self._mentions_benchmark(path, left - 1)
        return self._known.get(path, False)

    def _mentions_benchmark(self, path: str, left: int) -> bool:
        try:
            text = _content(path)
        except (OSError, ValueError):
            return False
        if _MENTIONS.search(text):
            return True
        bases = {word for found in _CLASS.findall(text) for word in _words(found)}
        return bool(bases) and any(
            self.could_hold(origin, left) for origin in self._origins(path, text, bases)
        )

    def define(self, path: str, pattern: Pattern[bytes], left: int = _MOST_FILES) -> bool:
        """Return True when a file has the pattern, or one that its classes derive from."""
        if path in self._known or not left:
            return self._known.get(path, False)
        self._known[path] = False
        try:
            text = _content(path)
        except (OSError, ValueError):
            return False
        if not pattern.search(text):
            bases = {word for found in _CLASS.findall(text) for word in _words(found)}
            if not any(self.define(p, pattern, left - 1) for p in self._origins(path, text, bases)):
                return False
        self._known[path] = True
        return True

    def _origins(self, path: str, text: bytes, bases: Set[str]) -> Iterator[str]:
        """Yield the files that the bases of a file's classes are imported from."""
        for module, names in _imports(text):
            parts = self._absolute(path, module)
            for name, known_as in names:
                if known_as in bases or name == "*":
                    yield self.file(parts)
                    if name:
                        yield self.file([*parts, name])  # a module of a package

    def _absolute(self, path: str, module: str) -> List[str]:
        dots = len(module) - len(module.lstrip("."))
        parts = [part for part in module.split(".") if part]
        if not dots:
            return parts
        above = os.path.relpath(path, self._root).split(os.sep)[:-dots]
        return [*above, *parts]

    def file(self, parts: Sequence[str]) -> str:
        """Return the path that a module has below the root."""
        place = os.path.join(self._root, *parts)
        package = os.path.join(place, "__init__.py")
        return package if os.path.isdir(place) else place + ".py"


def _imports(text: bytes) -> Iterator[Tuple[str, List[Tuple[str, str]]]]:
    """Yield each imported module with pairs of name and local name; "" is the module itself."""
    for module, names in _FROM.findall(text):
        pairs = _AS.findall(names.decode("utf-8", "replace"))
        yield module.decode("utf-8", "replace"), [(name, other or name) for name, other in pairs]
    for modules in _IMPORT.findall(text):
        for module, other in _AS.findall(modules.decode("utf-8", "replace")):
            yield module, [("", other or module.split(".")[0])]


def _words(text: bytes) -> List[str]:
    return re.findall(r"\w+", text.decode("utf-8", "replace"))
