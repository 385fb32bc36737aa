"""What comparing needs of a summary, read back from disk: perfrun's own, and PerfZero's."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.analysis.directions import Direction, direction_of

SUMMARY = "perfzero_summary.json"
WALL_TIME, THROUGHPUT, PEAK_RSS = "wall_time", "throughput", "peak_rss_bytes"
# Of what `Benchmark.measure` reports by itself, what says more than the wall time does.
_TELLING = ("latency_p99_s", "first_call_s")
_BATCH_FLAG = re.compile(r"-{1,2}(\w*batch_size)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One trial as its summary tells it."""

    path: Path
    document: Mapping[str, Any]
    method: str
    execution_id: str
    run_id: str | None  # None of PerfZero's
    label: str | None
    timestamp: float  # seconds since the epoch
    ran: bool  # the method came to its own end
    disturbed: bool
    values: Mapping[str, float]  # of its metrics; empty when it did not come to its end
    directions: Mapping[str, Direction]  # of those metrics
    batch_size: str | None  # None = not to be seen


def read_summary(path: Path) -> Reading:
    """Read one file. Raises OSError, or ValueError for what is no summary."""
    try:
        return reading_of(path, json.loads(path.read_bytes()))
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON, or cut short: {error}") from None
    except KeyError as error:
        raise ValueError(f"is JSON, but no summary: {error} is missing") from None
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"is JSON, but no summary: {error}") from None
    except RecursionError:
        raise ValueError("is no summary: too deeply nested") from None


def reading_of(path: Path, document: Mapping[str, Any]) -> Reading:
    """Take from a summary what comparing needs."""
    result, info = document["benchmark_result"], document["benchmark_info"]
    own = document.get("perfrun") or {}
    if (own.get("order") or {}).get("profile"):
        raise ValueError("is of a trial under a profiler: its figures do not count")
    status = (own.get("outcome") or {}).get("status")
    ran = status in ("passed", "out_of_bounds") if status else not info["has_exception"]
    values = _values(document) if ran else {}
    return Reading(
        path=path,
        document=document,
        method=str(result["name"]),
        execution_id=str(document["execution_id"]),
        run_id=own.get("run_id"),
        label=info.get("execution_label"),
        timestamp=float(document["execution_timestamp"]),
        ran=ran,
        disturbed=bool((own.get("quality") or {}).get("disturbed")),
        values=values,
        directions=_directions(values, own.get("series") or ()),
        batch_size=batch_size_of(document),
    )


def _values(document: Mapping[str, Any]) -> dict[str, float]:
    result = document["benchmark_result"]
    own = document.get("perfrun") or {}
    found: dict[str, Any] = {}
    if _is_number(result["wall_time"]) and result["wall_time"] > 0:  # 0: none was reported
        found[WALL_TIME] = result["wall_time"]
    reports = own.get("reports") or ()
    if reports and reports[0].get("throughput"):
        found[THROUGHPUT] = reports[0]["throughput"]
    details = _details(own.get("series") or ())
    _take(found, "", result, details)
    for report in reports[1:]:
        prefix = f"{str(report['name']).rpartition('.')[2]}/"
        found.setdefault(f"{prefix}{WALL_TIME}", report["wall_time"] or None)
        _take(found, prefix, report, details)
    found[PEAK_RSS] = (document.get("process_info") or {}).get("max_rss") or None
    return {name: float(value) for name, value in found.items() if _is_number(value)}


def _take(found: dict[str, Any], prefix: str, report: Mapping[str, Any], details: set[str]) -> None:
    """Its metrics, and of its extras what by its name is one, as examples_per_second."""
    for metric in report["metrics"]:
        if metric["name"] not in details:
            found.setdefault(prefix + metric["name"], metric["value"])
    for extra in report["extras"]:
        if extra["name"] not in details and direction_of(extra["name"]) != "none":
            found.setdefault(prefix + extra["name"], extra["value"])


def _details(series: Sequence[Mapping[str, Any]]) -> set[str]:
    """Metrics of a series that repeat its wall time in other words."""
    measured = {name for one in series for name in one.get("metrics") or ()}
    return measured - set(_TELLING)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _directions(
    values: Mapping[str, float], series: Sequence[Mapping[str, Any]]
) -> dict[str, Direction]:
    """What the series says of its metrics; of others, what their names tell."""
    said: dict[str, Direction] = {}
    for one in series:
        for name, metric in (one.get("metrics") or {}).items():
            if metric.get("direction") in ("lower", "higher"):
                said[name] = metric["direction"]
    return {
        name: said.get(name.rpartition("/")[2]) or direction_of(name.rpartition("/")[2])
        for name in values
    }


def batch_size_of(document: Mapping[str, Any]) -> str | None:
    """The batch size by flags, constructor arguments, report or series: the first that tells."""
    own, info = document.get("perfrun") or {}, document["benchmark_info"]
    flags = list(own.get("benchmark_flags") or ())
    for at, word in enumerate(flags):
        found = _BATCH_FLAG.fullmatch(word)
        if found:
            value = found[2] if found[2] is not None else "".join(flags[at + 1 : at + 2])
            return f"{found[1]}={value}"
    try:
        arguments = json.loads((info.get("flags") or {}).get("perfzero_constructor_args") or "{}")
    except ValueError:
        arguments = {}
    if isinstance(arguments, dict):
        for name, value in arguments.items():
            if name.endswith("batch_size"):
                return f"{name}={value}"
    result = document["benchmark_result"]
    for item in (*result.get("extras", ()), *result.get("metrics", ())):
        if item["name"] == "batch_size":
            return f"batch_size={item['value']}"
    sizes = [one.get("items_per_step") for one in own.get("series") or ()]
    return f"items_per_step={','.join(map(str, sizes))}" if any(sizes) else None
