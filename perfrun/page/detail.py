"""The newest trial of a method in detail, and its last failures, as far as files are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perfrun.compare.differences import differences
from perfrun.errors import UsageError
from perfrun.page.document import Detail, Timeline
from perfrun.page.packed import Packed, packed
from perfrun.show.run_again import run_again
from perfrun.show.view import TrialView, view
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.process_log import Reading, readings
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.summary.series_identity import is_number, objects, section, text
from perfrun.summary.series_times import series_of_wall_time
from perfrun.untrusted import Folder, Refused

MOST_SAMPLES = 400  # of a trial that are kept
MOST_POINTS = 120  # of a timeline
MOST_FAILURES = 3
_MOST_DIFFERENCES = 12
_MOST_LINES = 15  # of a log
_MOST_LINE = 200  # characters
_MOST_PROFILES = 8
_TAIL_BYTES = 4096
# Of `process_info.log`: the names, their unit, and the name on the page.
_MEMORY = (("rss", "bytes", "memory"), ("tree_pss", "bytes", "memory of all processes"))
_LOADS = (("cpu_percent", "%", "CPU"),)
_DEVICE = (("_used", "bytes"), ("_utilization_percent", "%"), ("_power_w", "W"))


def at_hand(record: SummaryRecord) -> SummaryRecord:
    """Return the record with its whole summary where that is here; else as the index has it."""
    if record.document.get("execution_id") or not record.path.name:
        return record
    try:
        found = read_record(record.path)
    except (OSError, ValueError):
        return record
    return found if found.uid == record.uid else record


def detail_of(
    method: int,
    newest: SummaryRecord,
    good: SummaryRecord | None,
    failed: Sequence[SummaryRecord],
    workspace: Path,
) -> Detail:
    """Return the detail of a method: its newest trial against the last good one before it."""
    record = at_hand(newest)
    if not record.document.get("execution_id"):
        # Not its summary, or none: what lies beside it may be anything that an index names.
        record = replace(record, path=Path())
    shown = view(record)
    own = section(record.document, "perfrun")
    series = _series(record, own)
    samples, every, steady_from = _samples(series)
    return Detail(
        method=method,
        execution_id=record.execution_id,
        timestamp=record.timestamp,
        ended=record.status.value,
        grade=record.grade,
        doubts=tuple(doubt.text for doubt in shown.doubts[:6]),
        samples=samples,
        samples_every=every,
        steady_from=steady_from,
        samples_unit="s",
        warmup=_packed_times(section(series, "warmup").get("times_s"))[0],
        steady=shown.steps.steady if shown.steps else "",
        phases=tuple({"name": name, "seconds": seconds} for name, seconds in shown.phases),
        timeline=tuple(_timelines(record)),
        memory=tuple({"name": name, "bytes": size} for name, size in shown.memory),
        environment=tuple(_environment(shown)),
        differences=_differences(good, record),
        failures=tuple(_failure(one) for one in failed[-MOST_FAILURES:][::-1]),
        profiles=tuple(_profiles(record, own, workspace)),
        command=_command(record, workspace),
        log_tail=() if record.ran else _log_tail(record),
    )


def _series(record: SummaryRecord, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the series whose median is the wall time, else the first."""
    found = objects(own.get("series"))[:100]
    return series_of_wall_time(found, record.values.get(WALL_TIME)) or {}


def _samples(series: Mapping[str, Any]) -> tuple[Packed | None, int, int | None]:
    """Return the times of the timed part, which of them are kept, and the first steady one."""
    column, step = _packed_times(series.get("times_s"))
    recorded = series.get("times_every")
    every = step * (recorded if isinstance(recorded, int) and 0 < recorded < 2**31 else 1)
    first = section(series, "steadiness").get("steady_from")
    is_known = column is not None and isinstance(first, int) and 0 <= first < 2**53
    return column, every, math.ceil(first / every) if is_known and first is not None else None


