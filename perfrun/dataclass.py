"""Dataclasses that cost next to nothing to define, for the modules that every run imports.

The standard library's decorator writes and compiles six functions for each class, 0.2 to 0.7 ms,
and its import brings `inspect`: 64 classes and that import were 30 ms of a run of one no-op, three
times the interpreter's own start. Here all classes share one set of functions. What they make is a
dataclass to everybody else: a type checker sees the standard decorator, and `dataclasses.fields`,
`replace` and `asdict` work, for `__dataclass_fields__` is made when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

_Fields = dict[str, Any]  # name -> default, _Factory or _REQUIRED
_REQUIRED: Any = object()


class _Factory:
    """Makes the default of one object."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def _field(*, default_factory: Callable[[], Any]) -> Any:
    return _Factory(default_factory)


def _dataclass(cls: Any = None, /, *, frozen: bool = False, kw_only: bool = False) -> Any:
    """Make a class a dataclass, as the standard decorator with the same arguments does."""

    def made(cls: type) -> type:
        fields: _Fields = {}
        for base in cls.__mro__[:0:-1]:
            fields.update(vars(base).get("_fields", {}))
        for name in cls.__annotations__:
            default = vars(cls).get(name, _REQUIRED)
            fields[name] = default
            if isinstance(default, _Factory):
                delattr(cls, name)
        members: dict[str, Any] = {
            "_fields": fields,
            "_positional": () if kw_only else tuple(fields),
            "__match_args__": () if kw_only else tuple(fields),
            "__dataclass_fields__": _StandardFields(),
            "__init__": _init,
            "__repr__": _repr,
            "__eq__": _eq,
            "__hash__": _hash if frozen else None,
        }
        if frozen:
            members["__setattr__"], members["__delattr__"] = _refuse_to_set, _refuse_to_delete
        for name, member in members.items():
            if name in ("__repr__", "__eq__") and name in vars(cls):
                continue  # the class has its own
            setattr(cls, name, member)
        return cls

    return made if cls is None else made(cls)


def _init(self: Any, *values: Any, **given: Any) -> None:
    cls = type(self)
    if values:
        given = _with_positional(cls, values, given)
    own = vars(self)
    for name, default in cls._fields.items():
        if name in given:
            own[name] = given[name]
        elif default is _REQUIRED:
            raise TypeError(f"{cls.__name__}() is given no {name!r}")
        else:
            own[name] = default.make() if isinstance(default, _Factory) else default
    if len(given) > len(own) or not given.keys() <= own.keys():
        unknown = sorted(given.keys() - own.keys())
        raise TypeError(f"{cls.__name__}() has no field {', '.join(map(repr, unknown))}")


def _with_positional(cls: Any, values: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    if len(values) > len(cls._positional):
        raise TypeError(f"{cls.__name__}() takes {len(cls._positional)} values by position")
    placed = dict(zip(cls._positional, values, strict=False))
    if both := placed.keys() & given.keys():
        raise TypeError(f"{cls.__name__}() is given {', '.join(sorted(both))} twice")
    return {**placed, **given}


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={vars(self)[name]!r}" for name in self._fields)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _values(one: Any) -> tuple[Any, ...]:
    own = vars(one)
    return tuple([own[name] for name in one._fields])


def _refuse_to_set(_self: Any, name: str, _value: object) -> NoReturn:
    raise _frozen_error(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> NoReturn:
    raise _frozen_error(f"cannot delete field {name!r}")


def _frozen_error(text: str) -> Exception:
    from dataclasses import FrozenInstanceError  # only for a mistake in our own code

    return FrozenInstanceError(text)


class _StandardFields:
    """Makes `__dataclass_fields__`, by which the standard library knows a dataclass, when asked."""

    def __get__(self, _instance: object, owner: Any) -> Any:
        import dataclasses  # its import is what is saved

        described = []
        for name, default in owner._fields.items():
            options: dict[str, Any] = {}
            if isinstance(default, _Factory):
                options["default_factory"] = default.make
            elif default is not _REQUIRED:
                options["default"] = default
            described.append((name, Any, dataclasses.field(**options)))
        model: Any = dataclasses.make_dataclass(owner.__name__, described, kw_only=True)
        owner.__dataclass_fields__ = model.__dataclass_fields__
        return owner.__dataclass_fields__


def _replace(one: Any, **changes: Any) -> Any:
    """Return a copy of a dataclass with other values in some fields."""
    return type(one)(**{**{name: getattr(one, name) for name in _names(one)}, **changes})


def _asdict(one: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name; dataclasses in them become dictionaries, too."""
    return {name: _plain(getattr(one, name)) for name in _names(one)}


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, type(None))):
        return value
    if _names(value) is not None:
        return _asdict(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        named = isinstance(value, tuple) and hasattr(value, "_fields")
        return type(value)(*items) if named else type(value)(items)
    return value


def _names(one: Any) -> Any:
    """The names of a dataclass's fields; None of what is none."""
    if isinstance(one, (type, tuple)):
        return None
    fields = getattr(one, "_fields", None)  # ours: the standard ones would have to be made
    return getattr(one, "__dataclass_fields__", None) if fields is None else fields


if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    asdict, dataclass, field, replace = _asdict, _dataclass, _field, _replace
