"""Findings about a series."""

from __future__ import annotations

import random
from typing import Any

import pytest

from perfrun.summary.finding import Finding, Severity
from perfrun.summary.quality_series import FENCE, series_findings, values_needed


def series(**changed: Any) -> dict[str, Any]:
    """A good one, as `Benchmark.measure` writes it down, with changes."""
    noise = random.Random(1)
    times = changed.pop("times_s", [noise.gauss(1.0, 0.01) for _ in range(400)])
    statistics = {
        "count": len(times),
        "min_s": min(times),
        "p90_s": 1.01,
        "p99_s": 1.02,
        **changed.pop("statistics", {}),
    }
    return {
        "name": "step",
        "times_s": times,
        "times_every": 1,
        "statistics": statistics,
        "steadiness": {"kind": "flat", "steady_from": 0, "steady": True},
        "timer": {"overhead_s": 1e-7, "share": 1e-7},
        "clock": {"resolution_s": 1e-9},
        "block_size": 1,
        "recompilations": {},
        **changed,
    }


def found(**changed: Any) -> list[Finding]:
    return list(series_findings([series(**changed)]))


def test_a_good_series_gives_no_findings() -> None:
    assert found() == []


@pytest.mark.parametrize(("quantile", "count"), [(0.5, 6), (0.9, 29), (0.99, 299), (0.01, 299)])
def test_a_percentile_needs_the_values_that_order_statistics_ask_for(
    quantile: float, count: int
) -> None:
    """0.99**299 < 0.05 < 0.99**298, the textbook's figure."""
    assert values_needed(quantile) == count


@pytest.mark.parametrize("quantile", [0.9, 0.99])
def test_with_so_many_values_the_interval_holds_the_quantile_19_times_in_20(
    quantile: float,
) -> None:
    source, count, held = random.Random(7), values_needed(quantile), 0
    for _ in range(2000):
        values = [source.random() for _ in range(count)]
        held += min(values) < quantile < max(values)
    assert 0.94 < held / 2000 < 0.97


@pytest.mark.parametrize(
    ("changed", "code", "severity", "says"),
    [
        (
            {"steadiness": {"kind": "slowdown", "steady_from": None, "steady": False}},
            "not_steady",
            "warning",
            "(slowdown)",
        ),
        (
            {
                "steadiness": {"kind": "flat", "steady_from": 0, "steady": False},
                "recompilations": {"dynamo": 2, "xla": 0},
            },
            "recompiled",
            "warning",
            "2 x dynamo",
        ),
        (
            {"steadiness": {"kind": "slowdown", "steady_from": 0, "steady": True}},
            "slowdown",
            "warning",
            "became slower while it was timed",
        ),
        (
            {"statistics": {"count": 150}},
            "too_few_samples",
            "warning",
            "p99 of 150 values is a guess; it needs 299",
        ),
        (
            {"statistics": {"count": 50, "p99_s": None}},
            "too_few_samples",
            "info",
            "p99 of 50 values cannot be given",
        ),
        ({"timer": {"share": 0.004}}, "timer_overhead", "warning", "0.40%"),
        ({"clock": {"resolution_s": 0.015}}, "timer_too_coarse", "warning", "steps of 15 ms"),
    ],
)
def test_a_flaw_is_found_alone(
    changed: dict[str, Any], code: str, severity: str, says: str
) -> None:
    findings = found(**changed)
    assert [finding.code for finding in findings] == [code]
    assert findings[0].severity == severity
    assert says in findings[0].text


def test_a_handful_of_values_tells_neither_percentiles_nor_steadiness() -> None:
    findings = found(
        times_s=[1.0] * 5,
        statistics={"p90_s": None, "p99_s": None},
        steadiness={"kind": "too_few", "steady_from": None, "steady": None},
    )
    codes = [(finding.code, finding.severity) for finding in findings]
    assert codes == [
        ("too_few_to_tell", Severity.WARNING),
        ("too_few_samples", Severity.INFO),
        ("too_few_samples", Severity.INFO),
    ]


