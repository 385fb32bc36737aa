"""A comparison as JSON, written and read: the schema of docs/versus.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun import __version__
from perfrun.comparison import difference_row
from perfrun.errors import UsageError
from perfrun.versus.answer import Answer, Ratio
from perfrun.versus.cells import Cell
from perfrun.versus.parsing import Asked, Case
from perfrun.versus.trials import DECIDES, Trials

if TYPE_CHECKING:
    from perfrun.analysis.costs import Figure

SCHEMA = "perfrun.versus"
SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A comparison read back."""

    path: Path
    begun: float  # seconds since the epoch
    platform_name: str
    machine: Mapping[str, Any]
    model: str | None
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...]
    notes: tuple[str, ...]


def document(asked: Asked, trials: Trials, answer: Answer, begun: float) -> dict[str, Any]:
    """All that is known of a comparison."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "perfrun_version": __version__,
        "begun": begun,
        "platform_name": answer.platform_name,
        "machine": dict(answer.machine),
        "model": asked.model,
        "argv": list(asked.argv),
        "contenders": [_contender_row(asked, trials, one.label) for one in asked.contenders],
        "rounds": asked.rounds,
        "min_effect": asked.min_effect,
        "seed": trials.seed,
        "interrupted": trials.interrupted,
        "stopped_by": dict(trials.stopped_by),
        "not_run": dict(trials.not_run),
        "cells": [cell_row(one) for one in answer.cells],
        "comparisons": [ratio_row(one) for one in answer.ratios],
        "environment_differences": {
            rival: [difference_row(one) for one in found]
            for rival, found in answer.differences.items()
        },
        "notes": list(answer.notes),
        "blocks": _block_rows(asked, trials),
    }


def _contender_row(asked: Asked, trials: Trials, label: str) -> dict[str, Any]:
    one = next(contender for contender in asked.contenders if contender.label == label)
    plans = {size: plan for (name, size), plan in asked.plans.items() if name == label}
    first = next(iter(plans.values()))
    return {
        "label": label,
        "framework": one.framework,
        "mode": one.mode,
        "class": one.class_path,
        "python": first.python or None,
        "image": first.container.image if first.container else None,
        "benchmark_flags": {str(size): list(plan.benchmark_flags) for size, plan in plans.items()},
        "run_ids": {str(size): run for size, run in trials.run_ids.get(label, {}).items()},
    }


def _block_rows(asked: Asked, trials: Trials) -> list[dict[str, Any]]:
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


def cell_row(one: Cell) -> dict[str, Any]:
    """One row of `cells`."""
    row = asdict(one)
    row.update(row.pop("case"))
    return row


def ratio_row(one: Ratio) -> dict[str, Any]:
    """One row of `comparisons`."""
    row = asdict(one)
    row.update(row.pop("case"))
    return row


def read_saved(path: Path) -> Saved:
    """Read a comparison back. Raises UsageError for what is none."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--combine: {path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--combine: {path}: is not JSON: {error}") from None
    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        raise UsageError(f"--combine: {path}: was not written by `perfrun versus`")
    if whole.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"--combine: {path}: has version {whole.get('schema_version')!r} of the format; this "
            f"perfrun reads {SCHEMA_VERSION}"
        )
    try:
        return _saved(path, whole)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise UsageError(f"--combine: {path}: is damaged: {error!r}") from None


def _saved(path: Path, whole: Mapping[str, Any]) -> Saved:
    if not whole["cells"]:
        raise ValueError("no cells")
    return Saved(
        path=path,
        begun=float(whole["begun"]),
        platform_name=str(whole["platform_name"]),
        machine=whole["machine"],
        model=whole["model"],
        cells=tuple(_cell(row) for row in whole["cells"]),
        ratios=tuple(Ratio(**_with_case(row)) for row in whole["comparisons"]),
        notes=tuple(map(str, whole["notes"])),
    )


def _cell(row: Mapping[str, Any]) -> Cell:
    given = _with_case(row)
    given["figures"] = {name: _figure(value) for name, value in given["figures"].items()}
    cost = given["cost_per_million"]
    given["cost_per_million"] = None if cost is None else _figure(cost)
    return Cell(**given)


def _figure(row: Mapping[str, Any]) -> Figure:
    from perfrun.analysis.costs import Figure

    return Figure(**row)


def _with_case(row: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(row)
    given["case"] = Case(phase=given.pop("phase"), batch_size=given.pop("batch_size"))
    return given
