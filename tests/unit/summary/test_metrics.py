"""The metrics of perfrun's and PerfZero's summaries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.summary.metrics import direction_of
from perfrun.summary.record import SummaryRecord, read_record
from tests.summaries import summary


def read(folder: Path, document: dict[str, Any]) -> SummaryRecord:
    path = folder / "perfzero_summary.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return read_record(path)


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


def test_a_metric_throughput_beside_a_report_without_one_is_the_users(tmp_path: Path) -> None:
    document = summary(metrics={"throughput": 5.0})
    document["perfrun"]["reports"] = [{"name": ""}]
    document["perfrun"]["series"] = [{"report": "", "metrics": {}}]
    assert read(tmp_path, document).values["throughput"] == 5.0


def measured(*mine: tuple[str, float], report: str | None = "Cases.spin") -> dict[str, Any]:
    """A trial of one `measure`, as `report_arguments` reports it; `mine` comes after its own."""
    own = {
        "latency_median_s": 1.0,
        "latency_mean_s": 1.1,
        "latency_p99_s": 2.0,
        "first_call_s": 9.0,
        "images_per_second": 32.0,
    }
    metrics = [{"name": n, "value": v} for n, v in (*(own.items() if report else ()), *mine)]
    document = summary(wall_time=1.0)
    document["benchmark_result"]["metrics"] = metrics
    document["perfrun"]["reports"] = [
        {"name": "Cases.spin", "wall_time": 1.0, "throughput": 32.0 if report else 0.0,
         "metrics": metrics, "extras": []}
    ]  # fmt: skip
    document["perfrun"]["series"] = [
        {
            "name": "spin",
            "report": report,
            "items_per_step": 32,
            "throughput_per_s": 32.0,
            "metrics": {
                name: {"value": value, "unit": "s", "direction": "lower"}
                for name, value in own.items()
            },
        }
    ]
    return document


def test_what_follows_from_the_steps_of_a_series_is_derived_from_their_median(
    tmp_path: Path,
) -> None:
    found = read(tmp_path, measured(("acc", 1.0)))
    assert set(found.primaries) == {"wall_time", "first_call_s", "acc", "peak_rss_bytes"}
    assert set(found.derived("wall_time")) == {
        *("throughput", "latency_median_s", "latency_mean_s", "latency_p99_s"),
        "images_per_second",
    }
    assert found.batch_size == "items_per_step=32"


@pytest.mark.parametrize("value", [5.0, 1.1])
def test_a_name_that_the_user_reports_is_his_also_when_we_have_it(
    tmp_path: Path, value: float
) -> None:
    found = read(tmp_path, measured(("latency_mean_s", value)))
    assert found.values["latency_mean_s"] == value
    assert "latency_mean_s" in found.primaries


def test_a_users_own_metric_of_a_name_of_ours_is_kept_without_any_series(tmp_path: Path) -> None:
    found = read(tmp_path, summary(metrics={"latency_mean_s": 3.0, "warmup_s": 1.0}))
    assert {"latency_mean_s", "warmup_s"} <= set(found.primaries)


def test_a_series_that_the_user_reports_himself_counts_with_his_wall_time(tmp_path: Path) -> None:
    found = read(tmp_path, measured(("mine", 5.0), report=None))
    assert set(found.primaries) == {"wall_time", "mine", "spin/first_call_s", "peak_rss_bytes"}
    assert found.metrics["spin/latency_median_s"].derived_from == "wall_time"
    document = measured(("mine", 5.0), report=None)
    document["benchmark_result"]["wall_time"] = 7.0  # of something else
    found = read(tmp_path, document)
    assert {"wall_time", "spin/latency_median_s"} <= set(found.primaries)
    assert found.metrics["spin/latency_mean_s"].derived_from == "spin/latency_median_s"


def test_a_throughput_of_the_users_own_is_primary(tmp_path: Path) -> None:
    document = measured()
    document["perfrun"]["reports"][0]["throughput"] = 7.0
    assert "throughput" in read(tmp_path, document).primaries


def test_a_direction_is_that_of_the_metric_not_of_the_report_it_is_in() -> None:
    assert direction_of("loss_eval/accuracy") == "higher"
    assert direction_of("loss/train") == "lower"  # a user's own name
    assert direction_of("eval/colour") == "none"
    assert direction_of("colour", "higher") == "higher"


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
    assert found.run_id == ""
    assert found.values["acc"] == 0.5


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"benchmark_result": 3}', "\x00"])
def test_what_is_no_summary_is_a_value_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError):  # noqa: PT011 - json's own is one, too
        read_record(tmp_path / "x")


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
        ("", "is empty"),
        ("[]", "is JSON, but no summary"),
        ("{}", "is JSON, but no summary: benchmark_result.name is missing"),
    ],
)
def test_a_file_that_is_no_summary_says_what_it_is(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "perfzero_summary.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        read_record(path)
