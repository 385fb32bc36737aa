"""Modules that do not exist as files: the classes of a tool's module, as perfrun runs them.

`perfrun.adapters.asv.sorting.lists` is made from the suite's module `sorting.lists` when it is
imported, so the names of methods say what is measured, and patterns and `perfrun list` work.
"""

import re
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

from perfrun.worker.author import Benchmark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, Mapping, Optional, Sequence

    Run = Callable[[Benchmark], None]
    # The runs of a suite's module: by class and method, with a line that describes each.
    Suite = Mapping[str, Mapping[str, "tuple[Run, str]"]]
    # From the name of their module, its file (None for a folder) and its runs.
    Adapt = Callable[[str], "tuple[Optional[str], Suite]"]

_LONGEST = 60  # characters that parameters add to a name


class SuiteFinder(MetaPathFinder, Loader):
    """Finds `<package>.<their module>` and makes it from their module."""

    def __init__(self, package: str, adapt: "Adapt") -> None:
        self._prefix, self._adapt = package + ".", adapt

    def find_spec(
        self,
        fullname: str,
        path: "Optional[Sequence[str]]" = None,
        target: "Optional[ModuleType]" = None,
    ) -> "Optional[ModuleSpec]":
        """Return the spec of a module below the package; None for any other."""
        if not fullname.startswith(self._prefix):
            return None
        return ModuleSpec(fullname, self, is_package=True)  # theirs may be a package

    def create_module(self, spec: ModuleSpec) -> "Optional[ModuleType]":
        """Let Python make the module."""
        return None

    def exec_module(self, module: "ModuleType") -> None:
        """Fill the module with a benchmark class for each of theirs."""
        file, suite = self._adapt(module.__name__[len(self._prefix) :])
        module.__file__ = file  # its hash is the benchmark's version
        for name, methods in suite.items():
            setattr(module, name, _benchmark_class(module.__name__, name, methods))


def install(package: str, adapt: "Adapt") -> None:
    """Make the modules of suites importable below a package, once."""
    if not any(
        isinstance(one, SuiteFinder) and one._prefix == package + "." for one in sys.meta_path
    ):
        sys.meta_path.append(SuiteFinder(package, adapt))


def _benchmark_class(
    module: str, name: str, methods: "Mapping[str, tuple[Run, str]]"
) -> "type[Benchmark]":
    members: Dict[str, Any] = {"__module__": module}
    for method, (run, text) in methods.items():
        members[method] = _method(method, run, text)
    return type(name, (Benchmark,), members)


def _method(name: str, run: "Run", text: str) -> "Callable[[Benchmark], None]":
    def method(self: Benchmark) -> None:
        run(self)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = text
    return method


def with_parameters(name: str, values: "Sequence[Any]", taken: "Mapping[str, Any]") -> str:
    """Return a name that can be a method's, with the parameters in it, and not yet taken."""
    words = [re.sub(r"\W+", "_", str(value), flags=re.ASCII).strip("_") for value in values]
    made = "__".join([name, "_".join(filter(None, words))[:_LONGEST]]).rstrip("_")
    number, free = 1, made
    while free in taken:
        number += 1
        free = "%s_%d" % (made, number)
    return free
