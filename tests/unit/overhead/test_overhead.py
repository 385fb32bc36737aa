"""The parts of overhead/ that compute, and how it starts processes. No assertion is about time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from overhead.checkouts import COMMITS, content_bytes, synthetic_repository
from overhead.processes import NOOP, MeasurementError, Settings, finish, in_turns, perfrun
from overhead.table import (
    Goal,
    Row,
    Rule,
    as_json,
    as_markdown,
    as_text,
    cells,
    figure,
    median_interval,
    ratios,
    spread,
)
from overhead.trials import noop_rows, tensorflow_rows


def test_the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0]).median == 2.5
    assert spread([9.0, 1.0, 2.0]).median == 2.0
    assert spread([9.0, 1.0, 2.0]).low == 1.0
    assert spread([9.0, 1.0, 2.0]).high == 9.0
    with pytest.raises(ValueError, match="no median"):
        spread([])


def test_ratios_go_by_pairs_and_refuse_lists_of_different_length() -> None:
    # The machine was twice as slow in the second round: both sides felt it, the ratio did not.
    assert ratios([1.1, 2.2], [1.0, 2.0]) == (1.1, 1.1)
    with pytest.raises(ValueError, match="longer"):
        ratios([1.0], [1.0, 2.0])


def test_the_interval_of_the_median_has_the_ranks_of_the_binomial_table() -> None:
    # n = 20, p = 1/2: P(X <= 5) = 0.0207, so the 6th to the 15th value cover 95.9 %.
    assert median_interval(range(1, 21)) == (6, 15)
    # n = 6: the whole range covers 96.9 %; n = 8 leaves out none either (99.2 % and 93.0 %).
    assert median_interval(range(1, 7)) == (1, 6)
    assert median_interval(range(1, 9)) == (1, 8)
    assert median_interval(range(1, 10)) == (2, 8)
    assert median_interval([3.0, 1.0]) == (1.0, 3.0)
    assert median_interval([3.0]) == (3.0, 3.0)


def row(
    values: tuple[float, ...], references: tuple[float, ...], rule: Rule, limit: float = 1.0
) -> Row:
    return Row(
        what="x",
        unit="s",
        values=values,
        reference="other",
        references=references,
        goal=Goal(rule=rule, limit=limit),
    )


def test_a_goal_on_the_ratio_is_held_against_the_median_of_the_pairs() -> None:
    pairs = ((1.0, 1.1, 3.0), (1.0, 1.0, 1.0))
    assert row(*pairs, Rule.RATIO_AT_MOST, 1.1).met is True
    assert row(*pairs, Rule.RATIO_AT_MOST, 1.09).met is False


def test_a_goal_on_the_medians_is_held_against_their_ratio_and_not_against_the_pairs() -> None:
    # The medians are 2 and 2; two of the three pairs have a ratio of 2 or more.
    pairs = ((1.0, 2.0, 4.0), (2.0, 1.0, 2.0))
    assert row(*pairs, Rule.RATIO_OF_MEDIANS_AT_MOST, 1.0).met is True
    assert row(*pairs, Rule.RATIO_OF_MEDIANS_AT_MOST, 0.99).met is False
    assert row(*pairs, Rule.RATIO_AT_MOST, 1.99).met is False
    shown = cells(row(*pairs, Rule.RATIO_OF_MEDIANS_AT_MOST, 1.05))
    assert shown[3:] == (
        "2.000 x (0.500..2.000); of the medians 1.000",
        "ratio of the medians <= 1.05",
        "yes",
    )


def test_a_goal_on_reference_values_is_missed_when_a_single_pair_misses_it() -> None:
    assert row((100.5, 99.5), (100.0, 100.0), Rule.RATIO_WITHIN, 0.01).met is True
    assert row((100.5, 98.5), (100.0, 100.0), Rule.RATIO_WITHIN, 0.01).met is False


def test_not_above_one_allows_for_chance_but_not_for_a_steady_slowdown() -> None:
    ones = (1.0,) * 20
    noise = tuple(0.95 + 0.01 * (number % 11) for number in range(20))
    steady = tuple(1.01 + 0.001 * (number % 5) for number in range(20))
    assert row(noise, ones, Rule.RATIO_NOT_ABOVE_ONE).met is True
    assert row(steady, ones, Rule.RATIO_NOT_ABOVE_ONE).met is False


def test_goals_on_values_are_about_the_median_or_every_value() -> None:
    assert row((0.3, 0.3, 0.9), (), Rule.VALUE_AT_MOST, 0.4).met is True
    assert row((0.3, 0.3, 0.9), (), Rule.EVERY_VALUE_AT_MOST, 0.4).met is False
    assert row((19.0, 21.0, 22.0), (), Rule.VALUE_AT_LEAST, 20).met is True
    assert row((19.0, 19.5, 22.0), (), Rule.VALUE_AT_LEAST, 20).met is False


def test_a_row_without_a_goal_or_without_values_is_neither_met_nor_missed() -> None:
    assert Row(what="x", unit="s", values=(1.0,)).met is None
    skipped = Row(what="x", unit="s", goal=Goal(rule=Rule.VALUE_AT_MOST), skipped="no interpreter")
    assert skipped.met is None
    assert cells(skipped) == ("x", "skipped: no interpreter", "", "", "<= 1 s", "-")


def test_a_row_is_shown_with_medians_ranges_and_its_verdict() -> None:
    shown = cells(row((2.0, 4.0, 3.0), (1.0, 2.0, 2.0), Rule.RATIO_AT_MOST, 1.08))
    assert shown == (
        "x",
        "3.000 s (2.000..4.000)",
        "other: 2.000 s (1.000..2.000)",
        "2.000 x (1.500..2.000)",
        "ratio <= 1.08",
        "no",
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.000"),
        (0.00871, "0.0087"),
        (0.1234, "0.123"),
        (12.345, "12.35"),
        (522.46, "522.5"),
        (12345.6, "12346"),
        (-3.0, "-3.000"),
    ],
)
def test_figures_have_no_exponent(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_the_columns_of_the_text_are_aligned_and_a_skipped_reason_widens_none() -> None:
    rows = [
        row((1.0,), (2.0,), Rule.RATIO_AT_MOST),
        Row(what="y" * 30, unit="s", skipped="because " * 20),
    ]
    lines = as_text(rows, {"cores": 2}).splitlines()
    assert lines[0].index("perfrun") == lines[2].index("1.000 s") == 32
    assert lines[0].index("goal") == lines[2].index("ratio <= 1")
    assert len(lines[1]) < 130
    assert lines[-1] == "cores: 2"


def test_markdown_has_as_many_cells_in_each_line() -> None:
    text = as_markdown([row((1.0,), (2.0,), Rule.RATIO_AT_MOST)], {"cores": 2})
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {7}


def test_json_keeps_the_raw_values_beside_what_was_derived() -> None:
    document = json.loads(as_json([row((2.0, 3.0), (1.0, 2.0), Rule.RATIO_AT_MOST)], {"cores": 2}))
    (found,) = document["rows"]
    assert found["values"] == [2.0, 3.0]
    assert found["ratios"] == [2.0, 1.5]
    assert found["median_ratio"] == 1.75
    assert found["met"] is False
    assert document["cores"] == 2


def test_measures_are_taken_in_turns_and_the_warm_up_is_thrown_away() -> None:
    calls: list[str] = []

    def measure(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    taken = in_turns(2, lambda: measure("a"), lambda: measure("b"))
    assert calls == ["a", "b"] * 3
    assert taken == ((3.0, 5.0), (4.0, 6.0))


def test_a_process_that_fails_makes_the_measurement_void() -> None:
    with pytest.raises(MeasurementError, match="exit status 3"):
        finish(["sh", "-c", "exit 3"])
    assert finish(["sh", "-c", "echo said; exit 3"], allowed=(3,)).stdout == "said\n"


def test_every_process_keeps_byte_code_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    said = finish([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"])
    assert said.stdout == "False\n"
    # The worker, too: it compiles the benchmark's module beside its file.
    (tmp_path / "own.py").write_text(
        "from perfrun import Benchmark\n"
        "class Own(Benchmark):\n"
        "    def method(self):\n"
        "        self.report_benchmark(wall_time=1.0)\n"
    )
    an_hour_ago = time.time() - 3600  # of a file that has just changed, it keeps none
    os.utime(tmp_path / "own.py", (an_hour_ago, an_hour_ago))
    perfrun(tmp_path / "workspace", ["own.Own.method"], f"--python_path={tmp_path}")
    assert list((tmp_path / "__pycache__").glob("own.*.pyc"))


@pytest.mark.slow
def test_start_up_is_held_against_the_start_of_the_same_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overhead.trials.STARTS_PER_ROUND", 1)
    monkeypatch.setattr("overhead.trials.MANY", 2)
    monkeypatch.setattr("overhead.trials.DIFFERENT", (NOOP, "noops.Noops.noop_1"))
    settings = Settings(scratch=tmp_path, rounds=1, tensorflow_python=None, pin=None)
    rows = noop_rows(settings)
    goals = {row.what: cells(row)[4] for row in rows}
    assert goals == {
        "perfrun --version, whole process": "ratio <= 3",
        "perfrun --help, whole process": "ratio <= 3",
        "no-op method without a framework, whole process": "ratio <= 12",
        "each further no-op method": "ratio <= 3.5",
        "statistics of repeated trials, once a run": "",
    }
    assert {row.reference for row in rows[:4]} == {"python -c pass"}
    assert {row.references for row in rows[:4]} == {rows[0].references}
    assert all(len(row.pair_ratios) == 1 for row in rows[:4])
    (skipped,) = tensorflow_rows(settings)
    assert cells(skipped)[4] == "ratio of the medians <= 1.05"


def test_sizes_count_a_file_with_two_names_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one").write_bytes(b"x" * 1000)
    os.link(tmp_path / "deep" / "one", tmp_path / "two")
    (tmp_path / "three").write_bytes(b"x" * 24)
    assert content_bytes(tmp_path) == 1024


def test_the_made_up_repository_is_the_same_every_time(tmp_path: Path) -> None:
    pins = [synthetic_repository(tmp_path / name) for name in ("a.git", "b c.git")]
    assert pins[0].git_hash == pins[1].git_hash
    count = subprocess.run(
        ["git", "-C", str(pins[0].repository), "rev-list", "--count", "main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(count.stdout) == COMMITS
