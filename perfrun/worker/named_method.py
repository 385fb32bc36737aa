"""A method that was named by module, class and method: is there one, before a trial is spent on it?

Only what is certainly absent is reported. A class may make its attributes when they are asked for,
or an object its own when it is made; then the trial tells.
"""

from __future__ import annotations

import os
from importlib.machinery import PathFinder
from typing import Any, Dict, Optional, Sequence

from perfrun.worker.method import WrongNameError, find_class, is_wrong_module, no_method
from perfrun.worker.modules import could_define

_MAKERS = ("__init__", "__new__", "__getattribute__")
_SETTERS = {"setattr", "__dict__", "vars"}  # names in code that can make an attribute of any name


def is_written(target: Dict[str, Any]) -> bool:
    """Return True when the source of the named module seems to define the method.

    Nothing is imported: a framework takes seconds, and the trial imports it again.
    """
    path: Optional[Sequence[str]] = None
    root: Optional[str] = None
    names = target["module"].split(".")
    try:
        for name in names:
            spec = PathFinder.find_spec(name, path)
            if spec is None:
                return False
            path, root = spec.submodule_search_locations, spec.origin
    except Exception:  # noqa: BLE001 - what lies on the path may be broken in any way
        return False
    if not root or not root.endswith(".py"):
        return False
    for _ in range(len(names) + (os.path.basename(root) == "__init__.py")):
        root = os.path.dirname(root)
    return could_define(root, target["module"], target["class_name"], target["method"])


def why_missing(module: Any, class_name: str, method: str) -> Optional[str]:
    """Return why a class certainly has no such method; None when it has, or may have one."""
    try:
        cls = find_class(module, class_name)
    except WrongNameError as error:
        return str(error)
    if not isinstance(cls, type) or hasattr(cls, method) or _may_make(cls, method):
        return None
    return no_method(cls, method, module.__name__)


def is_absent(error: BaseException, target: Dict[str, Any]) -> bool:
    """Return True when the module that was named does not exist; not when it raises."""
    return "method" in target and is_wrong_module(error, target["module"])


def _may_make(cls: type, method: str) -> bool:
    """Return True when objects of a class may have an attribute that the class has not."""
    if hasattr(cls, "__getattr__"):
        return True
    functions = (vars(base).get(name) for base in cls.__mro__[:-1] for name in _MAKERS)
    codes = (getattr(function, "__code__", None) for function in functions)
    return any(({method} | _SETTERS) & set(code.co_names) for code in codes if code is not None)
