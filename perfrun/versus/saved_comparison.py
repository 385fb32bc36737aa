"""Read a saved comparison of `perfrun versus`, within a limit and field by field.

A file may come from another machine: what is of another form than perfrun writes is refused with
its place, and nothing of it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.analysis.costs import Figure
from perfrun.errors import UsageError
from perfrun.untrusted import Refused, parse_json, read_file
from perfrun.versus.answer import Cell, Ratio
from perfrun.versus.options import Case

SCHEMA = "perfrun.versus"
SCHEMA_VERSION = 1
LIMIT_BYTES = 64 * 2**20
_MOST_ROWS = 10_000
_MOST_NAMES = 1000
_count = schema.whole()
_figure = schema.table(
    {
        "median": schema.number(),
        "low": schema.maybe(schema.number()),
        "high": schema.maybe(schema.number()),
        "trials": _count,
    },
    needs=("median", "low", "high", "trials"),
)
_CELL = {
    **{name: schema.text() for name in ("platform_name", "phase", "label", "framework", "method")},
    **dict.fromkeys(("batch_size", "trials", "ran", "disturbed"), _count),
    "failure": schema.maybe(schema.text()),
    "figures": schema.mapped(_figure, _MOST_NAMES),
    "counts": schema.mapped(schema.number(), _MOST_NAMES),
    "described": schema.mapped(schema.anything(100), _MOST_NAMES),
    "software": schema.mapped(schema.text(), _MOST_NAMES),
    "price_per_hour": schema.maybe(schema.number()),
    "cost_per_million": schema.maybe(_figure),
}
_RATIO = {
    **{
        name: schema.text()
        for name in ("platform_name", "phase", "base", "label", "figure", "verdict")
    },
    **{name: schema.maybe(schema.number()) for name in ("ratio", "low", "high", "p_value")},
    "reason": schema.maybe(schema.text()),
    "batch_size": _count,
    "pairs": _count,
    "margin": schema.number(),
}
_COMPARISON = {
    "begun": schema.number(0, schema.LONGEST_S),
    "platform_name": schema.text(),
    "machine": schema.mapped(schema.anything(100), _MOST_NAMES),
    "model": schema.maybe(schema.text()),
    "cells": schema.listed(schema.table(_CELL, needs=_CELL), _MOST_ROWS),
    "comparisons": schema.listed(schema.table(_RATIO, needs=_RATIO), _MOST_ROWS),
    "notes": schema.listed(schema.text(), _MOST_ROWS),
}
_wanted = schema.table(_COMPARISON, needs=_COMPARISON)


@dataclass(frozen=True, kw_only=True)
class SavedComparison:
    """A comparison that was read back."""

    path: Path
    begun: float  # seconds since the epoch
    platform_name: str
    machine: Mapping[str, Any]
    model: str | None
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...]
    notes: tuple[str, ...]


def read_saved(path: Path) -> SavedComparison:
    """Read a comparison that the user names. Raises UsageError for any other file."""
    try:
        said = parse_json(read_file(path.resolve(), LIMIT_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except Refused as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    return saved_comparison(path, said)


def saved_comparison(path: Path, said: Any) -> SavedComparison:
    """Return the comparison that a file holds. Raises UsageError for anything else."""
    if not is_comparison(said):
        raise UsageError(f"{path}: was not written by `perfrun versus`")
    if said.get("schema_version") != SCHEMA_VERSION:
        version = schema.shown(said.get("schema_version"))
        raise UsageError(
            f"{path}: has version {version} of the format; this perfrun reads {SCHEMA_VERSION}"
        )
    notes: list[str] = []
    try:
        found = schema.checked(_wanted, said, path.name, notes)
        _check_whole(found, said)
    except schema.Wrong as error:
        first = f" ({notes[0]})" if notes else ""
        raise UsageError(f"{path}: is damaged: it {error}{first}") from None
    return SavedComparison(
        path=path,
        begun=float(found["begun"]),
        platform_name=found["platform_name"],
        machine=found["machine"],
        model=found["model"],
        cells=tuple(_cell(row) for row in found["cells"]),
        ratios=tuple(Ratio(**_with_case(row)) for row in found["comparisons"]),
        notes=tuple(found["notes"]),
    )


def is_comparison(said: Any) -> bool:
    """Return True for a document of `perfrun versus`, of whatever version."""
    return isinstance(said, dict) and said.get("schema") == SCHEMA


def _check_whole(found: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Raise Wrong where something was left out: it would be taken for what was never measured."""
    if not found["cells"]:
        raise schema.Wrong("has no cells")
    for name in ("cells", "comparisons", "notes"):
        if len(found[name]) < len(said[name]):
            raise schema.Wrong(f"is wrong: {name}")
    for kept, given in zip(found["cells"], said["cells"], strict=True):
        if len(kept["figures"]) < len(given["figures"]):
            raise schema.Wrong("is wrong: figures")


def _cell(row: Mapping[str, Any]) -> Cell:
    given = _with_case(row)
    given["figures"] = {name: Figure(**value) for name, value in given["figures"].items()}
    cost = given["cost_per_million"]
    given["cost_per_million"] = None if cost is None else Figure(**cost)
    return Cell(**given)


def _with_case(row: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(row)
    given["case"] = Case(phase=given.pop("phase"), batch_size=given.pop("batch_size"))
    return given
