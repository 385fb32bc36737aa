"""The comparisons of frameworks that `perfrun versus` has kept in a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.page.kept_documents import names_in, read_checked
from perfrun.versus.answer import DECIDING
from perfrun.versus.result_file import SCHEMA

_MOST_FILES = 5  # the newest
_METRICS = (  # figures of a cell, with their units; the first one decides
    (DECIDING, "s"),
    ("throughput_per_s", "1/s"),
    ("peak_memory_bytes", "bytes"),
)
_value = schema.maybe(schema.number())
_FIGURE = schema.table(
    {"median": schema.number(), "low": _value, "high": _value},
    needs=("median",),
    absent={"low": None, "high": None},
)
_CELL = schema.table(
    {
        "label": schema.text(),
        "phase": schema.text(),
        "batch_size": schema.whole(),
        "figures": schema.mapped(_FIGURE, 100),
    },
    needs=("label", "phase", "batch_size"),
    absent={"figures": {}},
)
_COMPARISON = schema.table(
    {
        "schema": schema.one_of(SCHEMA),
        "model": schema.maybe(schema.text()),
        "platform_name": schema.text(),
        "cells": schema.listed(_CELL, 1000),
    },
    needs=("schema", "cells"),
    absent={"model": None, "platform_name": ""},
)


def versus_tables(workspace: Path) -> tuple[dict[str, Any], ...]:
    """Return the tables of the last comparisons, the newest first."""
    folder = workspace / "versus"
    files = sorted((name for name in names_in(folder) if name.endswith(".json")), reverse=True)
    documents = (read_checked(folder, name, _COMPARISON) for name in files[:_MOST_FILES])
    return tuple(_table(document) for document in documents if document is not None)


def _table(document: Mapping[str, Any]) -> dict[str, Any]:
    title = " ".join(filter(None, (document["model"] or "model", document["platform_name"])))
    cases = dict.fromkeys((cell["phase"], cell["batch_size"]) for cell in document["cells"])
    rows = []
    for phase, batch_size in cases:
        own = [c for c in document["cells"] if (c["phase"], c["batch_size"]) == (phase, batch_size)]
        for metric, unit in _METRICS:
            sides = [
                {
                    "name": cell["label"],
                    "value": figure["median"],
                    "low": figure["low"],
                    "high": figure["high"],
                }
                for cell in own
                if (figure := cell["figures"].get(metric)) is not None
            ]
            if sides:
                what = f"{phase}, batch {batch_size}"
                rows.append({"what": what, "metric": metric, "unit": unit, "sides": sides})
    return {"title": title, "rows": rows}
