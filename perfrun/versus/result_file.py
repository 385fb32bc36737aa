"""A comparison as JSON: written, and combined with others (`--combine`).

docs/guides/versus.md describes the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from perfrun import __version__
from perfrun.analysis.costs import cost_per_million
from perfrun.compare.command import difference_row
from perfrun.errors import UsageError
from perfrun.versus.answer import Cell, Ratio, VersusAnswer, count_notes, machine_text
from perfrun.versus.options import Arm, Prices, VersusPlan
from perfrun.versus.saved_comparison import (
    SCHEMA,
    SCHEMA_VERSION,
    SavedComparison,
    read_saved,
)
from perfrun.versus.trials import DECIDES, Trials

_PLATFORMS_NOTE = (
    "Ratios and verdicts hold within a platform. Between platforms there is no verdict: their "
    "trials were not run in turns, and all that differs between the machines is in the figures."
)
_RowKey = tuple[str, str, str]  # platform, case, arm


def versus_document(
    asked: VersusPlan, trials: Trials, answer: VersusAnswer, begun: float
) -> dict[str, Any]:
    """Return the document of a comparison."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "perfrun_version": __version__,
        "begun": begun,
        "platform_name": answer.platform_name,
        "machine": dict(answer.machine),
        "model": asked.model,
        "argv": list(asked.argv),
        "contenders": [_arm_row(asked, trials, one) for one in asked.arms],
        "rounds": asked.rounds,
        "min_effect": asked.min_effect,
        "seed": trials.seed,
        "interrupted": trials.interrupted,
        "stopped_by": dict(trials.stopped_by),
        "not_run": dict(trials.not_run),
        "cells": [row_of(one) for one in answer.cells],
        "comparisons": [row_of(one) for one in answer.ratios],
        "environment_differences": {
            rival: [difference_row(one) for one in found]
            for rival, found in answer.differences.items()
        },
        "notes": list(answer.notes),
        "blocks": _block_rows(asked, trials),
    }


def _arm_row(asked: VersusPlan, trials: Trials, one: Arm) -> dict[str, Any]:
    plans = {size: plan for (label, size), plan in asked.plans.items() if label == one.label}
    first = next(iter(plans.values()))
    return {
        "label": one.label,
        "framework": one.framework,
        "mode": one.mode,
        "backend": one.backend,
        "class": one.class_path,
        "python": first.python or None,
        "image": first.container.image if first.container else None,
        "benchmark_flags": {str(size): list(plan.benchmark_flags) for size, plan in plans.items()},
        "run_ids": {str(size): run for size, run in trials.run_ids.get(one.label, {}).items()},
    }


def _block_rows(asked: VersusPlan, trials: Trials) -> list[dict[str, Any]]:
    return [
        {
            "phase": case.phase,
            "batch_size": case.batch_size,
            "number": block.number,
            "order": list(block.order),
            "summaries": {label: str(reading.path) for label, reading in block.readings.items()},
            "latency_s": {label: r.values.get(DECIDES) for label, r in block.readings.items()},
        }
        for case in asked.cases
        for block in trials.blocks.get(case.name, ())
    ]


def row_of(one: Cell | Ratio) -> dict[str, Any]:
    """Return one row of `cells` or `comparisons`."""
    row = asdict(one)
    row.update(row.pop("case"))
    return row


@dataclass(frozen=True, kw_only=True)
class Combined:
    """Several comparisons as one table."""

    cells: tuple[Cell, ...]  # by case, then arm, then platform
    ratios: tuple[Ratio, ...]
    notes: tuple[str, ...]
    sources: tuple[SavedComparison, ...]


def find_saved(sources: Sequence[Path]) -> tuple[SavedComparison, ...]:
    """Read the files, and those in the folders (workspaces, or folders of copied files).

    Raises UsageError for what is no comparison.
    """
    found: dict[Path, SavedComparison] = {}
    for source in sources:
        paths = _in_folder(source) if source.is_dir() else [source]
        for path in paths:
            if path.resolve() not in found:
                found[path.resolve()] = _read(path)
    return tuple(sorted(found.values(), key=lambda one: one.begun))


def _read(path: Path) -> SavedComparison:
    try:
        return read_saved(path)
    except UsageError as error:
        raise UsageError(f"--combine: {error}") from None


