"""Profiles as lines of text: what was recorded, where, what took most. Values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.document import TrialResult
from perfrun.quantities import duration
from perfrun.reports.run_table import shown_path
from perfrun.reports.table import Column, Table, aligned

SHOWN_ROWS = 5
_LONGEST_NAME = 60
_LACKING = "UnavailableError: "  # the environment under test lacks the profiler
_HEADINGS = {
    "self_s": "self ms",
    "total_s": "total ms",
    "device_s": "device ms",
    "calls": "calls",
    "bytes": "MiB",
    "allocations": "allocations",
}


def profile_lines(result: TrialResult) -> list[str]:
    """One block for each profile that a profile trial recorded, or why there is none."""
    own = result.document["perfrun"]
    kind, outcome = own["order"]["profile"], own["outcome"]
    lines = []
    if not result.status.ran:
        reason = str(outcome["reason"])
        what = f"{result.status.value} ({reason})"
        if reason.startswith(_LACKING):
            what = f"none: {reason.removeprefix(_LACKING)}"
        lines.append(f"profile {kind} of {result.name}: {what}")
    folder = Path(result.summary).parent
    for profile in own["profiles"]:
        lines += _block(profile, result.name, folder)
    return lines


def _block(profile: Mapping[str, Any], method: str, folder: Path) -> list[str]:
    tool = " ".join(filter(None, (profile["tool"], profile["version"])))
    lines = [f"profile {profile['kind']} of {method}, by {tool}{_recorded(profile['windows'])}"]
    lines += [f"  {text}" for text in (profile["error"], *profile["notes"]) if text]
    lines += [f"  {shown_path(str(folder / one['path']))}" for one in profile["files"]]
    return lines + [f"  {line}" for line in _rows(profile["top"][:SHOWN_ROWS])]


def _recorded(windows: Sequence[Mapping[str, Any]]) -> str:
    if not windows:
        return ": nothing recorded"
    seconds = sum(window["end_s"] - window["begin_s"] for window in windows)
    steps = [window["steps"] for window in windows if window["steps"] is not None]
    what = f"{sum(steps)} timed steps" if steps else "the whole method"
    return f": {what}, {duration(seconds, 3)}"


def _rows(top: Sequence[Mapping[str, Any]]) -> list[str]:
    if not top:
        return []
    names = [name for name in _HEADINGS if name in top[0]]
    columns = tuple(Column(heading=_HEADINGS[name], right=True) for name in names)
    rows = tuple((*(_figure(name, row[name]) for name in names), _what(row)) for row in top)
    return aligned(Table(columns=(*columns, Column(heading="what")), rows=rows))


def _figure(name: str, value: float) -> str:
    if name == "bytes":
        return f"{value / 2**20:.1f}"
    return f"{1e3 * value:.3f}" if name.endswith("_s") else str(value)


def _what(row: Mapping[str, Any]) -> str:
    path, _, line = str(row.get("where") or "").rpartition(":")
    place = f"{'/'.join(Path(path).parts[-2:])}:{line}" if path else ""
    name = str(row["name"])
    if len(name) > _LONGEST_NAME:
        name = name[: _LONGEST_NAME - 3] + "..."
    return " ".join(filter(None, (name, place)))
