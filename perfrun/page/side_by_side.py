"""The comparisons of frameworks that `perfrun versus` has kept in a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.page.kept_documents import names_in
from perfrun.untrusted import Folder, Refused
from perfrun.versus.answer import DECIDING, Cell
from perfrun.versus.options import Case
from perfrun.versus.saved_comparison import LIMIT_BYTES, SavedComparison, saved_comparison

_MOST_FILES = 5  # the newest
_MOST_CASES = 200  # of a comparison
_METRICS = (  # figures of a cell, with their units; the first one decides
    (DECIDING, "s"),
    ("throughput_per_s", "1/s"),
    ("peak_memory_bytes", "bytes"),
)


def versus_tables(workspace: Path) -> tuple[dict[str, Any], ...]:
    """Return the tables of the last comparisons, the newest first."""
    folder = workspace / "versus"
    files = sorted((name for name in names_in(folder) if name.endswith(".json")), reverse=True)
    return tuple(map(_table, _read(folder, files[:_MOST_FILES])))


def _read(folder: Path, names: list[str]) -> Iterator[SavedComparison]:
    """Yield the comparisons in a folder; what is none, or a link, counts as absent."""
    for name in names:
        try:
            with Folder(folder) as held:
                yield saved_comparison(folder / name, held.json(name, LIMIT_BYTES))
        except (OSError, Refused, UsageError):
            continue


def _table(saved: SavedComparison) -> dict[str, Any]:
    title = " ".join(filter(None, (saved.model or "model", saved.platform_name)))
    cases: dict[Case, list[Cell]] = {}
    for cell in saved.cells:
        cases.setdefault(cell.case, []).append(cell)
    if len(cases) > _MOST_CASES:
        title += f" (the first {_MOST_CASES} of {len(cases)} cases)"
    rows = []
    for case, own in islice(cases.items(), _MOST_CASES):
        for metric, unit in _METRICS:
            sides = [
                {
                    "name": cell.label,
                    "value": figure.median,
                    "low": figure.low,
                    "high": figure.high,
                }
                for cell in own
                if (figure := cell.figures.get(metric)) is not None
            ]
            if sides:
                rows.append({"what": case.name, "metric": metric, "unit": unit, "sides": sides})
    return {"title": title, "rows": rows}
