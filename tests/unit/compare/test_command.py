"""`perfrun compare`: sets in, table or document and exit status out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfrun.benchmark import main
from tests.summaries import summary, trials, write

STEADY = (1.00, 1.01, 0.99, 1.005, 0.995, 1.002)


def slower(factor: float) -> list[float]:
    return [factor * time for time in STEADY]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write(tmp_path / "base", *trials(STEADY, distributions={"torch": "2.12"}))


def test_a_regression_is_a_table_and_exit_status_one(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = write(tmp_path / "new", *trials(slower(1.2), distributions={"torch": "2.13"}))
    assert main(["compare", str(base), str(new)]) == 1
    shown = capsys.readouterr().out
    wall_time = next(line for line in shown.splitlines() if " wall_time " in line)
    assert "1.200" in wall_time
    assert wall_time.endswith("slower")
    assert "Environment: torch 2.12 -> 2.13; nothing else." in shown


def test_the_document_has_the_keys_that_were_promised(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = write(tmp_path / "new", *trials(slower(0.8), distributions={"torch": "2.12"}))
    assert main(["compare", str(base), str(new), "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["metric"]: row for row in document["comparisons"]}
    assert rows["wall_time"]["verdict"] == "faster"
    assert rows["wall_time"]["low"] < 0.8 < rows["wall_time"]["high"]
    assert (rows["wall_time"]["n_base"], rows["wall_time"]["n_new"]) == (6, 6)
    assert rows["peak_rss_bytes"]["verdict"] == "equivalent"
    assert document["environment_differences"] == []


def test_one_trial_a_side_is_a_ratio_without_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, new = write(tmp_path / "a", *trials([1.0])), write(tmp_path / "b", *trials([3.0]))
    assert main(["compare", str(base), str(new), "--format=json"]) == 0
    row = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert (row["ratio"], row["low"], row["high"], row["verdict"]) == (3, None, None, "undecided")


def test_disturbed_and_failed_trials_do_not_count(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = write(
        tmp_path / "new",
        *trials(STEADY, distributions={"torch": "2.12"}),
        *trials([9.0, 9.0], distributions={"torch": "2.12"}, disturbed=True),
        *trials([9.0], distributions={"torch": "2.12"}, status="timed_out"),
    )
    assert main(["compare", str(base), str(new), "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["comparisons"][0]["ratio"] == 1
    assert document["trials"] == {"failed": 1, "disturbed": 2, "left_out": 2}


def test_where_all_trials_were_disturbed_all_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write(tmp_path / "a", *trials(STEADY, disturbed=True))
    assert main(["compare", str(one), str(one)]) == 0
    assert "Disturbed trials: 0 left out; 12 count" in capsys.readouterr().out


def test_one_quiet_trial_among_disturbed_ones_does_not_speak_for_all(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = write(tmp_path / "new", *trials([3 * x for x in STEADY], disturbed=True), *trials([3.0]))
    assert main(["compare", str(base), str(new), "--format=json"]) == 1
    document = json.loads(capsys.readouterr().out)
    row = document["comparisons"][0]
    assert (row["verdict"], row["n_new"]) == ("slower", len(STEADY) + 1)
    assert document["trials"]["left_out"] == 0


def test_other_hardware_is_refused_unless_it_is_asked_for(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = write(tmp_path / "new", *trials(STEADY, system={"cpu_model": "Xeon"}))
    assert main(["compare", str(base), str(new)]) == 2
    said = capsys.readouterr().err
    assert "cpu model AMD EPYC -> Xeon" in said
    assert len(said.splitlines()) == 1
    assert main(["compare", str(base), str(new), "--allow_different=hardware"]) == 0


def test_a_batch_size_forbids_only_methods_that_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = trials(STEADY, method="pkg.cases.Cases.other")
    one = write(tmp_path / "a", *trials(STEADY, benchmark_flags=["--batch_size=8"]), *other)
    two = write(tmp_path / "b", *trials(STEADY, benchmark_flags=["--batch_size=9"]), *other)
    assert main(["compare", str(one), str(two)]) == 2
    assert "batch_size=8 -> batch_size=9" in capsys.readouterr().err
    assert main(["compare", str(one), str(two), "--methods=other$"]) == 0


def test_a_set_of_two_machines_is_no_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = write(tmp_path / "m", summary(), summary(system={"cpu_model": "Xeon"}))
    assert main(["compare", str(mixed), str(mixed)]) == 2
    assert "BASE holds trials of several kinds" in capsys.readouterr().err


def test_methods_of_one_set_only_are_named(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = write(
        tmp_path / "new", *trials(STEADY), summary(method="pkg.cases.Cases.other", name="o")
    )
    assert main(["compare", str(base), str(new)]) == 0
    assert "Only in NEW: pkg.cases.Cases.other." in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nowhere", "nowhere"],
        ["{base}"],
        ["{base}", "{base}", "--allow_different=weather"],
        ["{base}", "{base}", "--min_effect=x"],
        ["{base}", "{base}", "--metrics=("],
        ["{base}", "{base}", "--metrics=nothing"],
        ["{base}", "{base}", "--methods=nothing"],
        ["{base}", "{base}", "--format=xml"],
        ["{base}", "{base}", "--no_such_flag"],
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_status_two(
    base: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["compare", *(word.format(base=base) for word in words)])
    except SystemExit as end:
        code = int(str(end.code))
    captured = capsys.readouterr()
    assert code == 2
    assert not captured.out
    assert len(captured.err.splitlines()) == 1
