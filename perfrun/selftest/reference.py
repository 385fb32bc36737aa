"""Compare what was measured with reference values: the rows of `perfrun selftest`.

The workloads are those of `perfrun.worker.calibrated`. Tolerances are wide enough for a busy
machine and narrow enough to find a wrong unit, sign or process:
`tests/unit/selftest/test_reference.py` has a wrong document for every row.

The peak rate of floating-point operations is an upper bound and no estimate: cores times the
highest clock times the operations of the widest instructions. A measured rate above it is wrong.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.worker import calibrated

Document = Mapping[str, Any]
Documents = Mapping[str, Document]
"""Summaries by the name of the workload's method."""

INFINITY = float("inf")
# Single-precision operations per core and cycle: two units of fused multiply-add (two operations)
# on as many numbers as a register holds; no core of that kind does more. Sources: "Intel 64 and
# IA-32 Architectures Optimization Reference Manual"; AMD "Software Optimization Guide" (Zen 5);
# Arm "Neoverse V1" and "A64FX" guides.
_BY_FLAG = (("avx512f", 64), ("avx2", 32), ("avx", 16), ("sve", 64), ("asimd", 32), ("sse2", 8))
_FASTEST_HZ = 6.2e9  # no processor is sold with a higher clock
_CPUS = Path("/sys/devices/system/cpu")
_BOOSTS = ("cpufreq/boost", "cpu0/cpufreq/boost")  # of all CPUs; since Linux 6.11 of each, too
WAKE_UP_S = 0.002  # a sleeper wakes up within this time on a machine with an idle processor


@dataclass(frozen=True, kw_only=True)
class ReferenceRow:
    """One reference value and what was measured.

    `error` is measured / reference - 1, and `allowed` its inclusive limits. They are None where the
    reference is a text, which must be equal.
    """

    what: str
    truth: float | str | None  # the reference value; a key of the JSON document
    measured: float | str | None
    unit: str
    source: str  # of the measured value, and of the reference where it is not a constant
    error: float | None = None
    allowed: tuple[float, float] | None = None
    verdict: str = "ok"  # ok, off or skipped
    reason: str | None = None  # why it is off or skipped

    @property
    def distance(self) -> float:
        """The distance from the limits: 0 when not off; attempts at the same row compare by it."""
        if self.verdict != "off":
            return 0.0
        if self.error is None or self.allowed is None:
            return INFINITY
        return max(self.allowed[0] - self.error, self.error - self.allowed[1])


@dataclass(frozen=True, kw_only=True)
class ReferenceCheck:
    """A function that makes a row, and the workloads that it needs."""

    what: str
    workloads: tuple[str, ...]
    judge: Callable[[ReferenceCheck, Documents], ReferenceRow]
    deaths: bool = False  # True when the workloads must not pass

    def row(self, documents: Documents) -> ReferenceRow:
        """Judge; a workload that did not pass, or lacks the figure, makes the row `off`."""
        for name in () if self.deaths else self.workloads:
            outcome = documents[name]["perfrun"]["outcome"]
            if outcome["status"] != "passed":
                why = f"the workload {name!r}: {outcome['status']}, {outcome['reason']}"
                return _without_figures(self, "off", why)
        try:
            return self.judge(self, documents)
        except (KeyError, IndexError, TypeError, ZeroDivisionError) as error:
            why = f"a figure is missing: {type(error).__name__}: {error}"
            return _without_figures(self, "off", why)


def number_row(
    check: ReferenceCheck,
    reference: float,
    measured: float,
    unit: str,
    allowed: tuple[float, float],
    source: str,
) -> ReferenceRow:
    """Return the row of a number."""
    error = measured / reference - 1
    is_ok = allowed[0] <= error <= allowed[1]
    return ReferenceRow(
        what=check.what,
        truth=reference,
        measured=measured,
        unit=unit,
        source=source,
        error=error,
        allowed=allowed,
        verdict="ok" if is_ok else "off",
        reason=None if is_ok else f"off by {100 * error:+.3g} %",
    )


def skipped_row(check: ReferenceCheck, reason: str) -> ReferenceRow:
    """Return the row of something that this machine or environment does not have."""
    return _without_figures(check, "skipped", reason)


def _without_figures(check: ReferenceCheck, verdict: str, reason: str) -> ReferenceRow:
    return ReferenceRow(
        what=check.what,
        truth=None,
        measured=None,
        unit="",
        source="",
        verdict=verdict,
        reason=reason,
    )


def both_sides(share: float) -> tuple[float, float]:
    """Return limits of the same size on both sides."""
    return (-share, share)


def report_of(document: Document, name: str) -> Mapping[str, Any]:
    """Return the report of that name; KeyError when there is none."""
    for found in document["perfrun"]["reports"]:
        if found["name"] == f"Calibrated.{name}":
            return found  # type: ignore[no-any-return]
    raise KeyError(name)


