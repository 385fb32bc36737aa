"""Read what a trial has left in its folder for DLBS' lines: step times of devices, use over time.

The benchmark could write to these files. So no link is followed, only regular files of bounded size
are read, and what is not a finite number of the right size is as good as absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.untrusted import Folder, Refused
from perfrun.worker.measure.series_files import parse_rows

_LIMIT_BYTES = 64 * 1024 * 1024
_SCALING = ("scaling_weak", "scaling.json")  # of the method for several devices
_USE = "process_info.log"
_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class DeviceTimes:
    """The timed steps of several devices, in seconds."""

    steps_s: tuple[float, ...]  # of the slowest device
    means_s: tuple[float, ...]  # of each device, where each works on its own; else empty


def device_times(folder: Path) -> DeviceTimes | None:
    """Return the times at the most devices; None where there are none to be read."""
    try:
        table = json.loads(_contents(folder, *_SCALING) or b"null")
        level = table["levels"][-1]
        steps_s, means_s = _times(level["steps_s"]), _times(level["rank_means_s"])
        is_inference = table["forward_only"] is True
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    return DeviceTimes(steps_s=steps_s, means_s=means_s if is_inference else ())


def _times(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(_is_number(value) and value > 0 for value in values):
        raise ValueError("not a list of times")
    return tuple(float(value) for value in values)


def use_over_time(folder: Path, memory_bytes: object) -> dict[str, list[Any]]:
    """Return a list for each of DLBS' figures, with an entry for each moment that was sampled.

    `time` is in seconds since the worker's start. Memory is in KiB, as `top` has it, and `mem` in
    percent of `memory_bytes`; `gpus` has the watts of each device.
    """
    samples = []
    for line in (_contents(folder, _USE) or b"").splitlines():
        try:
            sample = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the last line, if perfrun was killed
        if isinstance(sample, dict) and all(map(_is_number, sample.values())):
            samples.append(sample)
    found = {
        name: [factor * sample[key] for sample in samples]
        for name, key, factor in (
            ("time", "time", 1.0),
            ("mem_virt", "vms", 1 / _KIB),
            ("mem_res", "tree_rss", 1 / _KIB),
            ("cpu", "cpu_percent", 1.0),
        )
        if samples and all(key in sample for sample in samples)
    }
    if "mem_res" in found and _is_number(memory_bytes) and memory_bytes:
        share = 100 * _KIB / float(str(memory_bytes))
        found["mem"] = [round(share * kib, 3) for kib in found["mem_res"]]
    watts = sorted({key for sample in samples for key in sample if key.endswith("_power_w")})
    if watts:
        found["gpus"] = [[sample.get(key, 0.0) for key in watts] for sample in samples]
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _contents(folder: Path, *names: str) -> bytes | None:
    """Return a file's bytes; None for one that is not there, no regular file, or too large."""
    try:
        with Folder(folder, *names[:-1]) as place:
            return place.read(names[-1], _LIMIT_BYTES)
    except (OSError, Refused):
        return None


def step_times(series: Mapping[str, Any], folder: Path) -> list[float]:
    """Return the seconds of the timed steps of a series, from its rows or from the summary."""
    rows_file = series.get("rows_file")
    data = _contents(folder, "perfrun", str(rows_file)) if rows_file else None
    if data is not None:
        rows = parse_rows(data)
        return [
            wall_ns / steps / 1e9
            for wall_ns, steps in zip(rows.wall_ns, rows.steps, strict=True)
            if steps > 0
        ]
    return [float(one) for one in series.get("times_s") or ()]
