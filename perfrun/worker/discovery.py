"""Find the benchmark methods of a class or module that has been imported (worker side)."""

from __future__ import annotations

import abc
import inspect
import re
from typing import Any, Dict, List, Optional

# unittest's, from which tf.test.Benchmark's neighbours derive, and the base classes' own.
_NOT_METHODS = {"setUp", "tearDown", "setUpClass", "tearDownClass", "report_benchmark"}


def class_methods(cls: Any, pattern: Optional[str] = None) -> List[Dict[str, str]]:
    """Return the methods of `cls` that could be run, in alphabetical order, with their docs.

    With a pattern: those whose name it matches from the start (`re.match`, as in PerfZero). The
    class is not instantiated. Left out are private names, what takes arguments, and what the
    framework's own base class defines; PerfZero's `filter:.*` would run `__class__`.
    """
    found = []
    for name in dir(cls):
        if name.startswith("_") or name in _NOT_METHODS:
            continue
        if pattern is not None and not re.match(pattern, name):
            continue
        if _owner_is_framework(cls, name) or not _is_runnable(cls, name):
            continue
        found.append(
            {"class": cls.__name__, "method": name, "doc": _first_line(getattr(cls, name))}
        )
    return found


def module_methods(module: Any) -> List[Dict[str, str]]:
    """Return the methods of the benchmark classes that `module` itself defines.

    Left out are classes that are only a base: abstract ones, those derived from `abc.ABC` directly,
    and those that declare a `ClassVar` and leave its value to others.
    """
    found = []
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if cls.__module__ != module.__name__ or _is_only_a_base(cls):
            continue
        if callable(getattr(cls, "report_benchmark", None)):
            found += class_methods(cls)
    return found


def _is_only_a_base(cls: Any) -> bool:
    declared = {
        name: str(kind)
        for base in cls.__mro__
        for name, kind in getattr(base, "__annotations__", {}).items()
    }
    if inspect.isabstract(cls) or abc.ABC in cls.__bases__:
        return True
    return any("ClassVar" in kind and not hasattr(cls, name) for name, kind in declared.items())


def _owner_is_framework(cls: Any, name: str) -> bool:
    owner = next((base for base in cls.__mro__ if name in vars(base)), object)
    return owner is object or owner.__module__.partition(".")[0] in (
        "perfrun",
        "tensorflow",
        "unittest",
        "absl",
    )


def _is_runnable(cls: Any, name: str) -> bool:
    """Say whether `instance.name()` would be a call without arguments."""
    raw = inspect.getattr_static(cls, name)
    function = getattr(cls, name)
    if inspect.isclass(function) or not callable(function):
        return False
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True  # callable, but it does not say how
    if not isinstance(raw, (staticmethod, classmethod)) and parameters:
        parameters = parameters[1:]
    return all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


def _first_line(function: Any) -> str:
    lines = (inspect.getdoc(function) or "").strip().splitlines()
    return lines[0] if lines else ""