def metric_of(document: Document, of: str, name: str) -> float:
    """Return a metric of a report; KeyError when there is none."""
    for found in report_of(document, of)["metrics"]:
        if found["name"] == name:
            return float(found["value"])
    raise KeyError(name)


def note_of(document: Document, of: str, name: str) -> str | None:
    """Return a note (`extras`) of a report, or None."""
    extras = {item["name"]: item["value"] for item in report_of(document, of)["extras"]}
    return extras.get(name)


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The bound and its computation, or the reason why it is unknown."""

    flops_per_s: float | None
    cores: int
    how: str = ""
    why_unknown: str | None = None


def read_peak() -> Peak:
    """Return the peak of this machine; containers on it have the same processors."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    max_khz = highest_khz(_CPUS)
    return peak(_text(Path("/proc/cpuinfo")), max_khz, cores, platform.machine())


def highest_khz(cpus: Path) -> str:
    """Read cpuinfo_max_freq below `cpus`; empty where processors may run faster than that.

    The driver acpi-cpufreq does not count the boost (Documentation/admin-guide/pm/cpufreq.rst).
    """
    if any(_text(cpus / boost).strip() == "1" for boost in _BOOSTS):
        return ""
    return _text(cpus / "cpu0/cpufreq/cpuinfo_max_freq")


