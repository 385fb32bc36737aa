"""The metrics that both frameworks report of a model, from known values."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from shipped_run import ROOT

from benchmarks._support.models.figures import metrics_of


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
