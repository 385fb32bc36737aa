"""The framework-free classes: interpreter and calibration."""

from __future__ import annotations

import platform
import statistics
import time
from types import SimpleNamespace
from typing import Any

import pytest
from shipped_run import RunMethod, assert_plausible

from benchmarks.python import calibration

INTERPRETER = "benchmarks.python.interpreter.Interpreter"
CALIBRATION = "benchmarks.python.calibration.Calibration"


@pytest.mark.parametrize(
    ("method", "operations"),
    [("attribute_access", 100_000), ("list_building", 100_000), ("json_round_trip", 20)],
)
def test_an_interpreter_method_reports_steps_and_single_operations(
    run_method: RunMethod, method: str, operations: int
) -> None:
    run = run_method(f"{INTERPRETER}.{method}", iterations=9, warmup=1)
    assert_plausible(run, examples_per_step=operations, iterations=9, item="operation")
    per_operation_s = run.metrics["operation_median_s"]
    assert per_operation_s * operations == pytest.approx(run.entry["wall_time"])
    # No interpreter reads an attribute in less than a nanosecond, or needs a tenth of a second to
    # write and read a document.
    assert 1e-9 < per_operation_s < 0.1
    assert run.extras["python_version"] == platform.python_version()
    assert run.extras["warmup"] == 1


def test_flags_after_the_dashes_reach_a_method_and_keywords_win(run_method: RunMethod) -> None:
    run = run_method(f"{INTERPRETER}.list_building", "--iterations=4", "--warmup=2", warmup=0)
    assert run.entry["iters"] == 4
    assert run.extras["warmup"] == 0


@pytest.mark.parametrize(
    ("target", "keywords", "said"),
    [
        (
            f"{INTERPRETER}.list_building",
            {"iterations": 0},
            "iterations is 0; it must",
        ),
        (
            f"{INTERPRETER}.list_building",
            {"batch_size": 2},
            "Interpreter does not",
        ),
        (
            f"{CALIBRATION}.allocate",
            {"megabytes": "500"},
            "megabytes is '500'; it",
        ),
        (
            f"{CALIBRATION}.allocate",
            {"child_megabytes": 0},
            "child_megabytes is 0; it",
        ),
    ],
)
def test_a_wrong_keyword_is_refused_by_name_before_anything_runs(
    run_method: RunMethod, target: str, keywords: dict[str, object], said: str
) -> None:
    run = run_method(target, fails=True, **keywords)
    last_line = run.stderr.strip().splitlines()[-1]
    assert last_line.startswith(f"perfrun.SetupError: {said}")
    assert next(iter(keywords)) in last_line


def test_a_sleep_of_known_length_reads_back_within_its_bounds(run_method: RunMethod) -> None:
    run = run_method(f"{CALIBRATION}.sleep")
    assert_plausible(run, examples_per_step=1, iterations=10, item="step")
    lowest, highest = run.bounds("sleep_error_s")
    assert (lowest, highest) == (-0.001, 0.01)
    assert run.metrics["sleep_error_s"] == pytest.approx(run.entry["wall_time"] - 0.05)
    assert run.entry["wall_time"] >= 0.05
    assert run.entry["cpu_time"] < 0.01


def test_what_is_read_of_a_sleep_is_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read around each sleep, however long a busy machine lets it sleep."""
    slept_s, reports = [], []

    def sleep(seconds: float) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        slept_s.append(time.perf_counter() - began)

    clock = SimpleNamespace(sleep=sleep, perf_counter=time.perf_counter)
    monkeypatch.setattr(calibration, "time", clock)
    benchmark: Any = calibration.Calibration()
    benchmark.report_benchmark = lambda **report: reports.append(report)
    benchmark.sleep()
    [report] = reports
    timed_s = slept_s[1:]  # the first call is told apart
    assert len(timed_s) == 10
    # Each reading holds its sleep. More than half of them would have to be disturbed between the
    # two pairs of readings to move the median by more than the sleeps themselves differ.
    assert statistics.median(timed_s) <= report["wall_time"] < max(timed_s) + 0.01


def test_doing_nothing_takes_next_to_nothing_and_reports_nothing_else(
    run_method: RunMethod,
) -> None:
    entry = run_method(f"{CALIBRATION}.noop").entry
    assert entry["iters"] == 1
    assert 0 <= entry["wall_time"] < 0.01
    assert entry["metrics"] == []
    assert entry["extras"] == []


def test_allocated_memory_is_really_in_memory_and_held(run_method: RunMethod) -> None:
    run = run_method(f"{CALIBRATION}.allocate", megabytes=150)
    assert run.metrics["allocated_bytes"] == 150_000_000
    assert 150e6 <= run.metrics["peak_rss_bytes"] < 200e6
    assert run.bounds("peak_rss_bytes") == (150e6, None)
    assert 0.2 <= run.entry["wall_time"] < run.process_s


def test_a_childs_memory_is_its_own_and_held_for_half_a_second(run_method: RunMethod) -> None:
    run = run_method(f"{CALIBRATION}.child_allocation", child_megabytes=150)
    assert run.metrics["child_allocated_bytes"] == 150_000_000
    assert 150e6 <= run.metrics["child_peak_rss_bytes"] < 200e6
    assert 0.5 <= run.entry["wall_time"] < run.process_s
