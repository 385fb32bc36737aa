"""A user's own files on the command line: `sorting.py`, `sorting.py::Sorting.numbers`, `package/`.

A file becomes what the same user could have typed with PerfZero's flags: a folder of
`--python_path` and names of methods. The folder is the file's own; of a package's file it is the
folder that holds the package, as Python's own rules want, but never one above the checkout.
"""

# ruff: noqa: PTH100, PTH111, PTH112, PTH113, PTH118, PTH206, PTH208
# pathlib raises for a name that is too long.

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from perfrun.dataclass import dataclass, replace
from perfrun.errors import UsageError
from perfrun.options.parsers import nearest, shown
from perfrun.options.plan import MethodSelector, RepoSpec, parse_selector
from perfrun.worker.folders import places
from perfrun.worker.modules import modules_in

_INIT = "__init__.py"
# A worker has loaded these before it looks at a folder of the user's, or needs them afterwards.
_TAKEN = sys.stdlib_module_names | {"perfrun"}
_MOST_FILES = 50_000  # below a folder: `/` would be searched for minutes


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """One word of the command line that names a file or folder."""

    word: str  # as typed
    root: str  # the folder to import from
    modules: tuple[str, ...]
    inside: str = ""  # what follows `::`: Class, Class.method, Class:method, Class.filter:REGEX

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `perfrun list` takes: modules, or a class of one."""
        return tuple(f"{m}.{self.inside}" if self.inside else m for m in self.modules)

    @property
    def selectors(self) -> tuple[MethodSelector, ...]:
        """The methods to run: those of the modules or the class, or the one that is named."""
        return tuple(self._selector(module) for module in self.modules)

    def _selector(self, module: str) -> MethodSelector:
        if "." in self.inside or ":" in self.inside:
            return replace(parse_selector(f"{module}.{self.inside}"), source=self.word)
        text = f"{module}.{self.inside}.filter:.*" if self.inside else module
        return MethodSelector(
            text=text, module=module, class_name=self.inside, pattern=".*", source=self.word
        )


def is_path(word: str) -> bool:
    """Return True when a word is written as files are, and names of modules are not."""
    return "/" in word or "::" in word or word.endswith(".py") or word in (".", "..")


def split_words(words: Sequence[str]) -> tuple[tuple[OwnFile, ...], tuple[MethodSelector, ...]]:
    """Return the files and folders among the words of a run, and the methods named in full.

    Raises UsageError for a word that is neither.
    """
    found, methods = [], []
    for word in words:
        if is_path(word) or os.path.lexists(word):
            found.append(own_file(word))
        elif word.count(".") > 1 and all(part.isidentifier() for part in word.split(".")):
            methods.append(parse_selector(word))
        else:
            raise UsageError(
                f"{shown(word)!r} is not a flag, a file or module.Class.method; flags begin with "
                "-- and flags of the benchmark follow --"
            )
    check_together(found)
    return tuple(found), tuple(methods)


def own_file(word: str) -> OwnFile:
    """Return what a word names. Raises UsageError."""
    text, _, inside = word.partition("::")
    path = os.path.abspath(text)
    if os.path.isdir(path):
        if inside:
            raise UsageError(f"{shown(word)}: a class follows a file, as in FILE.py::{inside}")
        return _folder(word, path)
    if not os.path.isfile(path):
        raise UsageError(f"{shown(text)}: there is no such file or folder{_near(path)}")
    if not path.endswith(".py"):
        raise UsageError(f"{shown(text)}: is not a Python file, whose name ends in .py")
    if "::" in word and not re.fullmatch(r"\w+([.:].+)?", inside.replace("::", ".")):
        raise UsageError(f"{shown(word)}: write FILE.py::Class or FILE.py::Class.method")
    folder, name = os.path.split(path)
    root, package = _package_of(folder)
    names = package if name == _INIT and package else (*package, name[:-3])
    module = ".".join(names)
    _check_name(text, names, path)
    return OwnFile(word=word, root=root, modules=(module,), inside=inside.replace("::", "."))


def _folder(word: str, path: str) -> OwnFile:
    root, package = _package_of(path)
    files = 0
    for _, names_there in places(path):
        files += len(names_there)
        if files > _MOST_FILES:
            raise UsageError(
                f"{shown(word)}: has more than {_MOST_FILES:,} files in it; name a smaller folder"
            )
    modules = modules_in(path, package)
    if not modules:
        raise UsageError(f"{shown(word)}: no file in it has a benchmark class")
    for module in modules:
        names = module.split(".")
        _check_name(os.path.join(word, *names[len(package) :]) + ".py", names, None)
    return OwnFile(word=word, root=root, modules=tuple(modules))


def _package_of(folder: str) -> tuple[str, tuple[str, ...]]:
    """Return the folder to import from, and the package that a folder is.

    The way up ends at the root of a checkout: a file that lies in a repository must not have the
    folder above it imported from, or shown to a container.
    """
    package: tuple[str, ...] = ()
    while os.path.isfile(os.path.join(folder, _INIT)):
        above, name = os.path.split(folder)
        is_checkout = os.path.lexists(os.path.join(folder, ".git"))
        if is_checkout or not name.isidentifier() or above == folder:
            break
        folder, package = above, (name, *package)
    return folder, package


def _check_name(text: str, names: Sequence[str], path: str | None) -> None:
    """Refuse a file that Python cannot import by its name, or for which it takes another one."""
    stem = names[-1]
    if not stem.isidentifier():
        better = re.sub(r"\W", "_", stem)
        better = better if better.isidentifier() else f"bench_{better}"
        raise UsageError(
            f"{shown(text)}: Python cannot import a file of this name; rename it, as to {better}.py"
        )
    if names[0] in _TAKEN:
        raise UsageError(
            f"{shown(text)}: Python has a module {names[0]} of its own and would not import this "
            "one; rename it"
        )
    if path and os.path.isfile(os.path.join(path[:-3], _INIT)):
        raise UsageError(
            f"{shown(text)}: Python imports the package {stem}/ beside it in its place; rename one"
        )


def check_together(files: Sequence[OwnFile]) -> None:
    """Refuse files of which one would be imported in place of another one. Raises UsageError."""
    roots = list(dict.fromkeys(file.root for file in files))
    for file in files:
        for module in file.modules:
            for root in roots[: roots.index(file.root)]:
                place = os.path.join(root, *module.split("."))
                for other in (f"{place}.py", os.path.join(place, _INIT)):
                    if os.path.isfile(other):
                        raise UsageError(
                            f"{shown(file.word)}: {shown(other)} has the same name, {module}, and "
                            "comes first; run them one after the other"
                        )


def check_shown(files: Sequence[OwnFile]) -> None:
    """Refuse a file whose folder nobody means to show to a container. Raises UsageError."""
    home = os.path.realpath(os.path.expanduser("~"))
    for file in files:
        real = os.path.realpath(file.root)
        if home == real or home.startswith(real.rstrip("/") + "/"):
            raise UsageError(
                f"{shown(file.word)}: a container is shown the whole folder of a file, which here "
                f"is {shown(real)}, with your home; move the file to a folder of its own"
            )


def from_here(items: Sequence[str], site_packages: str, repos: Sequence[RepoSpec]) -> list[str]:
    """Return the items of `--python_path`, those that begin with a dot as absolute paths.

    PerfZero takes all items for folders below WORKSPACE/site-packages, and `./x` may be one there.
    Raises UsageError for one that is a folder in both places.
    """
    checkouts = {repo.directory for repo in repos}
    return [_from_here(item, site_packages, checkouts) for item in items]


def _from_here(item: str, site_packages: str, checkouts: set[str]) -> str:
    if item != "." and not item.startswith("./"):
        return item
    here = os.path.abspath(item)
    there = os.path.normpath(os.path.join(site_packages, item))
    if there == os.path.normpath(site_packages):
        is_there = bool(checkouts) or _has_folders(there)
    else:
        first = os.path.relpath(there, site_packages).split(os.sep)[0]
        is_there = first in checkouts or os.path.isdir(there)
    if not os.path.isdir(here):
        return item
    if is_there and here != there:
        raise UsageError(
            f"--python_path={shown(item)}: may be {shown(here)} or {shown(there)}; write the one "
            "that is meant in full"
        )
    return here


def _has_folders(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(entry.is_dir() for entry in entries)
    except OSError:
        return False


def _near(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        there = [one for one in os.listdir(folder) if one.endswith(".py") or "." not in one]
    except (OSError, ValueError):  # a zero byte
        return ""
    near = nearest(name, there)
    return f"; did you mean {shown(near)}?" if near else ""