def _packed_times(times: Any) -> tuple[Packed | None, int]:
    """Pack the times, or every n-th of many; return that n, too."""
    if not isinstance(times, list) or not times:
        return None, 1
    if not all(is_number(one) and one >= 0 for one in times):
        return None, 1
    step = -(-len(times) // MOST_SAMPLES)
    return packed([float(one) for one in times[::step]]), step


def _timelines(record: SummaryRecord) -> Iterator[Timeline]:
    rows = _thinned(readings(record.path, 20 * MOST_POINTS))
    if len(rows) < 2:
        return
    times = packed([row["time"] for row in rows])
    names = [*_MEMORY, *_LOADS, *_device_names(rows)]
    for name, unit, shown in names:
        values = [row.get(name) for row in rows]
        known = {value for value in values if value is not None}
        if not known or known == {0.0}:
            continue
        if name == "tree_pss" and all(row.get("processes") == 1 for row in rows):
            continue  # the same again
        yield Timeline(name=shown, unit=unit, t=times, y=packed(values))


def _device_names(rows: Sequence[Reading]) -> Iterator[tuple[str, str, str]]:
    for name in sorted({name for row in rows for name in row})[:200]:
        for end, unit in _DEVICE:
            device = name.removesuffix(end)
            if device != name and device.isalnum() and device[-1:].isdigit():
                words = end.strip("_").rpartition("_")[0] or "memory"
                yield name, unit, f"{device} {words.replace('used', 'memory')}"


def _thinned(rows: Sequence[Reading]) -> Sequence[Reading]:
    """Return at most so many rows: of neighbours the one with the most memory."""
    if len(rows) <= MOST_POINTS:
        return rows
    step = -(-len(rows) // MOST_POINTS)
    parts = [rows[at : at + step] for at in range(0, len(rows), step)]
    return [max(part, key=_memory_of) for part in parts]


def _memory_of(row: Reading) -> float:
    return row.get("tree_pss", 0.0)


def _environment(shown: TrialView) -> Iterator[tuple[str, str]]:
    yield from shown.versions[:8]
    if shown.machine:
        yield "machine", ", ".join(shown.machine)
    for commit in shown.commits[:6]:
        yield "checkout", commit
    if shown.container:
        yield "image", shown.container
    if shown.settings:
        yield "settings", shown.settings
    if shown.label:
        yield "label", shown.label


def _differences(
    good: SummaryRecord | None, record: SummaryRecord
) -> tuple[tuple[str, str, str], ...]:
    """Return what differs from the last good trial of another run."""
    if good is None:
        return ()
    try:
        found = differences([at_hand(good)], [record])
    except UsageError:  # a damaged summary
        return ()
    return tuple(
        (
            one.name if one.name != "--" else "flags after --",
            _short_hash(one.base),
            _short_hash(one.new),
        )
        for one in found[:_MOST_DIFFERENCES]
    )


def _short_hash(value: str | None) -> str:
    """Return a value, of a hash its beginning."""
    return value[:12] if value and len(value) >= 40 and value.isalnum() else value or ""


def _failure(failed: SummaryRecord) -> dict[str, Any]:
    record = at_hand(failed)
    outcome = section(section(record.document, "perfrun"), "outcome")
    said = text(section(outcome, "exception").get("traceback")) or text(outcome.get("stderr_tail"))
    return {
        "time": record.timestamp,
        "reason": record.reason or record.status.value,
        "tail": _last_lines(said),
    }


def _last_lines(said: str) -> list[str]:
    lines = [one.rstrip() for one in said[-_TAIL_BYTES:].splitlines() if one.strip()]
    return [one[:_MOST_LINE] for one in lines[-_MOST_LINES:]]


def _log_tail(record: SummaryRecord) -> tuple[str, ...]:
    if not record.path.name:
        return ()
    try:
        with Folder(record.path.parent) as folder:
            content, _ = folder.tail("stderr.log", _TAIL_BYTES)
    except (OSError, Refused):
        return ()
    return tuple(_last_lines(content.decode("utf-8", "replace")))


def _profiles(record: SummaryRecord, own: Mapping[str, Any], workspace: Path) -> Iterator[str]:
    """Yield the files of profiles as links relative to the workspace."""
    try:
        folder = record.path.parent.resolve().relative_to(workspace.resolve())
    except (OSError, ValueError, RuntimeError):
        return
    files = [f for one in objects(own.get("profiles"))[:20] for f in objects(one.get("files"))[:20]]
    for one in files[:_MOST_PROFILES]:
        path = text(one.get("path"))
        if path and not path.startswith("/") and ".." not in path.split("/"):
            # Quoted, and with a beginning that makes it no scheme: it stands in a link.
            yield f"./{quote(str(folder / path))}"


def _command(record: SummaryRecord, workspace: Path) -> str:
    again = run_again(record, workspace)
    return again.command
