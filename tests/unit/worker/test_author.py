"""The author API: what `report_benchmark` writes, under which name, and what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from perfrun import Benchmark
from perfrun.worker.author import PREFIX_VARIABLE
from perfrun.worker.test_log import decode_entries


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that reports go to, as under a harness."""
    folder = tmp_path / 'a "folder" with\nodd name'
    folder.mkdir()
    monkeypatch.setenv(PREFIX_VARIABLE, str(folder / "proto_"))
    return folder


def only(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    (entry,) = decode_entries(path.read_bytes())
    return entry


class Simple(Benchmark):
    def plain(self) -> None:
        self.report_benchmark(wall_time=1.5, iters=10)

    def by_helper(self) -> None:
        self._deep(3)

    def _deep(self, more: int) -> None:
        if more:
            self._deep(more - 1)
        else:
            self.report_benchmark(wall_time=2.0)

    def by_free_function(self) -> None:
        report_for(self)

    def by_another_benchmark(self) -> None:
        Helper().help()

    def in_a_comprehension(self) -> None:
        _ = [self.report_benchmark(wall_time=n) for n in (1.0, 2.0)]  # type: ignore[func-returns-value]

    def named(self, name: str) -> None:
        self.report_benchmark(name=name)


class Helper(Benchmark):
    def help(self) -> None:
        self.report_benchmark()


class Runner:
    """A `self` on the stack that is not a benchmark, as a harness has."""

    def __init__(self, benchmark: Simple) -> None:
        self.benchmark = benchmark

    def run(self) -> None:
        self.benchmark.by_helper()


def report_for(benchmark: Benchmark) -> None:
    benchmark.report_benchmark(wall_time=3.0)


def test_the_constructor_is_perfzeros() -> None:
    made = Benchmark(output_dir="/o", root_data_dir="/d", tpu=None, batch_size=8)
    assert (made.output_dir, made.root_data_dir, made.tpu) == ("/o", "/d", None)
    assert made.constructor_args == {"batch_size": 8}


def test_without_arguments_the_output_folder_is_tmp() -> None:
    assert Benchmark().output_dir == "/tmp"
    assert Benchmark().constructor_args == {}


def test_a_report_is_named_after_class_and_method(reports: Path) -> None:
    Simple().plain()
    assert [path.name for path in reports.iterdir()] == ["proto_Simple.plain"]
    assert only(reports)["name"] == "Simple.plain"
    assert only(reports)["wall_time"] == 1.5
    assert only(reports)["iters"] == 10


def test_the_outermost_method_names_the_report_when_a_helper_makes_it(reports: Path) -> None:
    Runner(Simple()).run()
    assert only(reports)["name"] == "Simple.by_helper"


def test_a_function_that_reports_for_a_benchmark_takes_the_methods_name(reports: Path) -> None:
    Simple().by_free_function()
    assert only(reports)["name"] == "Simple.by_free_function"


def test_a_benchmark_used_by_another_reports_under_the_outer_method(reports: Path) -> None:
    Simple().by_another_benchmark()
    assert only(reports)["name"] == "Helper.by_another_benchmark"


def test_a_report_from_outside_any_method_has_a_name_too(reports: Path) -> None:
    Simple().report_benchmark()
    assert only(reports)["name"] == "Simple.report_benchmark"


def test_a_given_name_replaces_the_methods_name(reports: Path) -> None:
    Simple().named("größe/2")
    assert [path.name for path in reports.iterdir()] == ["proto_Simple.größe__2"]
    assert only(reports)["name"] == "Simple.größe/2"


def test_a_name_longer_than_a_files_name_can_be_is_kept_whole(reports: Path) -> None:
    name = "\N{SNOWMAN}" * 300
    Simple().named(name)
    assert only(reports)["name"] == f"Simple.{name}"


def test_a_second_report_under_perfzeros_contract_overwrites_nothing(reports: Path) -> None:
    for wall_time in (1.0, 2.0, 3.0):
        Simple().report_benchmark(wall_time=wall_time, name="m")
    written = {p.name: decode_entries(p.read_bytes())[0]["wall_time"] for p in reports.iterdir()}
    # PerfZero reads the first name; the others lie beside it.
    assert written == {"proto_Simple.m": 1.0, "proto_2_Simple.m": 2.0, "proto_3_Simple.m": 3.0}


def test_a_report_inside_a_comprehension_is_the_methods(reports: Path) -> None:
    Simple().in_a_comprehension()
    names = {decode_entries(path.read_bytes())[0]["name"] for path in reports.iterdir()}
    assert names == {"Simple.in_a_comprehension"}


def test_numbers_in_extras_stay_numbers_and_all_else_becomes_text(reports: Path) -> None:
    extras = {"i": 3, "f": 0.5, "b": True, "q": Fraction(1, 4), "none": None, "list": [1], 7: "k"}
    Simple().report_benchmark(extras=extras)  # type: ignore[arg-type]
    values = {extra["name"]: extra["value"] for extra in only(reports)["extras"]}
    assert values == {
        "i": 3.0,
        "f": 0.5,
        "b": 1.0,
        "q": 0.25,
        "none": "None",
        "list": "[1]",
        "7": "k",
    }
    assert isinstance(values["b"], float)


def test_a_metric_keeps_its_bounds_and_none_is_no_bound(reports: Path) -> None:
    metrics = [
        {"name": "a", "value": 1, "min_value": 0, "max_value": None},
        {"name": "b", "value": math.nan, "max_value": math.inf},
    ]
    Simple().report_benchmark(metrics=metrics)
    first, second = only(reports)["metrics"]
    assert first == {"name": "a", "value": 1.0, "min_value": 0.0}
    assert math.isnan(second["value"])
    assert second["max_value"] == math.inf


@pytest.mark.parametrize(
    "arguments",
    [
        {"extras": ["a"]},
        {"extras": "a"},
        {"metrics": {"name": "a", "value": 1}},
        {"metrics": "ab"},
        {"metrics": ["a"]},
        {"metrics": [{"name": "a"}]},
        {"metrics": [{"value": 1}]},
        {"metrics": [{"name": "a", "value": None}]},
        {"metrics": [{"name": "a", "value": "0.5"}]},
        {"metrics": [{"name": "a", "value": 1, "min_value": "low"}]},
        {"wall_time": "1.5"},
        {"wall_time": [1.5]},
        {"iters": "10"},
        {"throughput": {}},
    ],
    ids=str,
)
def test_what_is_not_a_report_is_a_type_error_and_writes_nothing(
    arguments: dict[str, Any], reports: Path
) -> None:
    with pytest.raises(TypeError):
        Simple().report_benchmark(**arguments)
    assert list(reports.iterdir()) == []


def test_a_full_folder_is_an_error_the_benchmark_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX_VARIABLE, str(tmp_path / "missing" / "proto_"))
    with pytest.raises(FileNotFoundError):
        Simple().plain()


def test_without_a_harness_the_report_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Simple().plain()
    assert capsys.readouterr().out == "Simple.plain 1.5 None None\n"
