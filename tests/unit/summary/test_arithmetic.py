"""The arithmetic of a report: from known values, and from a companion that says what it likes."""

from __future__ import annotations

import math

import pytest

from perfrun.summary.arithmetic import Peak, Work, figures, peak_of, with_figures, work_of
from perfrun.summary.document import Metric, Report

WORK = Work(flops_per_example=8e9, counted_by="by hand")
PEAK = Peak(flops_per_second=4e10, measured_by="by hand")


def test_utilisation_is_achieved_over_peak_and_a_multiply_add_is_two() -> None:
    metrics, extras = figures(WORK, PEAK, 2.5)
    assert metrics == {
        "flops_per_example": 8e9,
        "macs_per_example": 4e9,
        "achieved_flops_per_second": 2e10,
        "peak_flops_per_second": 4e10,
        "model_flops_utilisation": 0.5,
    }
    assert extras == {"flops_counted_by": "by hand", "peak_measured_by": "by hand"}


def test_what_cannot_be_known_is_absent_and_says_why() -> None:
    uncounted = Work(flops_per_example=None, counted_by="", why_unknown="Einsum is not counted")
    metrics, extras = figures(uncounted, PEAK, 2.5)
    assert list(metrics) == ["peak_flops_per_second"]
    assert extras["mfu_absent"] == "Einsum is not counted"
    unmeasured = Peak(flops_per_second=None, measured_by="", why_unknown="no such product")
    assert figures(WORK, unmeasured, 2.5)[1]["mfu_absent"] == "no such product"
    assert "clock" in figures(WORK, PEAK, None)[1]["mfu_absent"]


def test_more_than_the_peak_is_reported_and_called_suspicious() -> None:
    metrics, extras = figures(WORK, PEAK, 10.0)
    assert metrics["model_flops_utilisation"] == 2.0
    assert "disturbed" in extras["mfu_suspicious"]


@pytest.mark.parametrize(
    "said",
    [
        None,
        [8e9],
        {"flops_per_example": "8e9"},
        {"flops_per_example": True},
        {"flops_per_example": 0},
        {"flops_per_example": -1.0},
        {"flops_per_example": math.inf},
        {"flops_per_example": math.nan},
        {"flops_per_example": 10**400},
        {"flops_per_example": 1.0, "counted_by": ["by hand"]},
        {"flops_per_example": 1.0, "counted_by": "x" * 100_000},
        {"flops_per_example": 1.0, "more": 1},
    ],
)
def test_a_companion_that_does_not_tell_a_figure_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r"flops_per_example|counted_by"):
        work_of(said)


def test_a_companion_may_not_know() -> None:
    assert work_of({"why_unknown": "no such operator"}).flops_per_example is None
    found = peak_of({"flops_per_second": 4, "measured_by": "a", "by_kind": "", "why_unknown": ""})
    assert (found.flops_per_second, found.measured_by) == (4.0, "a")


def test_what_a_report_has_by_itself_stays_as_it_is() -> None:
    report = Report(
        name="A.b",
        metrics=(Metric(name="flops_per_example", value=1.0, max_value=2.0),),
        extras=({"name": "mfu_absent", "value": "the author's"},),
    )
    whole = with_figures(report, {"flops_per_example": 2.0, "a": 3.0}, {"mfu_absent": "", "b": "c"})
    assert [(one.name, one.value) for one in whole.metrics] == [
        *(("flops_per_example", 1.0), ("a", 3.0)),
    ]
    assert whole.extras == (*report.extras, {"name": "b", "value": "c"})
