"""Hold what was measured against what is known to be true. Pure: summaries in, rows out.

The workloads are those of `perfrun.worker.calibrated`. Tolerances are wide enough for a busy
machine and narrow enough for a wrong unit, sign or process: `tests/unit/test_calibration.py` has a
wrong document for every row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from perfrun.probes.peak import Peak
from perfrun.truths import (
    Check,
    Document,
    Documents,
    Row,
    around,
    compare,
    metric,
    note,
    report,
    skipped,
)
from perfrun.worker import calibrated

WAKE_UP_S = 0.002  # a sleeper gets its processor back by then, on a machine with one to spare


def _sleep(check: Check, documents: Documents) -> Row:
    latest = 0.01 + WAKE_UP_S / calibrated.SLEEP_S
    measured = report(documents["sleep"], "sleep")["wall_time"]
    source = "median of `measure`; a sleep never ends early"
    return compare(check, calibrated.SLEEP_S, measured, "s", (0.0, latest), source)


def _phase(check: Check, documents: Documents) -> Row:
    """The clock that the trial times its method with is another reading than the workload's."""
    truth = metric(documents["sleep"], "clocks", "perf_counter_s")
    measured = documents["sleep"]["perfrun"]["phases"]["method"]["wall_s"]
    return compare(check, truth, measured, "s", (0.0, 0.05), "phases.method; workload's own clock")


def _clock(name: str) -> Callable[[Check, Documents], Row]:
    def judge(check: Check, documents: Documents) -> Row:
        truth = metric(documents["sleep"], "clocks", "perf_counter_s")
        try:
            measured = metric(documents["sleep"], "clocks", f"{name}_s")
        except KeyError:
            return skipped(check, f"this system has no clock {name!r}")
        source = f"CLOCK_{name.upper()}; perf_counter"
        return compare(check, truth, measured, "s", around(0.002), source)

    return judge


def _spin(check: Check, documents: Documents) -> Row:
    small, large = (
        metric(documents["spin"], name, "latency_min_s") for name in ("spin_small", "spin_large")
    )
    factor = float(calibrated.SPIN_FACTOR)
    return compare(check, factor, large / small, "x", around(0.1), "ratio of shortest times")


def _batch(check: Check, documents: Documents) -> Row:
    one, two = (
        metric(documents["batch"], name, "latency_min_s") for name in ("batch", "double_batch")
    )
    factor = float(calibrated.BATCH_FACTOR)
    return compare(check, factor, two / one, "x", around(0.25), "ratio of shortest times")


def _items(check: Check, documents: Documents) -> Row:
    found = report(documents["batch"], "batch")
    measured = found["wall_time"] * found["throughput"]
    source = "wall_time x throughput"
    return compare(check, float(calibrated.BATCH), measured, "items", around(0.001), source)


def _cpu(check: Check, documents: Documents) -> Row:
    used = [_cpu_s(documents["busy"]), _cpu_s(documents["nothing"])]
    source = "process_info, less that of `nothing`"
    return compare(check, calibrated.BUSY_CPU_S, used[0] - used[1], "s", around(0.1), source)


def _cpu_s(document: Document) -> float:
    info = document["process_info"]
    return float(info["user_cpu_time"] + info["system_cpu_time"])


def _phase_cpu(check: Check, documents: Documents) -> Row:
    measured = documents["busy"]["perfrun"]["phases"]["method"]["cpu_s"]
    return compare(check, calibrated.BUSY_CPU_S, measured, "s", (0.0, 0.02), "phases.method")


def _allocation(check: Check, documents: Documents) -> Row:
    measured = _more(documents, "allocation", "nothing", "max_rss")
    source = "max_rss, less that of `nothing`"
    return compare(check, calibrated.ALLOCATED_BYTES, measured, "bytes", around(0.01), source)


def _child(check: Check, documents: Documents) -> Row:
    measured = _more(documents, "holding_child", "empty_child", "max_tree_rss")
    source = "max_tree_rss, less that of `empty_child`"
    return compare(check, calibrated.CHILD_BYTES, measured, "bytes", around(0.03), source)


def _shared(check: Check, documents: Documents) -> Row:
    """Pages that a forked child shares count once: a sum of resident memory would be double."""
    found, base = (
        documents[name]["perfrun"]["memory"]["tree_pss"] for name in ("sharing_child", "nothing")
    )
    for figure in (found, base):
        if figure["bytes"] is None:
            return skipped(check, figure["reason"])
    measured = float(found["bytes"] - base["bytes"])
    source = "memory.tree_pss, less that of `nothing`"
    return compare(check, calibrated.SHARED_BYTES, measured, "bytes", around(0.05), source)


def _more(documents: Documents, one: str, other: str, key: str) -> float:
    return float(documents[one]["process_info"][key] - documents[other]["process_info"][key])


def _device(check: Check, documents: Documents) -> Row:
    why = note(documents["device"], "device", "skipped")
    if why:
        return skipped(check, why)
    wall_s, device_s = (metric(documents["device"], "device", n) for n in ("wall_s", "device_s"))
    source = f"events of the {note(documents['device'], 'device', 'device')}; perf_counter"
    return compare(check, wall_s, device_s, "s", (-0.9, 0.01), source)


def _product(peak: Peak, check: Check, documents: Documents) -> Row:
    why = note(documents["product"], "product", "skipped") or peak.why_unknown
    if why or not peak.flops_per_s:
        return skipped(check, why or "the machine's peak is not known")
    measured = metric(documents["product"], "rate", "flops_per_s")
    source = f"{note(documents['product'], 'rate', 'library')}; peak: {peak.how}"
    # Not below a thousandth of one core's peak either: no library is as slow, but milliseconds
    # taken for seconds are.
    least = 1e-3 / peak.cores - 1
    return compare(check, peak.flops_per_s, measured, "FLOP/s", (least, 0.0), source)


def _death(workload: str, truth: str) -> Check:
    def judge(check: Check, documents: Documents) -> Row:
        outcome = documents[workload]["perfrun"]["outcome"]
        detail = (outcome["exception"] or {}).get("type") or outcome["signal"]
        if detail is None and outcome["exit_code"]:
            detail = outcome["exit_code"]
        measured = outcome["status"] + ("" if detail is None else f" {detail}")
        is_ok = measured == truth
        return Row(
            what=check.what,
            truth=truth,
            measured=measured,
            unit="",
            source="outcome",
            verdict="ok" if is_ok else "off",
            reason=None if is_ok else str(outcome["reason"]),
        )

    what = f"outcome of a workload that {workload.replace('_', ' ')}"
    return Check(what=what, workloads=(workload,), judge=judge, deaths=True)


def checks(peak: Peak) -> tuple[Check, ...]:
    """All rows, in the order of the table."""
    plain: tuple[tuple[str, Callable[[Check, Documents], Row], str], ...] = (
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
        Check(what=what, workloads=tuple(names.split()), judge=judge)
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
