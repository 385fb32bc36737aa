"""Find the class and the method that a user has named; a wrong name is one line."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Container, List


class WrongNameError(AttributeError):
    """The module has no such class, or the class no such method; the text says what it has."""


def find_class(module: Any, name: str) -> Any:
    """The class of a module. Raises WrongNameError."""
    try:
        return getattr(module, name)
    except AttributeError as error:
        known = [n for n in dir(module) if isinstance(vars(module).get(n), type)]
        text = _no_such("class", name, module.__name__, known)
        raise WrongNameError(text + authors_words(vars(module), error)) from error


def find_method(instance: Any, name: str, module: str) -> Any:
    """The bound method. Raises WrongNameError; what a property of that name raises goes through."""
    try:
        return getattr(instance, name)
    except AttributeError as error:
        its_class = type(instance)
        if name in dir(its_class):
            raise
        known = [n for n in dir(its_class) if callable(getattr(its_class, n, None))]
        text = _no_such("method", name, "%s.%s" % (module, its_class.__name__), known)
        raise WrongNameError(text + authors_words(dir(its_class), error)) from error


def authors_words(names: Container[str], error: AttributeError) -> str:
    """What a `__getattr__` among these names has said, to be added: it may know why, or a way."""
    if "__getattr__" not in names:
        return ""
    return " (its __getattr__ says: %s)" % " ".join(str(error).split())


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
