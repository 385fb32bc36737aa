"""What a benchmark reports, however often and however odd, is in the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import Finished, World

CLASS = r"""
import numpy_like

class Reports(Benchmark):
    def several(self):
        for number in range(1, 13):
            self.report_benchmark(wall_time=float(number), iters=number)

    def named(self):
        self.report_benchmark(wall_time=1.0, name="other")
        self.report_benchmark(wall_time=2.0, name="with/slash and \N{SNOWMAN}")

    def silent(self):
        pass

    async def a_coroutine(self):
        self.report_benchmark(wall_time=1.0)

    def a_generator(self):
        yield self.report_benchmark(wall_time=1.0)

    def nothing_given(self):
        self.report_benchmark()

    def not_finite(self):
        nan, inf = float("nan"), float("inf")
        self.report_benchmark(
            wall_time=nan,
            cpu_time=inf,
            extras={"nan": nan, "text": "NaN"},
            metrics=[{"name": "up", "value": inf}, {"name": "down", "value": -inf}],
        )

    def nan_with_a_bound(self):
        self.report_benchmark(
            wall_time=1.0, metrics=[{"name": "loss", "value": float("nan"), "max_value": 1}]
        )

    def odd_extras(self):
        self.report_benchmark(
            wall_time=3,
            extras={"yes": True, "none": None, "list": [1], "caf\xe9": "\N{SNOWMAN}", 7: 8,
                    "array": numpy_like.Scalar(2.5)},
        )

    def all_fields(self):
        self._helper()

    def _helper(self):
        self.report_benchmark(iters=10, cpu_time=0.5, wall_time=1.5, throughput=20.0)

    def out_of_bounds(self):
        self.report_benchmark(wall_time=1.0, metrics=[
            {"name": "low", "value": 0.8, "min_value": 0.9},
            {"name": "edge", "value": 0.9, "min_value": 0.9, "max_value": 0.9},
        ])

    def a_later_report_out_of_bounds(self):
        self.report_benchmark(wall_time=1.0)
        self.report_benchmark(metrics=[{"name": "high", "value": 3, "max_value": 2}])

    def wrong_metrics(self):
        self.report_benchmark(wall_time=1.0, metrics=[{"value": 1}])

    def odd_arguments(self):
        self.report_benchmark(wall_time=self.constructor_args["n"], extras={"tpu": self.tpu,
            "data": self.root_data_dir, "out": self.output_dir})
"""
SCALAR = """
import numbers

class Scalar:
    def __init__(self, value): self.value = value
    def __float__(self): return self.value
    def __str__(self): return "a scalar"

numbers.Real.register(Scalar)
"""
NAMES = [
    *("several", "named", "silent", "nothing_given", "not_finite", "nan_with_a_bound"),
    *("odd_extras", "all_fields", "out_of_bounds", "a_later_report_out_of_bounds"),
    *("wrong_metrics", "odd_arguments", "a_coroutine", "a_generator"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run of all the methods above."""
    world = World(tmp_path_factory.mktemp("reports"))
    world.write(CLASS)
    (world.folder / "code" / "numpy_like.py").write_text(SCALAR)
    return world.run(
        "--format=json",
        "--root_data_dir=/no data",
        '--perfzero_constructor_args={"n": 4}',
        methods=",".join(f"pkg.cases.Reports.{name}" for name in NAMES),
        HOME="/dev/null",
    )


