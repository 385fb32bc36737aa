"""From the text of a summary to a record, whoever wrote it and in whatever state it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trial_documents import perfrun_summary, perfzero_summary

from perfrun.summary.record import BadSummary, SummaryRecord, parse_record, read_record, record_of

PATH = Path("somewhere/perfzero_summary.json")


def extract(document: Any) -> SummaryRecord:
    return record_of(document, PATH)


def values(record: SummaryRecord) -> dict[str, float]:
    return dict(record.values)


def test_perfzero_summaries_are_read_as_they_are() -> None:
    metrics = [
        {"name": "acc", "value": 0.93, "min_value": 0.9, "max_value": 0.99},
        {"name": "zero", "min_value": 0.0, "value": 0.0},
    ]
    extras = [
        {"name": "note", "value": "a string"},
        {"name": "examples_per_second", "value": 1000.5},
        {"name": "n", "value": 3.0},
    ]
    record = extract(perfzero_summary(7, metrics=metrics, extras=extras))
    assert values(record) == {
        "wall_time": 1.5,
        "acc": 0.93,
        "zero": 0.0,
        "examples_per_second": 1000.5,
        "peak_rss_bytes": 1000.0,
    }
    assert record.extras == {"n": 3.0, "note": "a string"}
    assert record.commits == {"models": f"{7:040x}"}
    assert (record.status, record.run_id, record.grade) == ("passed", "", "")


@pytest.mark.parametrize(
    ("has_exception", "succeeded", "status"),
    [(True, False, "failed"), (False, False, "out_of_bounds"), (False, True, "passed")],
)
def test_how_a_perfzero_trial_ended(has_exception: bool, succeeded: bool, status: str) -> None:
    document = perfzero_summary()
    document["benchmark_info"]["has_exception"] = has_exception
    document["benchmark_result"]["succeeded"] = succeeded
    assert extract(document).status == status


def test_a_trial_that_did_not_come_to_its_end_is_kept_without_figures() -> None:
    document = perfrun_summary(own={"outcome": {"status": "crashed"}}, wall_time=-1)
    record = extract(document)
    assert record.status == "crashed"
    assert record.metrics == {}


def test_what_perfzero_writes_for_unknown_is_no_figure() -> None:
    document = perfzero_summary(wall_time=-1)
    document["process_info"]["max_rss"] = 0  # the method was over before it was looked at
    assert values(extract(document)) == {}


@pytest.mark.parametrize("value", ["NaN", "Infinity", True, None, [], 10**400])
def test_what_is_no_finite_number_is_no_figure(value: Any) -> None:
    document = perfrun_summary(metrics=[{"name": "m", "value": value}])
    assert "m" not in values(extract(document))


def series(report: str | None, name: str = "a") -> dict[str, Any]:
    metrics = {"images_per_second": {"value": 7.0, "unit": "images/s", "direction": "higher"}}
    return {"name": name, "report": report, "metrics": metrics}


def test_unit_and_direction_come_from_the_series_that_was_reported() -> None:
    reported = [{"name": "images_per_second", "value": 7.0}]
    own = {
        "reports": [{"name": "Cases.ok", "wall_time": 1.5, "metrics": reported, "extras": []}],
        "series": [series("Cases.ok")],
    }
    record = extract(perfrun_summary(metrics=reported, own=own))
    figure = record.metrics["images_per_second"]
    assert (figure.stated_unit, figure.stated_direction) == ("images/s", "higher")


def test_further_reports_and_unreported_series_keep_their_names() -> None:
    reports = [
        {
            "name": f"Cases.{name}",
            "wall_time": number,
            "throughput": 10.0 if name == "ok" else 0.0,
            "metrics": [],
            "extras": [],
        }
        for number, name in enumerate(("ok", "second", "second"), 1)
    ]
    own = {"reports": reports, "series": [series(None, "warm")]}
    assert values(extract(perfrun_summary(own=own))) == {
        "wall_time": 1.5,
        "throughput": 10.0,
        "second/wall_time": 2,
        "second#3/wall_time": 3,
        "warm/images_per_second": 7.0,
        "peak_rss_bytes": 1000.0,
    }


def test_copies_of_a_summary_are_the_same_trial_also_after_uploads_were_noted() -> None:
    later = perfrun_summary(own={"uploads": [{"method": "m.f", "error": None}]})
    assert extract(later).uid == extract(perfrun_summary()).uid
    assert extract(perfrun_summary(2)).uid != extract(perfrun_summary()).uid


def test_trials_of_one_run_share_their_context() -> None:
    one, two = perfrun_summary(), {**perfrun_summary(), "execution_id": "other"}
    assert extract(one).context == extract(two).context


def test_the_state_of_the_machine_makes_no_context_of_its_own() -> None:
    # Memory in use differs from run to run: an index would keep a context for each.
    one, two = (
        perfrun_summary(
            own={"machine": {"cpu_model": "x", "at_start": {"memory_used_bytes": used}}}
        )
        for used in (1, 2)
    )
    assert extract(one).context == extract(two).context
    assert extract(one).context["machine"] == {"cpu_model": "x"}


def test_what_a_database_cannot_hold_is_replaced() -> None:
    record = extract(perfrun_summary(name="a\0b\ud800"))
    assert record.subject.method == "a\ufffdb?"


GOOD = json.dumps(perfrun_summary())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\0" * 100, "is not JSON"),
        (GOOD[:300].encode(), "cut short"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b"7", "not an object"),
        (b"{}", "benchmark_result.name is missing"),
        (json.dumps({**perfrun_summary(), "execution_id": None}).encode(), "execution_id"),
        (json.dumps({**perfrun_summary(), "execution_timestamp": "x"}).encode(), "not seconds"),
        (json.dumps({**perfrun_summary(), "execution_timestamp": 1.7e12}).encode(), "not seconds"),
        (json.dumps(perfrun_summary(own={"schema_version": 99})).encode(), "newer perfrun"),
        (b"1" * 5000, "is not JSON"),
    ],
)
def test_a_file_that_is_no_summary_is_said_to_be_none(content: bytes, reason: str) -> None:
    with pytest.raises(BadSummary, match=reason) as caught:
        parse_record(content, PATH)
    assert "\n" not in str(caught.value)


@given(st.integers(0, len(GOOD) - 1))
def test_a_summary_cut_short_anywhere_is_bad_and_never_half_read(length: int) -> None:
    with pytest.raises(BadSummary):
        parse_record(GOOD[:length].encode(), PATH)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PLACES = (
    *("benchmark_result.metrics", "benchmark_result.extras", "benchmark_result.trial_id"),
    *("benchmark_result.wall_time", "benchmark_result", "process_info", "setup_info"),
    *("benchmark_info", "benchmark_info.flags", "benchmark_info.site_package_info"),
    *("perfrun", "perfrun.reports", "perfrun.series", "perfrun.git", "perfrun.outcome"),
    *("perfrun.container", "perfrun.machine", "perfrun.environment", "perfrun.quality"),
    *("perfrun.benchmark_flags", "perfrun.schema_version", "execution_timestamp"),
)


@given(st.sampled_from(PLACES), JSON)
def test_anything_in_any_place_is_a_record_or_a_bad_summary(place: str, value: Any) -> None:
    document = perfrun_summary()
    part: Any = document
    *parents, last = place.split(".")
    for name in parents:
        part = part[name]
    part[last] = value
    said = ""
    try:
        record = extract(document)
    except BadSummary as error:
        said = str(error)
    assert "\n" not in said
    if said:
        return
    texts = (record.execution_id, record.run_id, record.grade, record.label)
    written = (json.dumps(record.context), json.dumps(record.extras))
    for text in (*texts, *vars(record.subject).values(), *written):
        assert "\0" not in text
        text.encode("utf-8")


def test_a_trial_under_a_profiler_is_no_result() -> None:
    assert extract(perfrun_summary(own={"order": {"profile": None}})).metrics
    with pytest.raises(BadSummary, match="under a profiler"):
        extract(perfrun_summary(own={"order": {"profile": "memory"}}))


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ("system_info", [], "system_info is [], not an object"),
        ("perfrun.reports", {}, "perfrun.reports is {}, not a list"),
        ("perfrun.series", [1], "perfrun.series is 1, not a list of objects"),
        ("perfrun.environment", 10**60, "perfrun.environment is a huge number, not an object"),
        ("benchmark_info.flags", "x\ny", "benchmark_info.flags is x y, not an object"),
    ],
)
def test_what_is_of_the_wrong_kind_is_said_in_one_line(place: str, value: Any, reason: str) -> None:
    document = perfrun_summary()
    *parents, last = place.split(".")
    part: Any = document
    for name in parents:
        part = part[name]
    part[last] = value
    with pytest.raises(BadSummary) as caught:
        extract(document)
    assert str(caught.value) == f"is JSON, but no summary: {reason}"


def test_huge_numbers_in_the_machine_are_no_traceback() -> None:
    document = perfrun_summary()
    document["system_info"]["physical_cpu_count"] = 10**400
    document["perfrun"]["machine"]["memory_bytes"] = 10**400
    assert "cores" not in extract(document).subject.hardware


def test_a_pipe_under_the_name_of_a_summary_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "perfzero_summary.json")
    with pytest.raises(BadSummary, match="is no file"):
        read_record(tmp_path / "perfzero_summary.json")
