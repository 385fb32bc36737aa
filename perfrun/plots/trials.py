"""What a picture shows of one trial: the samples of its series, its memory over time.

The summary may come from anywhere, and a benchmark could write to its folder: no link is followed,
files are read within limits, and what is no finite number counts as absent.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfrun.errors import UsageError
from perfrun.plots.data import Curve, DistributionData, MemoryData, Panel, Phase, is_drawable
from perfrun.shown import cell
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.process_log import NAME, readings
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import is_number, objects, section, text
from perfrun.summary.series_times import median_interval_of, series_of_wall_time
from perfrun.untrusted import Folder, Refused

_DEVICES = "devices.csv"  # in the folder perfrun/
_LIMIT_BYTES = 64 * 2**20
_MOST_CURVES = 16  # of a panel: devices
_MOST_SERIES = 1000
_DEVICE = re.compile(r"[A-Za-z]{1,20}\d{1,4}")
_LARGEST = 1e18


def distribution(record: SummaryRecord, series: str | None = None) -> DistributionData:
    """Return the samples of a series of a trial: the one that is named, or that of the wall time.

    Raises UsageError where there is none.
    """
    several = objects(section(record.document, "perfrun").get("series"))[:_MOST_SERIES]
    several = [one for one in several if _times(one.get("times_s"))]
    if not several:
        raise UsageError(
            f"{cell(record.execution_id)}: this trial has no samples: its summary holds no series "
            "of Benchmark.measure"
        )
    one = _chosen(record, several, series)
    interval = median_interval_of(one)
    figures = section(one, "statistics")
    warmup = section(one, "warmup")
    return DistributionData(
        method=record.method,
        series=text(one.get("name")),
        trial=record.execution_id,
        label=record.label or "",
        environment=record.subject.environment,
        about=_about(record),
        first_call_s=_time(one.get("first_call_s")),
        warmup_s=_times(warmup.get("times_s")),
        warmup_every=_count(warmup.get("every")) or 1,
        times_s=_times(one.get("times_s")),
        times_every=_count(one.get("times_every")) or 1,
        steady_from=_steady_from(section(one, "steadiness")),
        kind=text(section(one, "steadiness").get("kind"))[:40],
        median_s=_time(figures.get("median_s")),
        low_s=interval[0] if interval else None,
        high_s=interval[1] if interval else None,
    )


def _chosen(
    record: SummaryRecord, several: Sequence[Mapping[str, Any]], name: str | None
) -> Mapping[str, Any]:
    names = [text(one.get("name")) for one in several]
    if name:
        if name not in names:
            known = ", ".join(cell(one) for one in names[:8])
            raise UsageError(f"--series={cell(name)}: this trial has {known}")
        return several[names.index(name)]
    return series_of_wall_time(several, record.values.get(WALL_TIME)) or several[0]


def _about(record: SummaryRecord) -> tuple[str, ...]:
    grade = f", grade {record.grade}" if record.grade else ""
    disturbed = ", disturbed" * record.disturbed
    return (
        f"{record.status.value}{grade}{disturbed}",
        f"trial {record.execution_id}",
        record.subject.environment,
    )


def _times(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(_is_size(one) for one in values):
        return ()
    return tuple(map(float, values))


def _time(value: Any) -> float | None:
    return float(value) if _is_size(value) else None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if is_count else None


def _steady_from(steadiness: Mapping[str, Any]) -> int | None:
    return _count(steadiness.get("steady_from"))


def _is_size(value: Any) -> bool:
    return is_number(value) and 0 <= value < _LARGEST and is_drawable(value)


def memory(record: SummaryRecord) -> MemoryData:
    """Return what was watched of a trial over time. Raises UsageError where nothing is left."""
    samples = readings(record.path)
    if not samples:
        raise UsageError(
            f"{cell(record.execution_id)}: {NAME} of this trial is gone or cannot be read, so "
            "there is nothing over time"
        )
    devices = _device_curves(_contents(record, ("perfrun",), _DEVICES) or b"")
    panels = [
        Panel(name="memory", unit="bytes", curves=tuple(_memory_curves(samples, devices))),
        Panel(
            name="CPU",
            unit="%",
            curves=tuple(_curves(samples, {"cpu_percent": "worker's process"})),
        ),
        *_device_panels(devices),
    ]
    return MemoryData(
        method=record.method,
        about=_about(record),
        panels=tuple(panel for panel in panels if panel.curves),
        phases=tuple(_phases(record, samples[-1]["time"])),
    )


def _contents(record: SummaryRecord, below: Sequence[str], name: str) -> bytes | None:
    if not record.path.name:
        return None
    try:
        with Folder(record.path.parent, *below) as folder:
            return folder.read(name, _LIMIT_BYTES)
    except (OSError, Refused):
        return None


def _memory_curves(
    samples: Sequence[Mapping[str, float]], devices: Mapping[str, Mapping[str, Curve]]
) -> Iterator[Curve]:
    """Yield the memory of the process and of its tree, which are one while it is alone."""
    names = {"rss": "worker's process (RSS)"}
    if any(sample.get("processes", 1) > 1 for sample in samples):
        names["tree_pss"] = "with all descendants (PSS)"
    yield from _curves(samples, names)
    for device, curves in devices.items():
        if "used_bytes" in curves:
            one = curves["used_bytes"]
            yield Curve(name=f"{device}, in use", times=one.times, values=one.values)


def _curves(samples: Sequence[Mapping[str, float]], names: Mapping[str, str]) -> Iterator[Curve]:
    for key, name in names.items():
        own = [(sample["time"], sample[key]) for sample in samples if key in sample]
        if own:
            times, values = zip(*own, strict=True)
            yield Curve(name=name, times=times, values=values)


def _device_panels(devices: Mapping[str, Mapping[str, Curve]]) -> Iterator[Panel]:
    for key, name, unit in (
        ("utilization_percent", "device", "%"),
        ("power_w", "power", "W"),
        ("sm_clock_mhz", "clock", "MHz"),
        ("temperature_c", "temperature", "\u00b0C"),
    ):
        own = tuple(curves[key] for curves in devices.values() if key in curves)
        yield Panel(name=name, unit=unit, curves=own)


def _device_curves(table: bytes) -> dict[str, dict[str, Curve]]:
    """Return the figures of each device, as devices.csv has them; an empty cell is unknown."""
    found: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    try:
        for row in csv.DictReader(io.StringIO(table.decode("utf-8", "replace"))):
            device, time = row.get("device") or "", _number(row.get("time"))
            if time is None or not _DEVICE.fullmatch(device):
                continue
            if device not in found and len(found) >= _MOST_CURVES:
                continue
            for key, cell_text in row.items():
                value = _number(cell_text) if key not in ("time", "device") else None
                if value is not None:
                    times, values = found.setdefault(device, {}).setdefault(key, ([], []))
                    times.append(time)
                    values.append(value)
    except csv.Error:
        return {}
    return {
        device: {
            key: Curve(name=device, times=tuple(times), values=tuple(values))
            for key, (times, values) in figures.items()
        }
        for device, figures in found.items()
    }


def _number(said: Any) -> float | None:
    """Return a number of a cell; None for anything else."""
    try:
        value = float(said) if isinstance(said, str) and len(said) <= 40 else math.nan
    except ValueError:
        return None
    return value if _is_size(value) else None


def _phases(record: SummaryRecord, watched_s: float) -> Iterator[Phase]:
    """Yield the parts of the trial. The summary has their lengths, and when the method began."""
    own = section(record.document, "perfrun")
    lengths = {
        name: _time(section(section(own, "phases"), name).get("wall_s"))
        for name in ("import", "construct", "method")
    }
    method = lengths["method"]
    elapsed = max(_time(section(own, "usage").get("elapsed_s")) or 0.0, watched_s)
    before = sum(lengths[name] or 0.0 for name in ("import", "construct"))
    if method is None or before + method > 1.05 * elapsed:
        return
    begin = _begin_of_method(record, before, elapsed - method)
    place = begin - before
    yield Phase(name="start", begin=0.0, end=place)
    for key, name in (("import", "import"), ("construct", "setup"), ("method", "method")):
        length = lengths[key]
        if length is not None:
            yield Phase(name=name, begin=place, end=min(place + length, elapsed))
            place += length


def _begin_of_method(record: SummaryRecord, least: float, most: float) -> float:
    """Return when the method began, in seconds after the worker's start.

    An execution id that perfrun has made is the time at which the trial's folder was made, just
    before the worker's start. Else the method is put at the trial's end, less what came after it.
    """
    made = re.match(r"\d{4}-\d\d-\d\d-\d\d-(\d\d)-(\d\d)-(\d{6})", record.execution_id)
    most = max(least, most)
    if made:
        minute, second, micro = map(int, made.groups())
        start = 60 * minute + second + micro / 1e6
        # Zones differ by quarters of an hour; within one the two times can be compared.
        begin = (record.timestamp - start) % 900
        if least <= begin <= most + 0.05:
            return min(begin, most)
    return most
