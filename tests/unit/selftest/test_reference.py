"""Every row of `perfrun selftest` is met by a right document and missed by a wrong one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from perfrun.selftest.reference import Peak, ReferenceCheck, ReferenceRow, checks
from perfrun.worker import calibrated

MIB = 2**20
PEAK = Peak(flops_per_s=1e11, cores=2, how="2 cores x ...")
Documents = dict[str, Any]
Change = Callable[[Documents], None]


def summary(*reports: dict[str, Any], **outcome: Any) -> dict[str, Any]:
    """A summary with the keys that are read; memory and CPU time are those of an idle worker."""
    ended = {"status": "passed", "reason": None, "exit_code": 0, "signal": None, "exception": None}
    return {
        "process_info": {
            "max_rss": 20 * MIB,
            "max_tree_rss": 20 * MIB,
            "user_cpu_time": 0.1,
            "system_cpu_time": 0.05,
        },
        "perfrun": {
            "outcome": {**ended, **outcome},
            "phases": {"method": {"wall_s": 0.0, "cpu_s": 0.0}},
            "reports": list(reports),
            "memory": {"tree_pss": {"bytes": 20 * MIB, "reason": None}},
        },
    }


def made(
    name: str, wall_time: float = 0.0, throughput: float = 0.0, **values: float | str
) -> dict[str, Any]:
    """A report: numbers are metrics, texts are notes."""
    return {
        "name": f"Calibrated.{name}",
        "wall_time": wall_time,
        "throughput": throughput,
        "metrics": [
            {"name": key, "value": value}
            for key, value in values.items()
            if not isinstance(value, str)
        ],
        "extras": [
            {"name": key, "value": value} for key, value in values.items() if isinstance(value, str)
        ],
    }


def right() -> Documents:
    """Documents of a perfect machine."""
    clocks = {"perf_counter_s": 1.1, "realtime_s": 1.1, "boottime_s": 1.1}
    documents = {
        "nothing": summary(),
        "sleep": summary(made("sleep", 0.1005), made("clocks", **clocks)),
        "spin": summary(
            made("spin_small", latency_min_s=1e-4), made("spin_large", latency_min_s=4e-4)
        ),
        "batch": summary(
            made("batch", 1e-3, calibrated.BATCH / 1e-3, latency_min_s=1e-3),
            made("double_batch", latency_min_s=2e-3),
        ),
        "busy": summary(),
        "allocation": summary(),
        "empty_child": summary(),
        "holding_child": summary(),
        "sharing_child": summary(),
        "product": summary(
            made("product", 0.04), made("rate", flops_per_s=5e10, library="numpy 2")
        ),
        "device": summary(made("device", device_s=0.9, wall_s=1.0, device="a GPU")),
        "raises": summary(status="failed", exit_code=1, exception={"type": "ArithmeticError"}),
        "exits": summary(status="exited", exit_code=calibrated.EXIT_CODE),
        "exits_hard": summary(status="exited", exit_code=calibrated.HARD_EXIT_CODE),
        "aborts": summary(status="crashed", exit_code=None, signal="SIGABRT"),
        "is_killed": summary(status="crashed", exit_code=None, signal="SIGKILL"),
        "misses_its_bounds": summary(status="out_of_bounds", reason="one is 1"),
    }
    documents["sleep"]["perfrun"]["phases"]["method"]["wall_s"] = 1.11
    documents["busy"]["process_info"].update(user_cpu_time=1.1)
    documents["busy"]["perfrun"]["phases"]["method"]["cpu_s"] = 1.001
    documents["allocation"]["process_info"]["max_rss"] += calibrated.ALLOCATED_BYTES
    documents["holding_child"]["process_info"]["max_tree_rss"] += calibrated.CHILD_BYTES
    documents["sharing_child"]["perfrun"]["memory"]["tree_pss"]["bytes"] = 272 * MIB
    return documents


def rows(documents: Documents, peak: Peak = PEAK) -> dict[str, ReferenceRow]:
    return {check.what: check.row(documents) for check in checks(peak)}


def setting(workload: str, *path: str, value: Any) -> Change:
    """Put a value into a document."""

    def change(documents: Documents) -> None:
        place = documents[workload]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def metric(workload: str, of: str, name: str, factor: float) -> Change:
    """Multiply a metric."""

    def change(documents: Documents) -> None:
        for report in documents[workload]["perfrun"]["reports"]:
            if report["name"] == f"Calibrated.{of}":
                if name in ("wall_time", "throughput"):
                    report[name] *= factor
                    return
                for found in report["metrics"]:
                    if found["name"] == name:
                        found["value"] *= factor
                        return
        raise AssertionError(f"{workload} has no {of}.{name}")

    return change


def outcome(workload: str, **values: Any) -> Change:
    """Let a workload end in another way."""
    return lambda documents: documents[workload]["perfrun"]["outcome"].update(values)


def own_peak(size_bytes: int) -> Change:
    return setting("allocation", INFO, "max_rss", value=size_bytes)


def tree_peak(size_bytes: int) -> Change:
    return setting("holding_child", INFO, "max_tree_rss", value=size_bytes)


INFO, PHASE = "process_info", ("perfrun", "phases", "method")
SHARED = ("sharing_child", "perfrun", "memory", "tree_pss")
DEATH = "outcome of a workload that "
WRONG: tuple[tuple[str, str, Change], ...] = (
    ("sleep of known length", "milliseconds", metric("sleep", "sleep", "wall_time", 1e3)),
    ("sleep of known length", "ends early", metric("sleep", "sleep", "wall_time", 0.99)),
    ("sleep of known length", "a bit late", metric("sleep", "sleep", "wall_time", 1.04)),
    ("sleep of known length", "negative", metric("sleep", "sleep", "wall_time", -1)),
    ("method phase of the same", "too short", setting("sleep", *PHASE, "wall_s", value=1.0)),
    ("method phase of the same", "milliseconds", setting("sleep", *PHASE, "wall_s", value=1100)),
    ("real-time clock meanwhile", "was set", metric("sleep", "clocks", "realtime_s", 1.01)),
    ("boot-time clock meanwhile", "suspended", metric("sleep", "clocks", "boottime_s", 2)),
    ("time of 4 x the operations", "constant", metric("spin", "spin_large", "latency_min_s", 0.5)),
    ("time of 4 x the operations", "inverted", metric("spin", "spin_small", "latency_min_s", 16)),
    ("time of 2 x the batch", "per item", metric("batch", "double_batch", "latency_min_s", 0.5)),
    ("latency x throughput", "steps", metric("batch", "batch", "throughput", 0.05)),
    ("latency x throughput", "the mean", metric("batch", "batch", "wall_time", 1.01)),
    ("CPU time of a busy second", "ticks", setting("busy", INFO, "user_cpu_time", value=100.0)),
    ("CPU time of a busy second", "wall", setting("busy", INFO, "user_cpu_time", value=0.0)),
    ("the same in the method phase", "lost", setting("busy", *PHASE, "cpu_s", value=0.5)),
    ("peak memory of an allocation", "KiB", own_peak(276 << 10)),
    ("peak memory of an allocation", "not seen", own_peak(20 * MIB)),
    ("peak memory of an allocation", "2 %", own_peak(281 * MIB)),
    ("peak memory of a child", "not seen", tree_peak(20 * MIB)),
    ("peak memory of a child", "twice", tree_peak(532 * MIB)),
    ("memory shared with a fork", "counted twice", setting(*SHARED, "bytes", value=528 * MIB)),
    ("memory shared with a fork", "only half", setting(*SHARED, "bytes", value=148 * MIB)),
    ("matrix product below the peak", "above it", metric("product", "rate", "flops_per_s", 2.5)),
    ("matrix product below the peak", "in ms", metric("product", "rate", "flops_per_s", 1e-4)),
    ("device time within wall time", "milliseconds", metric("device", "device", "device_s", 1e3)),
    ("device time within wall time", "minutes", metric("device", "device", "device_s", 1 / 60)),
    (DEATH + "raises", "passed", outcome("raises", status="passed", exception=None)),
    (DEATH + "raises", "another", outcome("raises", exception={"type": "ValueError"})),
    (DEATH + "exits", "the code is lost", outcome("exits", exit_code=1)),
    (DEATH + "exits hard", "passed", outcome("exits_hard", status="passed", exit_code=0)),
    (DEATH + "aborts", "as a code", outcome("aborts", exit_code=134, signal=None)),
    (DEATH + "is killed", "memory blamed", outcome("is_killed", status="oom_killed")),
    (DEATH + "misses its bounds", "passed", outcome("misses_its_bounds", status="passed")),
)  # fmt: skip


def test_right_documents_make_every_row_ok() -> None:
    found = rows(right())
    assert {what: row.reason for what, row in found.items() if row.verdict != "ok"} == {}


@pytest.mark.parametrize(
    ("what", "change"),
    [(what, change) for what, _, change in WRONG],
    ids=[f"{what}: {wrong}" for what, wrong, _ in WRONG],
)
def test_a_wrong_document_makes_its_row_off(what: str, change: Change) -> None:
    documents = copy.deepcopy(right())
    change(documents)
    row = rows(documents)[what]
    assert row.verdict == "off"
    assert row.reason
    assert row.distance > 0


def test_every_row_has_a_document_that_makes_it_off() -> None:
    assert {what for what, _, _ in WRONG} == {check.what for check in checks(PEAK)}


@pytest.mark.parametrize("check", checks(PEAK), ids=lambda check: check.what)
def test_a_workload_that_did_not_end_as_it_should_makes_its_rows_off(check: ReferenceCheck) -> None:
    documents = right()
    for name in check.workloads:
        outcome(name, status="timed_out", reason="not finished after 120 s")(documents)
    row = check.row(documents)
    assert row.verdict == "off"
    assert "timed_out" in f"{row.reason} {row.measured}"


@pytest.mark.parametrize(
    "check", [check for check in checks(PEAK) if not check.deaths], ids=lambda check: check.what
)
def test_a_figure_that_is_not_there_makes_its_row_off(check: ReferenceCheck) -> None:
    documents = right()
    for name in check.workloads:
        documents[name]["perfrun"].update(reports=[], phases={}, memory={})
        documents[name]["process_info"] = {}
    row = check.row(documents)
    assert row.verdict == "off"
    assert "a figure is missing" in str(row.reason)


def test_what_the_machine_does_not_have_is_skipped_with_the_reason() -> None:
    documents = right()
    documents["device"] = summary(made("device", skipped="no accelerator"))
    documents["product"] = summary(made("product", skipped="no numpy"))
    documents["sleep"]["perfrun"]["reports"][1]["metrics"].pop()  # boottime
    setting(*SHARED, "bytes", value=None)(documents)
    setting(*SHARED, "reason", value="smaps_rollup cannot be read")(documents)
    found = rows(documents)
    skipped = {what: row.reason for what, row in found.items() if row.verdict == "skipped"}
    assert skipped == {
        "device time within wall time": "no accelerator",
        "matrix product below the peak": "no numpy",
        "memory shared with a fork": "smaps_rollup cannot be read",
        "boot-time clock meanwhile": "this system has no clock 'boottime'",
    }


def test_a_peak_that_is_not_known_skips_the_product() -> None:
    unknown = Peak(flops_per_s=None, cores=1, why_unknown="an unknown processor")
    row = rows(right(), unknown)["matrix product below the peak"]
    assert (row.verdict, row.reason) == ("skipped", "an unknown processor")


def test_of_two_rows_that_are_off_the_nearer_one_has_the_smaller_distance() -> None:
    near, far = copy.deepcopy(right()), copy.deepcopy(right())
    metric("sleep", "sleep", "wall_time", 1.04)(near)
    metric("sleep", "sleep", "wall_time", 2)(far)
    what = "sleep of known length"
    assert 0 < rows(near)[what].distance < rows(far)[what].distance
