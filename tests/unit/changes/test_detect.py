"""`perfrun detect`: summaries in, page or document and exit status out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfrun.benchmark import main
from perfrun.changes.detect import parse_since
from perfrun.errors import UsageError
from tests.summaries import summary, write

METHOD = "pkg.cases.Cases.spin"
BEGIN = datetime(2026, 6, 1, 23, 0).timestamp()


def nights(
    factors: Sequence[float],
    *,
    method: str = METHOD,
    seed: int = 1,
    change: Callable[[int], dict[str, Any]] = lambda number: {},
) -> list[dict[str, Any]]:
    """Return one trial a night, with noise of 1 %."""
    noise = np.exp(0.01 * np.random.default_rng(seed).standard_normal(len(factors)))
    return [
        summary(
            method=method,
            wall_time=float(factor * times),
            name=f"{method}-{number:03}",
            run_id=f"run-{number:03}",
            timestamp=BEGIN + number * 86400,
            **change(number),
        )
        for number, (factor, times) in enumerate(zip(factors, noise, strict=True))
    ]


SLOWER = [1.0] * 30 + [1.1] * 10


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "work space"


def document(
    workspace: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> tuple[int, dict[str, Any]]:
    status = main(["detect", f"--workspace={workspace}", "--format=json", *flags])
    return status, json.loads(capsys.readouterr().out)


def test_the_document_has_the_keys_that_were_promised(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def update(number: int) -> dict[str, Any]:
        return {
            "commits": {"models": ("a" if number < 30 else "b") * 40},
            "distributions": {"torch": "2.12" if number < 30 else "2.13"},
        }

    write(workspace / "output", *nights(SLOWER, change=update))
    status, found = document(workspace, capsys, "--metric=wall_time")
    assert status == 1
    assert found["series"] == 1
    (change,) = found["changes"]
    assert change["method"] == METHOD
    assert change["metric"] == "wall_time"
    assert change["before_execution_id"] == f"{METHOD}-029"
    assert change["after_execution_id"] == f"{METHOD}-030"
    assert change["low"] < 1.1 < change["high"]
    assert change["ratio"] == pytest.approx(1.1, abs=0.02)
    assert change["direction"] == "worse"
    assert change["status"] == "candidate"
    assert change["night"] == "2026-07-01"
    assert change["commits_before"] == {"models": "a" * 40}
    assert change["commits_after"] == {"models": "b" * 40}
    assert "torch 2.12 -> 2.13" in change["environment_differences"]
    assert change["machine_suspect"] is False


def test_the_page_groups_changes_by_night_and_commit(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def update(number: int) -> dict[str, Any]:
        return {
            "commits": {"models": ("a" if number < 30 else "b") * 40},
            "metrics": {"exp_per_second": 1 / SLOWER[number]},
        }

    write(workspace / "output", *nights(SLOWER, change=update))
    assert main(["detect", f"--workspace={workspace}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2026-07-01  models aaaaaaaaaa -> bbbbbbbbbb"
    assert [line.split()[:2] for line in lines[1:3]] == [["worse", "0.909"], ["worse", "1.101"]]
    assert lines[-1].startswith("3 series, changes: 2, for the worse: 2")


def test_a_quiet_history_is_exit_status_zero(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights([1.0] * 40))
    assert main(["detect", f"--workspace={workspace}"]) == 0
    assert capsys.readouterr().out == "2 series, no change.\n"


def test_what_got_better_is_no_failure(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(workspace / "output", *nights([1.0] * 30 + [0.9] * 10))
    status, found = document(workspace, capsys)
    assert (status, [c["direction"] for c in found["changes"]]) == (0, ["better"])


def test_changes_before_since_are_not_reported_but_the_nights_before_count(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(SLOWER))
    assert len(document(workspace, capsys, "--since=2026-07-01")[1]["changes"]) == 1
    status, found = document(workspace, capsys, "--since=2026-07-03")
    assert (status, found["series"], found["changes"]) == (0, 2, [])


def test_one_bad_night_is_no_change_and_a_disturbed_week_neither(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factors = [1.0] * 40
    factors[20] = 5.0
    factors[30:37] = [1.5] * 7
    bad = {*range(30, 37)}
    write(workspace / "output", *nights(factors, change=lambda n: {"disturbed": n in bad}))
    assert document(workspace, capsys)[1]["changes"] == []


def test_another_machine_begins_another_series(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def swap(number: int) -> dict[str, Any]:
        return {"system": {"cpu_model": "old" if number < 30 else "new"}}

    write(workspace / "output", *nights([1.0] * 30 + [2.0] * 30, change=swap))
    status, found = document(workspace, capsys)
    assert (status, found["series"], found["changes"]) == (0, 4, [])


def test_what_moves_with_the_canary_is_marked_and_does_not_fail(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canary = nights(SLOWER, method="pkg.canary.Canary.spin", seed=2)
    write(workspace / "output", *nights(SLOWER), *canary)
    only_method = (f"--method={METHOD}", "--metric=wall_time")
    assert document(workspace, capsys, *only_method)[0] == 1
    status, found = document(workspace, capsys, *only_method, "--canary=*.Canary.*")
    assert status == 0
    assert [change["machine_suspect"] for change in found["changes"]] == [True, True]


def test_series_that_cannot_be_looked_at_are_counted(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {"metrics": {"balance_s": -1.0, "colour": 3.0}}
    write(
        workspace / "output",
        *nights([1.0] * 20, change=lambda n: odd),
        *nights([1.0], method="m.C.n"),
    )
    left_out = document(workspace, capsys)[1]["left_out"]
    assert left_out == {"not_positive": 1, "no_direction": 1, "short": 2}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--since=yesterday"], "--since=yesterday: write a date as 2026-11-01, or 14d"),
        (["--format=xml"], "--format=xml: must be table or json"),
        (["--canary=m.C.gone"], "--canary=m.C.gone: no such method in"),
        (["--method=m.C.gone"], "holds no results of that kind"),
        (["--clone=models"], "--clone=models: must be NAME=DIR"),
        (["--no_such_flag"], "perfrun detect: unknown flag --no_such_flag"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_two(
    flags: list[str],
    said: str,
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(workspace / "output", *nights([1.0] * 20))
    monkeypatch.chdir(workspace)
    assert main(["detect", f"--workspace={workspace}", *flags]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_workspace_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["detect", f"--workspace={tmp_path / 'none'}"]) == 2
    assert "is not there; name the workspace" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_since_is_a_date_or_so_many_days() -> None:
    today = date(2026, 11, 21)
    assert parse_since(None, today) is None
    assert parse_since("14d", today) == date(2026, 11, 7)
    assert parse_since("2026-01-02", today) == date(2026, 1, 2)
    with pytest.raises(UsageError):
        parse_since("99999999999d", today)
