"""Several changes: those that are confirmed, their order, and the rest of a killed call."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perfrun.changes.budget import Budget
from perfrun.changes.change_report import ChangeRow
from perfrun.changes.confirm import confirm_rows
from perfrun.errors import UsageError
from perfrun.locks import FileLock
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption

BUDGET = Budget(max_pairs=8)


def row(method: str, night: str, direction: str = "worse") -> ChangeRow:
    """Return a change whose summaries are gone, so that confirming it fails at once."""
    return ChangeRow(
        method=method,
        metric="wall_time",
        environment="here",
        hardware="this",
        before_execution_id="a",
        after_execution_id="b",
        night=night,
        alarm_night=night,
        ratio=1.1,
        low=1.0,
        high=1.2,
        p_value=0.001,
        direction=direction,
        machine_suspect=False,
        detectors=("score",),
        commits_before={},
        commits_after={},
        environment_differences=None,
        before_summary=f"/gone/{method}/a",
        after_summary=f"/gone/{method}/b",
    )


ROWS = (
    row("old", "2026-01-01"),
    row("good", "2026-03-01", "better"),
    row("new", "2026-02-01"),
)


def reasons(workspace: Path, budget: Budget = BUDGET, deadline: float | None = None) -> list[str]:
    screen = Terminal(sys.stderr, sys.stderr, quiet=True)
    found = confirm_rows(ROWS, workspace, budget, screen, deadline=deadline)
    assert [one.method for one in found] == [one.method for one in ROWS]
    assert {one.status for one in found} == {"candidate"}
    return [str((one.confirmation or {})["reason"]) for one in found]


def test_worse_ones_come_first_then_the_newest_and_the_rest_is_left_out(tmp_path: Path) -> None:
    for most, looked_into in ((1, {"new"}), (2, {"new", "old"}), (3, {"new", "old", "good"})):
        told = reasons(tmp_path, replace(BUDGET, most=most))
        for one, reason in zip(ROWS, told, strict=True):
            expected = "cannot be read" if one.method in looked_into else f"--max_changes={most}"
            assert expected in reason
    assert not (tmp_path / "confirming.json").exists()


def test_after_the_deadline_nothing_is_begun(tmp_path: Path) -> None:
    assert set(reasons(tmp_path, deadline=time.time() - 1)) == {"the deadline came first"}


def test_what_a_killed_call_has_decided_is_not_run_again_for_a_day(tmp_path: Path) -> None:
    key = json.dumps(["new", "wall_time", "worse", "/gone/new/a", "/gone/new/b", 8])
    decided = {key: {"status": "confirmed", "confirmation": {"reason": None}}}
    for age_s, status in ((3600, "confirmed"), (86400, "candidate")):
        document = {"begun": time.time() - age_s, "decided": decided}
        (tmp_path / "confirming.json").write_text(json.dumps(document), encoding="utf-8")
        screen = Terminal(sys.stderr, sys.stderr, quiet=True)
        found = confirm_rows(ROWS, tmp_path, BUDGET, screen)
        assert [one.status for one in found] == ["candidate", "candidate", status]
        assert not (tmp_path / "confirming.json").exists()


@pytest.mark.parametrize("text", ["", "null", '{"begun": "x"}', '{"begun": 1e12, "decided": 3}'])
def test_a_record_that_is_none_is_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "confirming.json").write_text(text, encoding="utf-8")
    assert len(reasons(tmp_path)) == 3


def test_two_never_confirm_in_one_workspace(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".locks" / "confirming") as lock:
        assert lock.try_own()
        with pytest.raises(UsageError, match="another perfrun is confirming"):
            reasons(tmp_path)


def test_a_signal_between_two_changes_ends_both_and_the_same_call_goes_on(tmp_path: Path) -> None:
    screen = Terminal(sys.stderr, sys.stderr, quiet=True)
    with Interruption().installed() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)  # as in the last steps of the run before
        found = confirm_rows(ROWS, tmp_path, BUDGET, screen, interruption=interruption)
    assert {(one.confirmation or {})["reason"] for one in found} == {"interrupted"}
    assert (tmp_path / "confirming.json").exists()
    assert set(reasons(tmp_path)) != {"interrupted"}  # nobody asks the next one to end
