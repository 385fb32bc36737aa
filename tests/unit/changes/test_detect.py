"""`perfrun detect`: summaries in, page or document and exit status out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfrun.benchmark import main
from perfrun.changes.change_report import change_row, changes_page
from perfrun.changes.detect import parse_since
from perfrun.errors import UsageError
from tests.summaries import summary, write
from tests.unit.page.test_events import ROW

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
    # One line a method: the other metric that changed is named in it.
    assert lines[1].startswith(f"  worse  wall_time +10 %  (+9.2 % to +11 %)  {METHOD}  seen ")
    assert lines[1].endswith("  (also exp_per_second -9.1 % worse)")
    assert not lines[2].strip().startswith("worse")
    assert lines[-1].startswith("3 series, changes: 2, for the worse: 2")


def test_a_change_between_nights_that_ran_the_same_is_not_the_codes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def same(number: int) -> dict[str, Any]:  # each night in a container with a name of its own
        return {"commits": {"models": "a" * 40}, "system": {"hostname": f"container-{number}"}}

    write(workspace / "output", *nights(SLOWER, change=same))
    (change,) = document(workspace, capsys)[1]["changes"]
    assert change["ran_the_same"] is True
    main(["detect", f"--workspace={workspace}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2026-07-01  no commit changed"
    assert lines[2] == (
        "  environment: hostname container-29 -> container-30; "
        "the night before ran the same commits, image and packages: not the code's"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"commits": {"models": "b" * 40}},
        {"commits": {"models": "a" * 40}, "distributions": {"torch": "2.13"}},
        {"commits": {"models": "a" * 40}, "machine": {"kernel": "6.19"}},
        {"commits": {}},
    ],
)
def test_a_change_with_anything_else_on_record_may_be_the_codes(
    workspace: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any]
) -> None:
    def update(number: int) -> dict[str, Any]:
        return {"commits": {"models": "a" * 40}} if number < 30 else changed

    write(workspace / "output", *nights(SLOWER, change=update))
    found = document(workspace, capsys)[1]["changes"]
    assert [change["ran_the_same"] for change in found] == [False]


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


def test_nothing_judged_is_no_green_result(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights([1.0] * 4), *nights([1.0] * 20, method="m.Canary.n"))
    command = ["detect", f"--workspace={workspace}", f"--method={METHOD}"]
    assert main(command) == 2
    said = capsys.readouterr()
    assert said.err == (
        "perfrun: detect: no series could be judged: 2 series have too few nights (4 of 12; "
        "the first is judged after 8 more)\n"
    )
    assert "4 nights: after 2 more, changes above 31 % would be seen" in said.out
    assert said.out.endswith("No series could be judged; left out: 2 too few nights.\n")
    # A canary that is judged does not stand for the methods that were asked for.
    assert main([*command, "--canary=*.Canary.*"]) == 2
    capsys.readouterr()
    status, found = document(workspace, capsys, f"--method={METHOD}")
    assert (status, found["series"], found["young"][0]["nights"]) == (2, 0, 4)


def test_what_is_not_there_is_answered_with_what_is(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights([1.0] * 20), *nights([1.0], method="m.C.n"))
    for flags, said in (
        (["--method=x.*"], f"; methods in it: m.C.n, {METHOD}"),
        (["--metric=speed"], "; metrics of these methods in it: peak_rss_bytes, wall_time"),
        (["--method=x.*", "--canary=*.spin"], f"; methods in it: m.C.n, {METHOD}"),
    ):
        assert main(["detect", f"--workspace={workspace}", *flags]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    (workspace / "empty").mkdir()
    assert main(["detect", f"--workspace={workspace / 'empty'}"]) == 2
    assert "holds no results of that kind; a run adds some" in capsys.readouterr().err


def test_a_step_that_is_not_sure_yet_is_shown_and_then_called_when_it_was_said(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The noise is fixed, so that each night continues the one before."""
    every = nights([1.0] * 20 + [1.12] * 12, seed=4)
    shown = []
    for count in range(21, len(every) + 1):
        place = workspace / str(count)
        write(place / "output", *every[:count])
        status, found = document(place, capsys)
        if status == 1:
            break
        shown += [(count, one) for one in found["not_yet_sure"] if one["metric"] == "wall_time"]
    called = count
    assert called < len(every)
    assert len(shown) >= 2
    for count, one in shown:
        assert (one["direction"], one["night"], one["nights"]) == (
            "worse",
            "2026-06-21",
            count - 20,
        )
        assert one["ratio"] == pytest.approx(1.12, abs=0.02)
        assert abs(one["more_nights"] - (called - count)) <= 2
    assert main(["detect", f"--workspace={workspace / str(shown[-1][0])}"]) == 0
    text = capsys.readouterr().out.splitlines()[0]
    assert text.startswith(f"Largest shift not yet sure: wall_time of {METHOD} +")
    assert " since 2026-06-21 (worse), " in text
    assert text.endswith(" needed if it goes on")


def test_an_edited_module_begins_a_series_anew_and_a_version_does_not(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edited(number: int) -> dict[str, Any]:
        return {"module_sha256": ("ab" if number < 20 else "c3") * 32}

    def versions(number: int) -> dict[str, Any]:
        return {**edited(2 * number), "version": "1" if number < 20 else "2"}

    write(workspace / "edited" / "output", *nights([1.0] * 25, change=edited))
    assert main(["detect", f"--workspace={workspace / 'edited'}"]) == 0
    told = "series begins anew on 2026-06-21: module changed (hash ababababab -> c3c3c3c3c3)"
    assert f"{METHOD}: {told}" in capsys.readouterr().out.splitlines()
    assert main(["history", METHOD, f"--workspace={workspace / 'edited'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.index(told) > lines.index("")  # it is said of the later series
    write(workspace / "own" / "output", *nights([1.0] * 25, change=versions))
    status, found = document(workspace / "own", capsys)
    (begun,) = found["begun_anew"]
    assert (begun["before"], begun["after"]) == ("version 1", "version 2")
    assert begun["date"] == "2026-06-21"  # the module changed on 2026-06-11, too
    assert status == 0


def test_series_that_differ_in_a_setting_have_a_line_each() -> None:
    rows = [replace(ROW, settings=f"--batch={size}") for size in (1, 8)]
    said = changes_page(2, {}, rows)
    lines = [line for line in said.split("\n") if "pkg.cases" in line]
    assert ["--batch=1" in lines[0], "--batch=8" in lines[1], len(lines)] == [True, True, 2]
    assert "also" not in said
    assert [change_row(row)["settings"] for row in rows] == ["--batch=1", "--batch=8"]
