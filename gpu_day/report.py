"""Write the one report of a GPU day: JSON with every answer, Markdown for people."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpu_day.day import Result
from gpu_day.judging import ABSENT, FAILED, PASSED, RAN
from perfrun.probes.machine import machine
from perfrun.summary.document import to_json

SCHEMA_VERSION = 1


def document(results: Sequence[Result], seconds: float) -> dict[str, Any]:
    """Return the report as one JSON document, from which it can be judged again."""
    return {
        "schema_version": SCHEMA_VERSION,
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "host": platform.node(),
        "machine": asdict(machine()),
        "counts": counts(results),
        "checks": [
            {
                "name": one.check.name,
                "expectation": one.check.expectation,
                **asdict(one.verdict),
                "origin": one.origin,
                "seconds": None if one.seconds is None else round(one.seconds, 1),
                "answer": one.answer,
            }
            for one in results
        ],
    }


def counts(results: Sequence[Result]) -> dict[str, int]:
    """Return how many checks have each verdict."""
    found = Counter(one.verdict.verdict for one in results)
    return {name: found[name] for name in (PASSED, FAILED, ABSENT, RAN)}


def markdown(whole: Mapping[str, Any]) -> str:
    """Return the report for people."""
    found = whole["counts"]
    origins = sorted({one["origin"] for one in whole["checks"]})
    said = ", ".join(f"{count} {name}" for name, count in found.items() if count)
    lines = [
        "# GPU day",
        "",
        f"{said}, in {whole['seconds']:g} s; {whole['when']}, on {whole['host']}.",
        f"Answers: {'; '.join(origins)}.",
        "",
        "| check | verdict | expected | measured | reason | s |",
        "|---|---|---|---|---|---|",
    ]
    for one in whole["checks"]:
        seconds = "" if one["seconds"] is None else f"{one['seconds']:.0f}"
        cells = (
            *(one["name"], one["verdict"], one["expectation"], one["measured"]),
            *(one["reason"] or "", seconds),
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def write(whole: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write both files and return their paths."""
    paths = folder / "gpu_day.md", folder / "gpu_day.json"
    paths[0].write_text(markdown(whole), encoding="utf-8")
    paths[1].write_text(to_json(whole) + "\n", encoding="utf-8")
    return paths
