"""The verdicts of a GPU day, from answers that were written by hand: no device gave them.

They show that the rules accept what they should and refuse what they should, and nothing else.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gpu_day.asking import figures, sampled_energy_j
from gpu_day.checks import CHECKS, dlbs_lines
from gpu_day.judging import ABSENT, FAILED, PASSED, judged

ANSWERS = Path(__file__).parents[2] / "data" / "gpu_day" / "answers.json"
RECORDED = {one["name"]: one["answer"] for one in json.loads(ANSWERS.read_text())["checks"]}
BY_NAME = {check.name: check for check in CHECKS}


def test_there_is_an_answer_for_each_check() -> None:
    assert list(RECORDED) == list(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_device_as_it_should_be_passes(name: str) -> None:
    found = judged(BY_NAME[name].judge, RECORDED[name])
    assert (found.verdict, found.reason) == (PASSED, None)
    assert found.measured


def changed(name: str, path: str, value: Any) -> dict[str, Any]:
    answer: dict[str, Any] = copy.deepcopy(RECORDED[name])
    *way, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    place: Any = answer
    for key in way:
        place = place[key]
    place[last] = value
    return answer


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("devices", "frameworks/torch/devices", []),  # and JAX' one is left: see below
        ("mig", "devices/0/mig_pending", "on"),
        ("synchronisation", "trial/wall_time", 0.0001),  # a clock that did not wait
        ("synchronisation", "trial/wall_time", 0.0300),
        ("synchronisation", "trial/device_time_s", 0.0300),
        ("synchronisation", "trial/launch_s", 0.0220),  # a launch that waits: no queue to see
        ("two_streams", "trial/wall_time", 0.0001),  # the other stream was not waited for
        ("two_streams", "trial/default_stream_s", 0.0662),
        ("memory_peaks", "trial/device_memory/allocated", 6 * 2**30),  # perfrun's own tensors
        ("memory_peaks", "trial/device/used_peak_bytes", 700 * 2**20),
        ("memory_peaks", "trial/device/used_peak_bytes", 60 * 2**30),
        ("pinned_copies", "trial/pinned_to_device", 1.3e10),
        ("pinned_copies", "trial/pinned_from_device", 9e11),  # faster than any link: not waited for
        ("float16", "trial/skipped_steps", 1.0),
        ("float16", "trial/loss_scale", 0.25),
        ("compile", "compiled/wall_time", 0.0060),
        ("beside_a_loop", "shipped/wall_time", 0.0050),
        ("beside_a_loop", "shipped/device_memory/allocated", 824 * 2**20),  # weights cloned
        ("power_energy", "trial/device/energy_j", 3.9),  # millijoules taken for joules
        ("power_energy", "trial/device/energy_source", "sampled power"),
        ("power_energy", "trial/device/utilization_percent/high", 12.0),
        ("dlbs_rows", "lines/results.status", "failure"),
        ("dlbs_rows", "lines/exp.device_type", "cpu"),
        ("dlbs_rows", "lines/results.throughput", 6.4),
        ("jax", "trial/platform", "cpu"),
        ("jax", "trial/wall_time", 0.00004),
        ("containers", "trial/series_device", "cpu"),
    ],
)
def test_a_fault_fails_and_says_what_was_expected(name: str, path: str, value: Any) -> None:
    answer = changed(name, path, value)
    if name == "devices":
        answer["frameworks"].pop("jax")
    found = judged(BY_NAME[name].judge, answer)
    assert found.verdict == FAILED
    assert found.reason
    assert found.reason.startswith("expected ")
    assert found.measured != "-"


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("value", [None, "2", True, math.nan, math.inf, [], {}])
def test_an_answer_without_its_figures_fails_in_one_line(name: str, value: Any) -> None:
    answer = dict.fromkeys(RECORDED[name], value)
    found = judged(BY_NAME[name].judge, answer)
    assert found.verdict == FAILED
    assert found.reason
    assert "\n" not in found.reason


def test_a_duration_of_nothing_is_no_figure() -> None:
    found = judged(BY_NAME["jax"].judge, changed("jax", "trial/by_hand_s", 0.0))
    assert (found.verdict, found.reason) == (FAILED, "times: a duration or size is not above 0")


def test_an_answer_may_be_the_reason_for_none() -> None:
    judge = BY_NAME["jax"].judge
    assert judged(judge, {"absent": "no JAX"}).verdict == ABSENT
    assert judged(judge, {"failed": "it died"}).reason == "it died"


def test_the_energy_of_a_device_is_the_integral_of_its_rows(tmp_path: Path) -> None:
    rows = tmp_path / "devices.csv"
    rows.write_text(
        "time,device,power_w\n0.0,nvidia0,100\n0.5,nvidia1,900\n1.0,nvidia0,200\n2.0,nvidia0,\n"
        "3.0,nvidia0,200\n"
    )
    assert sampled_energy_j(rows, "nvidia0") == pytest.approx(150 + 400)
    assert sampled_energy_j(rows, "nvidia1") is None
    rows.write_text("time,device,power_w\n0.0,nvidia0,much\n")
    assert sampled_energy_j(rows, "nvidia0") is None


def test_the_figures_of_a_summary_are_those_of_its_device(tmp_path: Path) -> None:
    peak = {"bytes": 5, "source": "s", "exactness": "exact", "reason": None, "enable": None}
    device = {
        "vendor": "nvidia",
        "index": 0,
        "name": "H100",
        "used_before_bytes": 1,
        "used_peak_bytes": 9,
        "process_peak_bytes": 8,
        "energy_j": 2.0,
        "uuid": "x",
        "energy_source": "counter",
        "power_w": None,
        "utilization_percent": None,
    }
    document = {
        "benchmark_result": {
            "wall_time": 1.5,
            "metrics": [{"name": "first_call_s", "value": 2.5}],
            "extras": [{"name": "event_s", "value": 1.25}],
        },
        "perfrun": {
            "memory": {"device": [{"device": "cuda:0", "what": "allocated", "peak": peak}]},
            "series": [{"device": "cuda (H100)"}],
            "container": {"limits": {"gpus": "all"}},
            "devices": {"devices": [device]},
        },
    }
    found = figures((document, tmp_path / "perfzero_summary.json"))
    assert (found["wall_time"], found["event_s"], found["first_call_s"]) == (1.5, 1.25, 2.5)
    assert found["device_memory"] == {"allocated": 5}
    assert (found["series_device"], found["gpus"]) == ("cuda (H100)", "all")
    assert (found["device"]["used_peak_bytes"], found["device"]["sampled_energy_j"]) == (9, None)


def test_dlbs_lines_are_read_and_others_left() -> None:
    text = 'table\n__exp.device_type__="gpu"\n__results.time__=2.5\n__bad__={\n____=1\n'
    assert dlbs_lines(text) == {"exp.device_type": "gpu", "results.time": 2.5, "": 1}
