"""The metrics that both frameworks report of a model, from known values."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from shipped_run import ROOT

from benchmarks._support.models.figures import Peak, Work, arithmetic, metrics_of

WORK = Work(flops_per_example=8e9, counted_by="by hand")
PEAK = Peak(flops_per_second=4e10, measured_by="by hand")


def test_utilisation_is_achieved_over_peak_and_a_multiply_add_is_two() -> None:
    metrics, extras = arithmetic(WORK, PEAK, 2.5)
    assert {metric["name"]: metric["value"] for metric in metrics} == {
        "flops_per_example": 8e9,
        "macs_per_example": 4e9,
        "achieved_flops_per_second": 2e10,
        "peak_flops_per_second": 4e10,
        "model_flops_utilisation": 0.5,
    }
    assert extras == {"flops_counted_by": "by hand", "peak_measured_by": "by hand"}


def test_what_cannot_be_known_is_absent_and_says_why() -> None:
    uncounted = Work(flops_per_example=None, counted_by="", why_unknown="Einsum is not counted")
    metrics, extras = arithmetic(uncounted, PEAK, 2.5)
    assert [metric["name"] for metric in metrics] == ["peak_flops_per_second"]
    assert extras["mfu_absent"] == "Einsum is not counted"
    unmeasured = Peak(flops_per_second=None, measured_by="", why_unknown="no such product")
    assert arithmetic(WORK, unmeasured, 2.5)[1]["mfu_absent"] == "no such product"
    assert "clock" in arithmetic(WORK, PEAK, None)[1]["mfu_absent"]


def test_more_than_the_peak_is_reported_and_called_suspicious() -> None:
    metrics, extras = arithmetic(WORK, PEAK, 10.0)
    assert metrics[-1] == {"name": "model_flops_utilisation", "value": 2.0}
    assert "disturbed" in extras["mfu_suspicious"]


def test_unknown_values_are_no_metrics_and_zero_is_one() -> None:
    assert metrics_of({"a": None, "b": 0.0}) == [{"name": "b", "value": 0.0}]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_knows_its_age_from_before_python_began() -> None:
    code = (
        f"import sys, time; sys.path.append({str(ROOT)!r}); time.sleep(0.3); "
        "from benchmarks._support.machine import process_age_s; print(process_age_s())"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lived_s = time.perf_counter() - began
    tick_s = 0.01
    assert 0.3 <= float(done.stdout) <= lived_s + 2 * tick_s