@pytest.fixture
def summary(done: Finished, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The summary of the method that the test names."""
    # `summaries` parses strictly: a bare NaN or Infinity in any file is an error here.
    document: dict[str, Any] = done.summaries()[NAMES.index(request.param)]
    return document


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("summary", [name], indirect=True)


def status(summary: dict[str, Any]) -> str:
    return str(summary["perfrun"]["outcome"]["status"])


def extras(summary: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e["value"] for e in summary["benchmark_result"]["extras"]}


def test_a_run_with_one_wrong_call_of_report_benchmark_fails_for_that_alone(
    done: Finished,
) -> None:
    assert done.code == 1
    failed = ("wrong_metrics", "a_coroutine", "a_generator")
    expected = ["failed" if name in failed else "passed" for name in NAMES]
    for name in ("nan_with_a_bound", "out_of_bounds", "a_later_report_out_of_bounds"):
        expected[NAMES.index(name)] = "out_of_bounds"
    assert dict(zip(NAMES, done.statuses, strict=True)) == dict(zip(NAMES, expected, strict=True))


@of("several")
def test_the_first_of_several_reports_is_the_result_and_all_are_kept_in_order(
    summary: dict[str, Any],
) -> None:
    assert summary["benchmark_result"]["wall_time"] == 1.0
    reports = summary["perfrun"]["reports"]
    assert [report["wall_time"] for report in reports] == [float(n) for n in range(1, 13)]
    assert [report["iters"] for report in reports] == list(range(1, 13))


@of("named")
def test_a_report_under_another_name_counts(summary: dict[str, Any]) -> None:
    result = summary["benchmark_result"]
    assert (result["name"], result["wall_time"]) == ("pkg.cases.Reports.named", 1.0)
    names = [report["name"] for report in summary["perfrun"]["reports"]]
    assert names == ["Reports.other", "Reports.with/slash and \N{SNOWMAN}"]


@of("silent")
def test_a_method_without_a_report_has_a_summary_with_wall_time_minus_one(
    summary: dict[str, Any],
) -> None:
    result = summary["benchmark_result"]
    assert (result["wall_time"], result["succeeded"]) == (-1, True)
    assert summary["benchmark_info"]["has_exception"] is False
    assert summary["perfrun"]["reports"] == []
    assert "the method made no report; wall_time is -1" in summary["perfrun"]["notes"]


@pytest.mark.parametrize("summary", ["a_coroutine", "a_generator"], indirect=True)
def test_a_method_of_which_nothing_ran_has_not_passed(summary: dict[str, Any]) -> None:
    assert "nothing of it has run" in summary["perfrun"]["outcome"]["reason"]
    assert summary["perfrun"]["reports"] == []


@of("nothing_given")
def test_a_wall_time_that_was_not_given_is_zero_as_in_perfzero(summary: dict[str, Any]) -> None:
    result = summary["benchmark_result"]
    assert (result["wall_time"], result["succeeded"]) == (0.0, True)
    assert isinstance(result["wall_time"], float)


@of("not_finite")
def test_nan_and_infinity_become_perfzeros_strings(summary: dict[str, Any]) -> None:
    result = summary["benchmark_result"]
    assert result["wall_time"] == "NaN"
    assert [m["value"] for m in result["metrics"]] == ["Infinity", "-Infinity"]
    assert extras(summary) == {"nan": "NaN", "text": "NaN"}
    assert summary["perfrun"]["reports"][0]["cpu_time"] == "Infinity"


@of("nan_with_a_bound")
def test_a_nan_meets_no_bound(summary: dict[str, Any]) -> None:
    assert status(summary) == "out_of_bounds"
    assert summary["benchmark_result"]["succeeded"] is False
    assert summary["benchmark_result"]["wall_time"] == 1.0


@of("odd_extras")
def test_extras_are_numbers_or_text_as_tensorflow_makes_them(summary: dict[str, Any]) -> None:
    expected = {"yes": 1.0, "none": "None", "list": "[1]", "caf\xe9": "\N{SNOWMAN}", "7": 8.0}
    assert extras(summary) == {**expected, "array": 2.5}
    assert isinstance(summary["benchmark_result"]["wall_time"], float)


@of("all_fields")
def test_what_perfzero_drops_is_kept_under_perfrun(summary: dict[str, Any]) -> None:
    [report] = summary["perfrun"]["reports"]
    kept = (report["iters"], report["cpu_time"], report["wall_time"], report["throughput"])
    assert kept == (10, 0.5, 1.5, 20.0)
    assert report["name"] == "Reports.all_fields"  # a helper reports for the method


@of("out_of_bounds")
def test_bounds_are_inclusive_and_a_miss_is_named(summary: dict[str, Any]) -> None:
    assert summary["perfrun"]["outcome"]["reason"] == "low = 0.8 is not in [0.9, inf]"
    assert summary["benchmark_result"]["succeeded"] is False
    assert summary["benchmark_info"]["has_exception"] is False
    assert summary["benchmark_result"]["metrics"][0]["value"] == 0.8
    [report] = summary["perfrun"]["reports"]
    assert [metric["in_bounds"] for metric in report["metrics"]] == [False, True]


@of("a_later_report_out_of_bounds")
def test_the_bounds_of_every_report_count(summary: dict[str, Any]) -> None:
    assert summary["benchmark_result"]["succeeded"] is False
    assert "high = 3" in summary["perfrun"]["outcome"]["reason"]


@of("odd_arguments")
def test_the_constructor_gets_perfzeros_keywords_and_the_given_ones(
    summary: dict[str, Any], done: Finished
) -> None:
    folder = Path(done.results[NAMES.index("odd_arguments")]["summary"]).parent
    assert summary["benchmark_result"]["wall_time"] == 4.0
    assert extras(summary) == {"tpu": "None", "data": "/no data", "out": str(folder)}


def test_out_of_bounds_is_a_failure_only_when_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    metric = "metrics=[{'name': 'a', 'value': 1, 'min_value': 2}]"
    world.write(f"class B(Benchmark):\n    def low(self): self.report_benchmark({metric})")
    assert world.run(methods="pkg.cases.B.low").code == 0
    assert world.run("--fail_on_bounds", methods="pkg.cases.B.low").code == 1