def _in_folder(folder: Path) -> list[Path]:
    places = (folder / "versus", folder, *sorted(folder.glob("*/versus/")))
    paths = [path for place in places for path in sorted(place.glob("*.json"))]
    if not paths:
        raise UsageError(f"--combine: {folder}: has no saved comparison (*.json, or workspaces)")
    return paths


def combine(saved: Sequence[SavedComparison], prices: Prices) -> Combined:
    """Combine comparisons; of rows of the same arm, case and platform the newest counts."""
    models = {one.model for one in saved}
    if len(models) > 1:
        names = ", ".join(sorted(str(model) for model in models))
        raise UsageError(f"--combine: these compare different models: {names}")
    known = {name for s in saved for c in s.cells for name in (c.label, c.framework)}
    prices.refuse_unknown(known | {one.platform_name for one in saved})
    newest: dict[_RowKey, tuple[Cell, SavedComparison]] = {}
    for one in saved:  # oldest first
        for cell in one.cells:
            newest[one.platform_name, cell.case.name, cell.label] = (cell, one)
    cells = [_priced(cell, prices) for cell, _ in newest.values()]
    kept = {id(source) for _, source in newest.values()}
    used = [one for one in saved if id(one) in kept]
    ratios = [
        ratio
        for one in used
        for ratio in one.ratios
        if all(
            newest.get((ratio.platform_name, ratio.case.name, label), (None, None))[1] is one
            for label in (ratio.base, ratio.label)
        )
    ]
    return Combined(
        cells=tuple(sorted(cells, key=_order_of(cells))),
        ratios=tuple(ratios),
        notes=tuple(_notes(used, cells, len(saved) - len(used))),
        sources=tuple(used),
    )


def _priced(cell: Cell, prices: Prices) -> Cell:
    """Return the cell with the price of the command line; without one, the saved price stays."""
    price = prices.of(cell.label, cell.framework, cell.platform_name)
    throughput = cell.figures.get("throughput_per_s")
    if price is None or throughput is None:
        return cell
    return replace(cell, price_per_hour=price, cost_per_million=cost_per_million(price, throughput))


def _order_of(cells: Sequence[Cell]) -> Any:
    """Return a sort key: phase, batch size, then arms and platforms in their first order."""
    labels = list(dict.fromkeys(cell.label for cell in cells))
    platforms = list(dict.fromkeys(cell.platform_name for cell in cells))

    def place(cell: Cell) -> tuple[str, int, int, int]:
        case = cell.case
        where = platforms.index(cell.platform_name)
        return case.phase, case.batch_size, labels.index(cell.label), where

    return place


def _notes(used: Sequence[SavedComparison], cells: Sequence[Cell], older: int) -> list[str]:
    lines = [_platform_line(one) for one in used]
    if len({one.platform_name for one in used}) > 1:
        lines.append(_PLATFORMS_NOTE)
    if older:
        lines.append(f"{older} older comparisons of the same platforms are left out.")
    lines += _several_machines(used)
    lines += count_notes(cells)
    lines += _software_notes(cells)
    for one in used:
        kinds = ("Environment", "Disturbed")
        lines += [f"{one.platform_name}: {note}" for note in one.notes if note.startswith(kinds)]
    return lines


def _platform_line(one: SavedComparison) -> str:
    when = f"{datetime.fromtimestamp(one.begun).astimezone():%Y-%m-%d %H:%M}"
    return f"{one.platform_name}: {machine_text(one.machine)}; {when}, {one.path}."


def _several_machines(used: Sequence[SavedComparison]) -> list[str]:
    """Return notes on platforms whose comparisons come from different processors."""
    found: dict[str, dict[str, None]] = {}
    for one in used:
        found.setdefault(one.platform_name, {})[str(one.machine.get("cpu_model"))] = None
    return [
        f"{platform}: rows of different processors ({' | '.join(models)}) share this name."
        for platform, models in found.items()
        if len(models) > 1
    ]


def _software_notes(cells: Iterable[Cell]) -> list[str]:
    """Return notes on versions that are not the same on all platforms."""
    seen: dict[tuple[str, str], dict[str, str]] = {}
    for cell in cells:
        for name, version in cell.software.items():
            seen.setdefault((cell.label, name), {})[cell.platform_name] = version
    return [
        f"Software: {label}: {name} {_texts(versions)}."
        for (label, name), versions in seen.items()
        if len(set(versions.values())) > 1
    ]


def _texts(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{version} on {platform}" for platform, version in versions.items())
