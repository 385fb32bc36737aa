"""The loop and the table of `perfrun selftest`, apart from the workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perfrun.errors import UsageError
from perfrun.reports.table import plain_text
from perfrun.selftest.command import (
    ATTEMPTS,
    judged,
    selftest_command,
    selftest_document,
    selftest_table,
    verdicts_line,
)
from perfrun.selftest.reference import Documents, ReferenceCheck, ReferenceRow
from tests.unit.reports.test_layout import assert_whole


def row(what: str, error: float) -> ReferenceRow:
    is_ok = abs(error) <= 0.1
    return ReferenceRow(
        what=what,
        truth=1.0,
        measured=1 + error,
        unit="s",
        source="a test",
        error=error,
        allowed=(-0.1, 0.1),
        verdict="ok" if is_ok else "off",
        reason=None if is_ok else "off by much",
    )


def scripted(what: str, *errors: float) -> ReferenceCheck:
    """Make a check whose attempts have these errors."""
    left = iter(errors)
    passed: dict[str, Any] = {"status": "passed"}
    assert passed
    return ReferenceCheck(
        what=what,
        workloads=(f"workload of {what}",),
        judge=lambda check, documents: row(check.what, next(left)),
        deaths=True,
    )


def attempt(
    *wanted: ReferenceCheck,
) -> tuple[tuple[ReferenceRow, ...], list[Sequence[str]], list[str]]:
    asked: list[Sequence[str]] = []
    notes: list[str] = []

    def run_workloads(names: Sequence[str]) -> Documents:
        asked.append(names)
        return {}

    return judged(wanted, run_workloads, notes.append), asked, notes


def test_when_nothing_is_off_the_workloads_run_once() -> None:
    rows, asked, notes = attempt(scripted("one", 0.01), scripted("two", -0.05))
    assert [found.verdict for found in rows] == ["ok", "ok"]
    assert asked == [("workload of one", "workload of two")]
    assert notes == []


def test_what_is_off_runs_again_alone_and_may_be_ok_then() -> None:
    rows, asked, notes = attempt(scripted("one", 0.01), scripted("two", 0.5, 0.02))
    assert [found.verdict for found in rows] == ["ok", "ok"]
    assert asked[1:] == [("workload of two",)]
    assert len(notes) == 1
    assert "two" in notes[0]


def test_what_stays_off_is_off_with_its_best_attempt() -> None:
    rows, asked, _ = attempt(scripted("one", 0.5, 0.3, 0.4))
    assert rows[0].verdict == "off"
    assert rows[0].error == 0.3
    assert len(asked) == ATTEMPTS


def test_the_table_has_reference_measured_error_limits_and_verdict() -> None:
    missing = ReferenceRow(
        what="three",
        truth=None,
        measured=None,
        unit="",
        source="",
        verdict="skipped",
        reason="no such thing here",
    )
    size = ReferenceRow(
        what="four", truth=2.0**28, measured=2.0**28, unit="bytes", source="", error=0.0,
        allowed=(-0.01, 0.01),
    )  # fmt: skip
    rows = [row("one", 0.05), row("two", 0.5), missing, size]
    assert_whole(selftest_table(rows))
    lines = plain_text(selftest_table(rows)).splitlines()
    assert lines[0].split() == ["what", "reference", "measured", "error", "allowed", "verdict"]
    assert "1.05 s" in lines[2]
    assert "+5.00 %" in lines[2]
    assert lines[2].endswith("ok")
    assert lines[3].endswith("off: off by much")
    assert lines[4].endswith("skipped: no such thing here")
    assert "256.00 MiB" in lines[5]
    assert verdicts_line(rows) == "2 ok, 1 off, 1 skipped"


def test_the_document_says_whether_all_is_well() -> None:
    assert selftest_document([row("one", 0.0)])["passed"] is True
    wrong = selftest_document([row("one", 0.0), row("two", 1.0)])
    assert wrong["passed"] is False
    assert wrong["rows"][1]["verdict"] == "off"
    assert wrong["rows"][1]["allowed"] == (-0.1, 0.1)


@pytest.mark.parametrize("word", ["--benchmark_methods=a.B.c", "--resume", "--no_such_flag"])
def test_flags_that_choose_what_is_run_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match=word.partition("=")[0]):
        selftest_command([word])


def test_help_names_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest_command(["--help"]) == 0
    assert "--python" in capsys.readouterr().out
