"""Dataclasses that cost next to nothing to define, for the modules that every run imports.

The standard library's decorator writes and compiles six functions for each class, 0.2 to 0.7 ms,
and its import brings `inspect`: 64 classes and that import were 30 ms of a run of one no-op, three
times the interpreter's own start. Here all classes share one set of functions. What they make is a
dataclass to everybody else: a type checker sees the standard decorator, and `dataclasses.fields`,
`replace` and `asdict` work, because `__dataclass_fields__` is made when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

_REQUIRED: Any = object()  # the default of a field that has none


class _Factory:
    """The default of a field that is made anew for each object."""

    def __init__(self, *, default_factory: Callable[[], Any]) -> None:
        self.make = default_factory


def _dataclass(cls: Any = None, /, *, frozen: bool = False, kw_only: bool = False) -> Any:
    """Make a class a dataclass, as the standard decorator with the same arguments does."""
    if cls is None:
        return lambda cls: _dataclass(cls, frozen=frozen, kw_only=kw_only)
    defaults = {**getattr(cls, "_defaults", {})}  # of the base class
    for name in cls.__annotations__:
        defaults[name] = vars(cls).get(name, _REQUIRED)
        if isinstance(defaults[name], _Factory):
            delattr(cls, name)
    cls._defaults = defaults
    cls.__match_args__ = () if kw_only else tuple(defaults)  # type: ignore[misc]
    cls.__dataclass_fields__ = _StandardFields()
    cls.__init__, cls.__hash__ = _init, _hash if frozen else None
    if "__repr__" not in vars(cls):
        cls.__repr__ = _repr
    if "__eq__" not in vars(cls):
        cls.__eq__ = _eq
    if frozen:
        cls.__setattr__ = cls.__delattr__ = _refuse
    return cls


def _init(self: Any, *values: Any, **given: Any) -> None:
    cls = type(self)
    if values:
        by_position = dict(zip(cls.__match_args__, values, strict=False))
        if len(by_position) < len(values) or by_position.keys() & given.keys():
            raise TypeError(f"{cls.__name__}() is given too many values, or one of them twice")
        given.update(by_position)
    own = vars(self)
    for name, default in cls._defaults.items():
        if name in given:
            own[name] = given.pop(name)
        elif default is _REQUIRED:
            raise TypeError(f"{cls.__name__}() is given no {name!r}")
        else:
            own[name] = default.make() if isinstance(default, _Factory) else default
    if given:
        raise TypeError(f"{cls.__name__}() has no field {', '.join(map(repr, given))}")


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={vars(self)[name]!r}" for name in self._defaults)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _values(one: Any) -> tuple[Any, ...]:
    own = vars(one)
    return tuple([own[name] for name in one._defaults])


def _refuse(_self: Any, name: str, _value: object = None) -> NoReturn:
    from dataclasses import FrozenInstanceError  # only for a mistake in our own code

    raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")


class _StandardFields:
    """`__dataclass_fields__`, by which the standard library knows a dataclass, made when asked."""

    def __get__(self, _instance: object, owner: Any) -> Any:
        import dataclasses  # its import is what is saved

        model: Any = dataclasses.make_dataclass(owner.__name__, owner._defaults)
        owner.__dataclass_fields__ = model.__dataclass_fields__
        return owner.__dataclass_fields__


def _replace(one: Any, **changes: Any) -> Any:
    """Return a copy of a dataclass with other values in some fields."""
    return type(one)(**{**{name: getattr(one, name) for name in _names(one)}, **changes})


def _asdict(one: Any) -> Any:
    """Return the fields of a dataclass by name; dataclasses in them become dictionaries, too."""
    if isinstance(one, (str, int, float, type(None), type)):
        return one
    if isinstance(one, dict):
        return {_asdict(key): _asdict(item) for key, item in one.items()}
    if isinstance(one, (list, tuple)):
        items = [_asdict(item) for item in one]
        return type(one)(*items) if hasattr(one, "_fields") else type(one)(items)
    names = _names(one)
    return one if names is None else {name: _asdict(getattr(one, name)) for name in names}


def _names(one: Any) -> Any:
    """Return the names of a dataclass's fields; None for any other object."""
    ours = getattr(one, "_defaults", None)  # the standard ones would have to be made
    return getattr(one, "__dataclass_fields__", None) if ours is None else ours


if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    asdict, dataclass, field, replace = _asdict, _dataclass, _Factory, _replace
