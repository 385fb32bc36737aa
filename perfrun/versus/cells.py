"""What the trials of a contender in a case say: the figures and facts of one row of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfrun.summary_metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary_record import SummaryRecord
from perfrun.versus.contenders import Contender
from perfrun.versus.parsing import Case

if TYPE_CHECKING:
    from perfrun.analysis.costs import Figure

# Figure of the table -> names in a summary, the first that is there counts.
MEASURED = {
    "latency_s": (WALL_TIME,),
    "throughput_per_s": (THROUGHPUT, "examples_per_second"),
    "peak_memory_bytes": (PEAK_RSS,),
    "cold_start_s": ("cold_start_s",),
    "framework_import_s": ("framework_import_s",),
    "first_call_s": ("first_call_s",),
    "compile_s": ("compile_s",),
    "achieved_flops_per_second": ("achieved_flops_per_second",),
    "model_flops_utilisation": ("model_flops_utilisation",),
}
DEVICE_MEMORY = "peak_device_memory_bytes"
# What should be one number in all trials of a contender.
COUNTED = ("parameters", "trainable_parameters", "flops_per_example", "macs_per_example")
# Extras of a report that say how it was measured.
DESCRIBED = (
    *("model", "model_library", "input_shape", "input_layout", "channels_last", "data"),
    *("dtype", "device", "threads", "inter_threads", "compile", "global_batch_size", "warmup"),
    *("flops_counted_by", "seed"),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row: a contender in a case on a platform. What is not known is absent."""

    platform_name: str
    case: Case
    label: str
    framework: str
    method: str
    trials: int
    ran: int  # came to their end
    disturbed: int  # of those
    failure: str | None  # what became of the others, or why there is none
    figures: Mapping[str, Figure] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)  # python, framework and model library
    price_per_hour: float | None = None
    cost_per_million: Figure | None = None


def cell(
    contender: Contender,
    case: Case,
    readings: Sequence[SummaryRecord],
    *,
    platform_name: str,
    price_per_hour: float | None = None,
    why_not: str | None = None,
) -> Cell:
    """Sum up the trials; `why_not` says why there are none."""
    from perfrun.analysis.costs import cost_per_million, figure  # numpy and scipy

    figures = {
        name: found
        for name, sources in MEASURED.items()
        if (found := figure(_values(readings, sources))) is not None
    }
    device = figure([peak for reading in readings if (peak := _device_memory(reading))])
    if device is not None:
        figures[DEVICE_MEMORY] = device
    throughput = figures.get("throughput_per_s")
    priced = price_per_hour is not None and throughput is not None
    return Cell(
        platform_name=platform_name,
        case=case,
        label=contender.label,
        framework=contender.framework,
        method=contender.method(case.phase),
        trials=len(readings),
        ran=sum(reading.ran for reading in readings),
        disturbed=sum(reading.ran and reading.disturbed for reading in readings),
        failure=why_not or failure_of(readings),
        figures=figures,
        counts=_counts(readings),
        described=_described(readings),
        software=software(readings),
        price_per_hour=price_per_hour,
        cost_per_million=cost_per_million(price_per_hour, throughput) if priced else None,  # type: ignore[arg-type]
    )


def _values(readings: Sequence[SummaryRecord], sources: Sequence[str]) -> list[float]:
    found = []
    for reading in readings:
        values = [reading.values[name] for name in sources if name in reading.values]
        found += values[:1]
    return found


def failure_of(readings: Sequence[SummaryRecord]) -> str | None:
    """What became of the trials that did not come to their end, and why; None when all did."""
    failed = [reading for reading in readings if not reading.ran]
    if not failed:
        without = sum(WALL_TIME not in reading.values for reading in readings)
        return f"no time was reported in {without} of {len(readings)} trials" if without else None
    status, count = Counter(reading.status for reading in failed).most_common(1)[0]
    why = next((one.reason for one in failed if one.status is status and one.reason), "")
    text = f"{status.value} in {count} of {len(readings)} trials"
    return f"{text}: {' '.join(str(why).split())}" if why else text


def _device_memory(reading: SummaryRecord) -> float | None:
    """The sum over accelerators of what the framework had allocated at most."""
    own = reading.document.get("perfrun") or {}
    peaks: dict[str, float] = {}
    for item in (own.get("memory") or {}).get("device") or ():
        peak = (item.get("peak") or {}).get("bytes")
        if item.get("what") in ("allocated", "process") and peak:
            peaks[item["device"]] = max(peaks.get(item["device"], 0), peak)
    return sum(peaks.values()) if peaks and reading.ran else None


def _counts(readings: Sequence[SummaryRecord]) -> dict[str, float]:
    found = {}
    for name in COUNTED:
        values = [reading.values[name] for reading in readings if name in reading.values]
        if values:
            usual = Counter(values).most_common(1)[0][0]
            found[name] = int(usual) if usual.is_integer() else usual
    return found


def _described(readings: Sequence[SummaryRecord]) -> dict[str, Any]:
    """Extras of the reports; several values are a list of them."""
    found: dict[str, Any] = {}
    for name in DESCRIBED:
        values = [v for reading in readings if (v := extra(reading, name)) is not None]
        different = list(dict.fromkeys(map(str, values)))
        if values:
            found[name] = values[0] if len(different) == 1 else different
    return found


def extra(reading: SummaryRecord, name: str) -> Any:
    """An extra of the trial's report; None without."""
    extras = reading.document["benchmark_result"].get("extras") or ()
    return next((item["value"] for item in extras if item["name"] == name), None)


def software(readings: Sequence[SummaryRecord]) -> dict[str, str]:
    """Python, and the frameworks that the trials have loaded, with their versions."""
    found: dict[str, str] = {}
    for reading in readings:
        own = reading.document.get("perfrun") or {}
        python = ((own.get("environment") or {}).get("python") or {}).get("version")
        if python:
            found["python"] = python
        for framework in own.get("frameworks") or ():
            if framework.get("name") and framework.get("version"):
                found[framework["name"]] = framework["version"]
        for name in ("torchvision_version", "timm_version", "keras_version"):
            version = extra(reading, name)
            if version:
                found[name.removesuffix("_version")] = str(version)
    return found
