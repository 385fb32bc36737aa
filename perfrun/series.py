"""Read the series that `Benchmark.measure` left behind, also those of a worker that was killed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.worker.files import SERIES

# What the worker writes once the timed part has ended; None in a series that never got there.
_LATER = (
    "block_size",
    "device",
    "devices",
    "synchronised_by",
    "cudnn_autotune",
    "timer",
    "gc",
    "recompilations",
)


def read_series(private: Path, notes: list[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the series of a trial, in the order in which they were begun.

    One that cannot be read is left out and noted.
    """
    found = []
    for path in _headers(private):
        try:
            found.append(_read(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            notes.append(f"{path.name} cannot be read: {error}")
    return tuple(found)


def _headers(private: Path) -> list[Path]:
    numbered = []
    try:
        for path in private.glob(f"{SERIES}*.json"):
            number = re.fullmatch(rf"{SERIES}(\d+)\.json", path.name)
            if number:
                numbered.append((int(number[1]), path))
    except OSError:
        pass
    return [path for _, path in sorted(numbered)]


def _read(path: Path) -> Mapping[str, Any]:
    # Here, because most runs have no series, and the harness starts faster without.
    from perfrun.worker.measurement import derive, evaluate, kept_times
    from perfrun.worker.rows import SUFFIX, read_rows

    facts = json.loads(path.read_bytes())
    raw = path.with_suffix(SUFFIX)
    rows = read_rows(str(raw))
    facts["rows_file"] = raw.name
    if "statistics" in facts:  # the worker's last word; it leaves the times to the rows
        return {**facts, **kept_times(rows)}
    facts = {**dict.fromkeys(_LATER), **facts, **evaluate(rows)}
    facts["devices"] = facts["devices"] or 1
    facts["report"] = None  # it is made after the last word
    return derive(facts)