def peak(cpuinfo: str, max_khz: str, cores: int, architecture: str) -> Peak:
    """Compute the peak from the texts of /proc/cpuinfo and cpuinfo_max_freq (kHz; or empty)."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    known = [(flag, operations) for flag, operations in _BY_FLAG if flag in flags]
    if not known:
        why = f"the operations per cycle of a core of this {architecture} machine are not known"
        return Peak(flops_per_s=None, cores=cores, why_unknown=why)
    flag, operations = max(known, key=lambda pair: pair[1])
    hertz, clock = _FASTEST_HZ, f"{_FASTEST_HZ / 1e9:g} GHz, as no core is faster"
    if max_khz.strip().isdigit():
        hertz = int(max_khz) * 1e3
        clock = f"{hertz / 1e9:g} GHz"
    return Peak(
        flops_per_s=cores * operations * hertz,
        cores=cores,
        how=f"{cores} cores x {operations} a cycle ({flag}) x {clock}",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sleep(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    latest = 0.01 + WAKE_UP_S / calibrated.SLEEP_S
    measured = report_of(documents["sleep"], "sleep")["wall_time"]
    source = "median of `measure`; a sleep never ends early"
    return number_row(check, calibrated.SLEEP_S, measured, "s", (0.0, latest), source)


def _phase(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    """Compare the worker's time of the method phase with the workload's own clock."""
    reference = metric_of(documents["sleep"], "clocks", "perf_counter_s")
    measured = documents["sleep"]["perfrun"]["phases"]["method"]["wall_s"]
    source = "phases.method; workload's own clock"
    return number_row(check, reference, measured, "s", (0.0, 0.05), source)


def _clock(name: str) -> Callable[[ReferenceCheck, Documents], ReferenceRow]:
    def judge(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
        reference = metric_of(documents["sleep"], "clocks", "perf_counter_s")
        try:
            measured = metric_of(documents["sleep"], "clocks", f"{name}_s")
        except KeyError:
            return skipped_row(check, f"this system has no clock {name!r}")
        source = f"CLOCK_{name.upper()}; perf_counter"
        return number_row(check, reference, measured, "s", both_sides(0.002), source)

    return judge


def _spin(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    small, large = (
        metric_of(documents["spin"], name, "latency_min_s") for name in ("spin_small", "spin_large")
    )
    factor = float(calibrated.SPIN_FACTOR)
    return number_row(check, factor, large / small, "x", both_sides(0.1), "ratio of shortest times")


def _batch(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    one, two = (
        metric_of(documents["batch"], name, "latency_min_s") for name in ("batch", "double_batch")
    )
    factor = float(calibrated.BATCH_FACTOR)
    return number_row(check, factor, two / one, "x", both_sides(0.25), "ratio of shortest times")


def _items(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    found = report_of(documents["batch"], "batch")
    measured = found["wall_time"] * found["throughput"]
    source = "wall_time x throughput"
    return number_row(check, float(calibrated.BATCH), measured, "items", both_sides(0.001), source)


def _cpu(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    used = [_cpu_s(documents["busy"]), _cpu_s(documents["nothing"])]
    source = "process_info, less that of `nothing`"
    return number_row(check, calibrated.BUSY_CPU_S, used[0] - used[1], "s", both_sides(0.1), source)


def _cpu_s(document: Document) -> float:
    info = document["process_info"]
    return float(info["user_cpu_time"] + info["system_cpu_time"])


def _phase_cpu(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    measured = documents["busy"]["perfrun"]["phases"]["method"]["cpu_s"]
    return number_row(check, calibrated.BUSY_CPU_S, measured, "s", (0.0, 0.02), "phases.method")


def _allocation(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    measured = _more(documents, "allocation", "nothing", "max_rss")
    source = "max_rss, less that of `nothing`"
    return number_row(
        check, calibrated.ALLOCATED_BYTES, measured, "bytes", both_sides(0.01), source
    )


def _child(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    measured = _more(documents, "holding_child", "empty_child", "max_tree_rss")
    source = "max_tree_rss, less that of `empty_child`"
    return number_row(check, calibrated.CHILD_BYTES, measured, "bytes", both_sides(0.03), source)


def _shared(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    """Compare the memory of a forked child, whose shared pages must count once."""
    found, base = (
        documents[name]["perfrun"]["memory"]["tree_pss"] for name in ("sharing_child", "nothing")
    )
    for figure in (found, base):
        if figure["bytes"] is None:
            return skipped_row(check, figure["reason"])
    measured = float(found["bytes"] - base["bytes"])
    source = "memory.tree_pss, less that of `nothing`"
    return number_row(check, calibrated.SHARED_BYTES, measured, "bytes", both_sides(0.05), source)


def _more(documents: Documents, one: str, other: str, key: str) -> float:
    return float(documents[one]["process_info"][key] - documents[other]["process_info"][key])


def _device(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    why = note_of(documents["device"], "device", "skipped")
    if why:
        return skipped_row(check, why)
    wall_s, device_s = (metric_of(documents["device"], "device", n) for n in ("wall_s", "device_s"))
    source = f"events of the {note_of(documents['device'], 'device', 'device')}; perf_counter"
    return number_row(check, wall_s, device_s, "s", (-0.9, 0.01), source)


def _product(peak: Peak, check: ReferenceCheck, documents: Documents) -> ReferenceRow:
    why = note_of(documents["product"], "product", "skipped") or peak.why_unknown
    if why or not peak.flops_per_s:
        return skipped_row(check, why or "the machine's peak is not known")
    measured = metric_of(documents["product"], "rate", "flops_per_s")
    source = f"{note_of(documents['product'], 'rate', 'library')}; peak: {peak.how}"
    # No library is slower than a thousandth of one core's peak, so a smaller rate is an error, such
    # as milliseconds taken for seconds.
    least = 1e-3 / peak.cores - 1
    return number_row(check, peak.flops_per_s, measured, "FLOP/s", (least, 0.0), source)


def _death(workload: str, reference: str) -> ReferenceCheck:
    def judge(check: ReferenceCheck, documents: Documents) -> ReferenceRow:
        outcome = documents[workload]["perfrun"]["outcome"]
        detail = (outcome["exception"] or {}).get("type") or outcome["signal"]
        if detail is None and outcome["exit_code"]:
            detail = outcome["exit_code"]
        measured = outcome["status"] + ("" if detail is None else f" {detail}")
        is_ok = measured == reference
        return ReferenceRow(
            what=check.what,
            truth=reference,
            measured=measured,
            unit="",
            source="outcome",
            verdict="ok" if is_ok else "off",
            reason=None if is_ok else str(outcome["reason"]),
        )

    what = f"outcome of a workload that {workload.replace('_', ' ')}"
    return ReferenceCheck(what=what, workloads=(workload,), judge=judge, deaths=True)


def checks(peak: Peak) -> tuple[ReferenceCheck, ...]:
    """Return all checks, in the order of the table."""
    plain: tuple[tuple[str, Callable[[ReferenceCheck, Documents], ReferenceRow], str], ...] = (
        ("sleep of known length", _sleep, "sleep"),
        ("method phase of the same", _phase, "sleep"),
        ("real-time clock meanwhile", _clock("realtime"), "sleep"),
        ("boot-time clock meanwhile", _clock("boottime"), "sleep"),
        ("time of 4 x the operations", _spin, "spin"),
        ("time of 2 x the batch", _batch, "batch"),
        ("latency x throughput", _items, "batch"),
        ("CPU time of a busy second", _cpu, "busy nothing"),
        ("the same in the method phase", _phase_cpu, "busy"),
        ("peak memory of an allocation", _allocation, "allocation nothing"),
        ("peak memory of a child", _child, "holding_child empty_child"),
        ("memory shared with a fork", _shared, "sharing_child nothing"),
        ("matrix product below the peak", partial(_product, peak), "product"),
        ("device time within wall time", _device, "device"),
    )
    numbers = (
        ReferenceCheck(what=what, workloads=tuple(names.split()), judge=judge)
        for what, judge, names in plain
    )
    return (
        *numbers,
        _death("raises", "failed ArithmeticError"),
        _death("exits", f"exited {calibrated.EXIT_CODE}"),
        _death("exits_hard", f"exited {calibrated.HARD_EXIT_CODE}"),
        _death("aborts", "crashed SIGABRT"),
        _death("is_killed", "crashed SIGKILL"),
        _death("misses_its_bounds", "out_of_bounds"),
    )
