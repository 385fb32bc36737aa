"""The reports of a night: their content, and that other programs can read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from perfrun.nightly.junit import junit
from perfrun.nightly.markdown import markdown
from perfrun.nightly.openmetrics import openmetrics
from perfrun.nightly.report import MethodReport, NightReport, report_document, report_method
from perfrun.nightly.suite import Bound, MethodSpec, Rules
from perfrun.options.plan import parse_selector
from perfrun.summary.record import SummaryRecord, read_record
from tests.summaries import summary

NAME = "pkg.cases.Cases.spin"
HOSTILE = 'a|b <c> "d" \\ `e` \x00 \ud83d\n\n# f'.replace("\ud83d", "\U0001f600")
KEPT = HOSTILE.replace("\x00", "\ufffd")  # of a metric's name: no database takes a NUL


def readings(folder: Path, *trials: dict[str, Any]) -> list[SummaryRecord]:
    found = []
    for number, values in enumerate(trials):
        path = folder / f"{number}.json"
        path.write_text(json.dumps(summary(**values)))
        found.append(read_record(path))
    return found


def method(
    own: list[SummaryRecord],
    *,
    bounds: tuple[Bound, ...] = (),
    missing: str | None = None,
    trials: int = 3,
    fail_on_bounds: bool = False,
) -> MethodReport:
    spec = MethodSpec(
        selector=parse_selector(NAME),
        rules=Rules(flags=(("benchmark_num_trials", str(trials)),)),
        owner=HOSTILE,
        bounds=bounds,
    )
    return report_method(
        spec,
        NAME,
        own,
        environment="here",
        unit="here",
        missing=missing,
        fail_on_bounds=fail_on_bounds,
        default_owner="team",
    )


def night(*methods: MethodReport, errors: tuple[str, ...] = ()) -> NightReport:
    return NightReport(
        night="models-2026-11-21",
        suite="models",
        owner="team",
        begun=1795255200.0,
        ended=1795258800.25,
        deadline=None,
        commits={"bench": "ab" * 20},
        methods=methods,
        errors=errors,
        notes=("a note",),
    )


def test_the_figure_of_a_night_is_the_median_of_its_quiet_trials(tmp_path: Path) -> None:
    own = readings(
        tmp_path,
        {"wall_time": 1.0},
        {"wall_time": 3.0},
        {"wall_time": 99.0, "disturbed": True},
    )
    found = method(own)
    assert (found.state, found.disturbed, found.trials) == ("ok", 1, 3)
    assert (found.figures[0].median, found.figures[0].trials) == (2.0, 2)


def test_when_most_trials_were_disturbed_all_count(tmp_path: Path) -> None:
    values = ((1.0, False), (3.0, True), (5.0, True))
    own = readings(tmp_path, *({"wall_time": v, "disturbed": d} for v, d in values))
    assert method(own).figures[0].median == 3.0


@pytest.mark.parametrize(
    ("bound", "state", "why"),
    [
        (Bound(metric="wall_time", high=2.0), "ok", None),
        (Bound(metric="wall_time", high=1.9), "out_of_bounds", "wall_time = 2 is above 1.9"),
        (Bound(metric="wall_time", low=2.1), "out_of_bounds", "wall_time = 2 is below 2.1"),
        (Bound(metric="fps", low=1), "out_of_bounds", "fps was not measured"),
    ],
)
def test_bounds_hold_for_the_median_and_a_missing_metric_misses_them(
    tmp_path: Path, bound: Bound, state: str, why: str | None
) -> None:
    found = method(readings(tmp_path, {"wall_time": 2.0}), bounds=(bound,), trials=1)
    assert (found.state, found.why) == (state, why)


def test_a_failed_trial_fails_the_method(tmp_path: Path) -> None:
    found = method(readings(tmp_path, {}, {"status": "timed_out"}), trials=2)
    assert found.state == "failed"
    assert (found.why or "").startswith("1 of 2 trials: timed_out")
    assert found.failures[0].summary == str(tmp_path / "1.json")


@pytest.mark.parametrize(("counts", "state"), [(True, "out_of_bounds"), (False, "ok")])
def test_a_benchmarks_own_bounds_count_where_the_suite_says_so(
    tmp_path: Path, counts: bool, state: str
) -> None:
    own = readings(tmp_path, {"status": "out_of_bounds"})
    assert method(own, trials=1, fail_on_bounds=counts).state == state


def test_what_was_not_run_is_not_well_and_what_is_short_is(tmp_path: Path) -> None:
    short = method(readings(tmp_path, {}), missing="the deadline")
    gap = method([], missing="the deadline")
    assert (short.state, gap.state) == ("short", "not_run")
    assert night(short).is_ok
    assert not night(short, gap).is_ok
    assert not night(errors=("the index",)).is_ok


@pytest.fixture
def all_kinds(tmp_path: Path) -> NightReport:
    own = readings(tmp_path, {"wall_time": 2.0, "metrics": {HOSTILE: 5.0}})
    return night(
        method(own, trials=1),
        replace(method(own, missing="the deadline"), method=f"{NAME}2"),
        replace(method(own, bounds=(Bound(metric=KEPT, high=1),)), method=f"{NAME}3"),
        replace(method([], missing=HOSTILE), environment="there", unit="there"),
        errors=(HOSTILE,),
    )


def test_junit_is_xml_that_counts_right(all_kinds: NightReport) -> None:
    root = ElementTree.fromstring(junit(all_kinds).encode())
    assert root.tag == "testsuites"
    totals = [root.get(key) for key in ("name", "tests", "failures", "errors")]
    assert totals == ["models", "5", "1", "2"]
    for kind, count in (("testcase", 5), ("failure", 1), ("error", 2)):
        assert len(root.findall(f".//{kind}")) == count
    assert [suite.get("name") for suite in root] == ["here", "there", "night"]
    for suite in root:
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
        assert suite.get("errors") == str(len(suite.findall("testcase/error")))
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message", "").endswith("= 5 is above 1")


# The schema of Jenkins (junit-10.xsd): attributes, then children. Properties of a test case are not
# in it; pytest writes them there, too, and Jenkins and GitLab read them.
JUNIT: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp"},
        {"testcase"},
    ),
    "testcase": (
        {"name", "time", "classname"},
        {"properties", "failure", "error", "system-out"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "system-out": (set(), set()),
}


def test_junit_has_the_shape_that_servers_check(all_kinds: NightReport) -> None:
    change = {"tests", "failures", "errors", "name"}
    for element in ElementTree.fromstring(junit(all_kinds)).iter():
        attributes, children = JUNIT[element.tag]
        assert set(element.keys()) <= attributes
        assert {child.tag for child in element} <= children
        if element.tag.startswith("testsuite"):
            assert change <= set(element.keys())
        if "time" in element.keys():  # noqa: SIM118 - an element is no dictionary
            assert re.fullmatch(r"\d+\.\d+", element.get("time", ""))


def test_junit_has_bare_numbers_with_their_units_and_the_time_spent(tmp_path: Path) -> None:
    document = summary(wall_time=0.25, metrics={"latency_mean_s": 0.0123, "images_per_second": 7.0})
    document["perfrun"]["usage"] = {"elapsed_s": 3.5}
    paths = [tmp_path / f"{number}.json" for number in range(2)]
    for path in paths:
        path.write_text(json.dumps(document))
    one = method([read_record(path) for path in paths], trials=2)
    assert one.spent_s == 7.0
    root = ElementTree.fromstring(junit(night(one, replace(one, method=f"{NAME}2"))))
    case = next(root.iter("testcase"))
    assert case.get("time") == "7.000000"
    assert [each.get("time") for each in (root, root[0])] == ["14.000000", "14.000000"]
    found = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert found["latency_mean_s"] == "0.0123"
    assert found["latency_mean_s.unit"] == "s"
    assert found["wall_time"] == "0.25"
    assert float(found["images_per_second"] or "") == 7.0


def test_junit_of_a_sweep_looks_at_each_method_as_often_as_that_of_one_run(
    all_kinds: NightReport,
) -> None:
    looks: list[int] = []

    class Counted(tuple[MethodReport, ...]):
        def __iter__(self) -> Iterator[MethodReport]:
            looks.append(1)
            return super().__iter__()

    one, *_ = all_kinds.methods
    swept = (replace(one, unit=f"e#{at}", setting={"n": str(at)}) for at in range(50))
    root = ElementTree.fromstring(junit(replace(all_kinds, methods=Counted(swept), errors=())))
    assert len(root.findall("testsuite")) == 50
    assert len(looks) < 10


def test_junit_divides_a_name_without_its_password(all_kinds: NightReport) -> None:
    (method, *_) = all_kinds.methods
    named = replace(method, method="m.C.load:https://user:secret@host/x")
    page = junit(replace(all_kinds, methods=(named,)))
    assert "host" in page
    assert "secret" not in page


def test_markdown_holds_hostile_text_in_its_place(all_kinds: NightReport) -> None:
    text = markdown(all_kinds)
    assert text.startswith("# models: 1 out of bounds, 1 not run, 1 error\n")
    assert "\n# f" not in text
    assert "<c>" not in text.replace("\\<c\\>", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 4
    assert {len(row.replace("\\|", "").split("|")) for row in rows} == {11}
    assert "`abababababab`" in text
    assert "- a note" in text


def test_a_night_where_all_is_well_says_so_first(tmp_path: Path) -> None:
    report = night(method(readings(tmp_path, {}), trials=1))
    assert markdown(report).startswith("# models: all well\n")
    assert "looked at" not in markdown(report)


def test_openmetrics_is_read_by_prometheus_own_parser(all_kinds: NightReport) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    text = openmetrics(all_kinds)
    assert text.endswith("# EOF\n")
    families = {f.name: f for f in parser.text_string_to_metric_families(text)}
    medians = families["perfrun_method_median"].samples
    assert {sample.labels["metric"] for sample in medians} == {
        "wall_time",
        "peak_rss_bytes",
        KEPT,
    }
    assert families["perfrun_night_ok"].samples[0].value == 0
    states = families["perfrun_method_state"].samples
    assert sum(sample.value for sample in states) == 4
    ended = families["perfrun_night_ended_timestamp_seconds"]
    assert (ended.unit, ended.samples[0].value) == ("seconds", 1795258800.25)


def test_openmetrics_never_says_one_series_twice(all_kinds: NightReport) -> None:
    lines = openmetrics(all_kinds).splitlines()
    names = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(names) == len(set(names))


def test_the_document_is_json_with_times_that_say_their_zone(all_kinds: NightReport) -> None:
    found = json.loads(json.dumps(report_document(all_kinds), allow_nan=False))
    assert found["ok"] is False
    assert found["methods"][0]["figures"][0]["metric"] == "wall_time"
    assert found["begun"][19] in "+-"
