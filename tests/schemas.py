"""Hold a document against its published schema: nothing wrong in it, and no key undescribed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # its formats take four seconds to import
    from jsonschema import Draft202012Validator

FOLDER = Path(__file__).resolve().parent.parent / "perfrun" / "schemas"
SUFFIX = ".schema.json"


def names() -> list[str]:
    """All published schemas."""
    return sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))


@cache
def schema(name: str) -> dict[str, Any]:
    """A schema as it is published."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}{SUFFIX}").read_text(encoding="utf-8"))
    return found


@cache
def published(name: str) -> Draft202012Validator:
    """What a user's validator does: formats are checked, further keys are let through."""
    return _validator(schema(name))


@cache
def closed(name: str) -> Draft202012Validator:
    """The same, and a key that the schema does not describe is wrong.

    perfrun may add keys, so the published schemas let them through. A key that is added without a
    description is found by this one.
    """
    return _validator(_closed(schema(name)))


def _validator(described: Any) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(described, format_checker=Draft202012Validator.FORMAT_CHECKER)


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _closed(value) for key, value in part.items()}
    if "properties" in part and "type" in part and "additionalProperties" not in part:
        found["additionalProperties"] = False
    return found


def wrong(name: str, document: Any) -> list[str]:
    """What is wrong with a document, each with its place; undescribed keys included."""
    return [
        f"{error.json_path}: {error.message[:300]}" for error in closed(name).iter_errors(document)
    ]


def check(name: str, document: Any) -> None:
    """Assert that a document is valid, and that all its keys are described."""
    assert not wrong(name, document)


def check_lines(name: str, path: Path) -> list[Any]:
    """Assert that each line of a log is valid; return the lines."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for one in found:
        check(name, one)
    return found


def parts(part: Any, place: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema within a schema that describes a value, with its place."""
    if isinstance(part, dict):
        yield place, part
        for key in ("properties", "$defs"):
            for name, inner in part.get(key, {}).items():
                yield from parts(inner, f"{place}/{key}/{name}")
        for key in ("items", "additionalProperties"):
            yield from parts(part.get(key), f"{place}/{key}")
        for key in ("oneOf", "anyOf", "prefixItems"):
            for number, inner in enumerate(part.get(key, ())):
                yield from parts(inner, f"{place}/{key}/{number}")
