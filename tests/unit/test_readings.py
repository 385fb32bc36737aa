"""What is read of a summary: perfrun's own, and PerfZero's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.readings import Reading, read_summary
from tests.summaries import summary


def read(folder: Path, document: dict[str, Any]) -> Reading:
    path = folder / "perfzero_summary.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return read_summary(path)


def test_wall_time_metrics_and_memory_are_values_with_directions(tmp_path: Path) -> None:
    found = read(tmp_path, summary(wall_time=2.0, metrics={"acc": 0.9, "epochs": 3}, max_rss=7))
    assert found.values == {"wall_time": 2.0, "acc": 0.9, "epochs": 3.0, "peak_rss_bytes": 7.0}
    assert found.directions["acc"] == "higher"
    assert found.directions["epochs"] == "none"


def test_a_trial_that_did_not_come_to_its_end_has_no_values(tmp_path: Path) -> None:
    found = read(tmp_path, summary(status="crashed"))
    assert (found.ran, dict(found.values)) == (False, {})


def test_what_is_not_finite_is_no_value(tmp_path: Path) -> None:
    document = summary()
    document["benchmark_result"]["metrics"] = [
        {"name": "loss", "value": "NaN"},
        {"name": "flag", "value": True},
    ]
    assert set(read(tmp_path, document).values) == {"wall_time", "peak_rss_bytes"}


def test_of_a_series_the_repetitions_of_its_median_are_left_to_the_summary(tmp_path: Path) -> None:
    document = summary(metrics={"latency_median_s": 1.0, "latency_p99_s": 2.0, "acc": 1.0})
    metrics = {
        name: {"value": 1.0, "unit": "s", "direction": "lower"}
        for name in ("latency_median_s", "latency_p99_s")
    }
    document["perfrun"]["series"] = [{"metrics": metrics, "items_per_step": 32}]
    found = read(tmp_path, document)
    assert set(found.values) == {"wall_time", "latency_p99_s", "acc", "peak_rss_bytes"}
    assert found.batch_size == "items_per_step=32"


def test_further_reports_are_values_under_their_names(tmp_path: Path) -> None:
    document = summary()
    document["perfrun"]["reports"] = [
        {"name": "Cases.spin", "wall_time": 1.0, "throughput": 5.0, "extras": [], "metrics": []},
        {
            "name": "Cases.eval",
            "wall_time": 4.0,
            "throughput": 0.0,
            "extras": [{"name": "note", "value": "x"}, {"name": "images_per_second", "value": 9}],
            "metrics": [{"name": "acc", "value": 0.5}],
        },
    ]
    values = read(tmp_path, document).values
    assert values["throughput"] == 5.0
    assert values["eval/wall_time"] == 4.0
    assert values["eval/acc"] == 0.5
    assert values["eval/images_per_second"] == 9.0
    assert "eval/note" not in values


def test_perfzeros_own_summary_is_read(tmp_path: Path) -> None:
    document = summary(metrics={"acc": 0.5})
    del document["perfrun"]
    found = read(tmp_path, document)
    assert found.ran
    assert found.run_id is None
    assert found.values["acc"] == 0.5


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"benchmark_result": 3}', "\x00"])
def test_what_is_no_summary_is_a_value_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError):  # noqa: PT011 - json's own is one, too
        read_summary(tmp_path / "x")


def test_a_trial_under_a_profiler_is_no_result(tmp_path: Path) -> None:
    document = summary()
    document["perfrun"]["order"] = {"profile": None}
    assert read(tmp_path, document).values
    document["perfrun"]["order"] = {"profile": "cprofile"}
    with pytest.raises(ValueError, match="under a profiler"):
        read(tmp_path, document)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"execution_id": ', "is not JSON, or cut short"),
        ("", "is not JSON, or cut short"),
        ("[]", "is JSON, but no summary"),
        ("{}", "is JSON, but no summary: 'benchmark_result' is missing"),
    ],
)
def test_a_file_that_is_no_summary_says_what_it_is(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "perfzero_summary.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        read_summary(path)
