"""What DLBS' lines read from a trial's folder, which the benchmark could have written to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perfrun.dlbs.trial_files import device_times, use_over_time

SAMPLE = {"time": 0.5, "rss": 2048, "vms": 4096, "cpu_percent": 150.0, "tree_rss": 3072}


def scaling(folder: Path, *, forward_only: object = False, **level: Any) -> Path:
    file = folder / "scaling_weak/scaling.json"
    file.parent.mkdir(exist_ok=True)
    last = {"steps_s": [0.5, 0.25], "rank_means_s": [0.25, 0.375], **level}
    file.write_text(json.dumps({"forward_only": forward_only, "levels": [{}, last]}))
    return file


def test_the_steps_are_those_of_the_most_devices(tmp_path: Path) -> None:
    scaling(tmp_path)
    found = device_times(tmp_path)
    assert found is not None
    assert (found.steps_s, found.means_s) == ((0.5, 0.25), ())


def test_devices_that_infer_have_a_mean_each(tmp_path: Path) -> None:
    scaling(tmp_path, forward_only=True)
    found = device_times(tmp_path)
    assert found is not None
    assert found.means_s == (0.25, 0.375)


@pytest.mark.parametrize("times", [[0.5, "1"], [True], [-1.0], [0], [float("nan")], 7, {"a": 1}])
def test_times_that_cannot_be_are_no_times(tmp_path: Path, times: object) -> None:
    scaling(tmp_path, steps_s=times)
    assert device_times(tmp_path) is None


def test_what_is_no_table_is_no_times(tmp_path: Path) -> None:
    file = scaling(tmp_path)
    for text in ("", "[]", "{", "3", '{"levels": []}', "[" * 100_000):
        file.write_text(text)
        assert device_times(tmp_path) is None


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    real = scaling(elsewhere)
    trial = tmp_path / "trial"
    trial.mkdir()
    (trial / "scaling_weak").symlink_to(real.parent)
    assert device_times(trial) is None
    (trial / "scaling_weak").unlink()
    (trial / "scaling_weak").mkdir()
    (trial / "scaling_weak/scaling.json").symlink_to(real)
    assert device_times(trial) is None
    os.mkfifo(trial / "process_info.log")
    assert use_over_time(trial, 1024) == {}


def test_use_over_time_has_the_units_of_top(tmp_path: Path) -> None:
    later = {**SAMPLE, "time": 1.0, "cpu_percent": 50.0}
    lines = [json.dumps(SAMPLE), json.dumps(later), '{"time": 1.5, "rs']
    (tmp_path / "process_info.log").write_text("\n".join(lines))
    assert use_over_time(tmp_path, 30720) == {
        "time": [0.5, 1.0],
        "mem_virt": [4.0, 4.0],
        "mem_res": [3.0, 3.0],
        "cpu": [150.0, 50.0],
        "mem": [10.0, 10.0],
    }


def test_the_power_of_each_device_is_in_the_use(tmp_path: Path) -> None:
    sample = {**SAMPLE, "nvidia0_power_w": 70.5, "nvidia1_power_w": 61.0}
    (tmp_path / "process_info.log").write_text(json.dumps(sample))
    assert use_over_time(tmp_path, None)["gpus"] == [[70.5, 61.0]]


def test_lines_that_are_no_samples_are_left_out(tmp_path: Path) -> None:
    bad = [
        '"text"',
        json.dumps({**SAMPLE, "rss": "1"}),
        json.dumps({**SAMPLE, "rss": float("inf")}),
    ]
    (tmp_path / "process_info.log").write_text("\n".join(bad))
    assert use_over_time(tmp_path, 1024) == {}
