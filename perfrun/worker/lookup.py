"""Find the class and the method that a user has named; a wrong name is one line."""

from __future__ import annotations

from typing import Any, List


class WrongNameError(AttributeError):
    """The module has no such class, or the class no such method; the text says what it has."""


def find_class(module: Any, name: str) -> Any:
    """The class of a module. Raises WrongNameError."""
    try:
        return getattr(module, name)
    except AttributeError:
        known = [n for n in dir(module) if isinstance(vars(module).get(n), type)]
        raise WrongNameError(_no_such("class", name, module.__name__, known)) from None


def find_method(instance: Any, name: str, module: str) -> Any:
    """The bound method. Raises WrongNameError; what a property of that name raises goes through."""
    try:
        return getattr(instance, name)
    except AttributeError:
        its_class = type(instance)
        if name in dir(its_class):
            raise
        known = [n for n in dir(its_class) if callable(getattr(its_class, n, None))]
        shown = "%s.%s" % (module, its_class.__name__)
        raise WrongNameError(_no_such("method", name, shown, known)) from None


def is_wrong_module(error: BaseException, module: str) -> bool:
    """Whether it is the benchmark's own module that is not there, or a package that it is in."""
    name = getattr(error, "name", None)
    is_its = bool(name) and (module + ".").startswith("%s." % name)
    return isinstance(error, ModuleNotFoundError) and is_its


def _no_such(kind: str, name: str, holder: str, known: List[str]) -> str:
    import difflib  # 5 ms that a right name does not pay

    names = [one for one in known if not one.startswith("_")]
    near = difflib.get_close_matches(name, names, n=1)
    hint = "did you mean %s?" % near[0] if near else "`perfrun list` prints what there is"
    return "%s has no %s %r; %s" % (holder, kind, name, hint)