@pytest.mark.parametrize(
    ("outliers", "severity"), [(0, None), (1, Severity.INFO), (12, Severity.WARNING)]
)
def test_times_far_from_the_others_are_counted(outliers: int, severity: Severity | None) -> None:
    times = series()["times_s"]
    times[: outliers * 30 : 30] = [5.0] * outliers
    findings = found(times_s=times)
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    if severity:
        assert findings[0].value == outliers / 400
        assert "5.0 times the median" in findings[0].text


def test_even_times_have_no_outliers_near_the_median() -> None:
    times = [1.0, 1.0001] * 200
    assert found(times_s=[*times, *[1.03] * 30]) == []
    (finding,) = found(times_s=[*times, *[1.2] * 30])
    assert "up to 20% off the median" in finding.text


def test_a_time_that_counts_compilation_is_no_number_of_compilations() -> None:
    counted = {"tf_function_traces": 3, "tf_graph_building_us": 644_206}
    (finding,) = found(recompilations=counted)
    assert (finding.value, finding.unit) == (3, "times")
    assert "3 x tf_function_traces)" in finding.text


def test_the_warm_up_is_no_outlier_of_the_steady_part() -> None:
    times = [9.0] * 40 + series()["times_s"]
    warm = {"kind": "warmup", "steady_from": 40, "steady": True}
    assert found(times_s=times, steadiness=warm) == []
    assert [f.code for f in found(times_s=times)] == ["outliers"]
    every_third = {"times_s": times[::3], "times_every": 3, "steadiness": warm}
    assert found(**every_third, statistics={"count": 400}) == []


def test_equal_times_have_no_outliers() -> None:
    assert found(times_s=[1.0] * 400) == []
    assert FENCE > 1.5  # the inner fences would call 1 in 150 normal values an outlier


def test_a_series_that_was_cut_off_says_nothing() -> None:
    assert list(series_findings([{"name": "step", "statistics": None}])) == []
    assert list(series_findings([{"name": "step"}])) == []


def test_a_series_with_nothing_but_statistics_is_judged_by_those() -> None:
    bare = {"name": "s", "statistics": {"count": 400, "min_s": 1.0, "p90_s": 1.0, "p99_s": 1.0}}
    assert list(series_findings([bare])) == []


def faulting(**changed: Any) -> list[Finding]:
    """A step of 23 ms with 3,700 faults, 10 ms of it in the kernel, as it was seen."""
    return found(
        **{
            "minor_faults_per_step": 3700.0,
            "system_cpu_s": 0.010,
            "cpu_s": 0.022,
            "statistics": {"median_s": 0.023},
            **changed,
        }
    )


def test_a_step_that_faults_its_memory_in_again_lowers_the_grade_and_names_the_flag() -> None:
    (finding,) = faulting()
    assert (finding.code, finding.severity) == ("page_faults", Severity.WARNING)
    assert "43% of a step" in finding.text
    assert "3,700 page faults" in finding.text
    assert "--allocator=retain" in (finding.mend or "")


@pytest.mark.parametrize(
    "changed",
    [
        {"minor_faults_per_step": 0.0},
        {"minor_faults_per_step": None, "system_cpu_s": None},
        {"system_cpu_s": 0.001},  # less than a twentieth of the step
        {"statistics": {"median_s": 0.3}},  # the step waits for something else
        {"minor_faults_per_step": 10.0},  # 1 ms each: the kernel did something else
    ],
    ids=["none", "unknown", "little time", "waiting", "reading a file"],
)
def test_a_step_whose_time_is_not_that_of_faults_gives_no_finding(changed: dict[str, Any]) -> None:
    assert faulting(**changed) == []


def test_where_memory_is_kept_already_the_advice_is_another() -> None:
    facts = {**series(), "minor_faults_per_step": 3700.0, "system_cpu_s": 0.010, "cpu_s": 0.022}
    facts["statistics"] = {**facts["statistics"], "median_s": 0.023}
    advices = {"retain": "mmap", "jemalloc": "MALLOC_CONF", "tcmalloc": "RELEASE_RATE"}
    for name, advice in advices.items():
        (finding,) = series_findings([facts], name)
        assert advice in (finding.mend or "")
