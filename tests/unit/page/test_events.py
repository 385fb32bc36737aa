"""Confirmations of nights on the page: each with the change that it is about."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfrun.changes.change_report import ChangeRow, change_row
from perfrun.page.change_list import culprit_shown
from perfrun.page.events import confirmed_by_nights, culprit_of, revisions_of, searches

ROW = ChangeRow(
    method="pkg.cases.Cases.spin",
    metric="wall_time",
    environment="torch 2.9",
    hardware="x",
    before_execution_id="one-before",
    after_execution_id="one-after",
    night="2026-11-20",
    alarm_night="2026-11-21",
    ratio=1.1,
    low=1.08,
    high=1.12,
    p_value=1e-6,
    direction="worse",
    machine_suspect=False,
    detectors=(),
    commits_before={},
    commits_after={},
    environment_differences=None,
)
OTHER = replace(ROW, before_execution_id="two-before", after_execution_id="two-after")
LOSS = replace(ROW, metric="loss_s", after_execution_id="one-later")


def told(workspace: Path, *changes: dict[str, Any]) -> list[tuple[str, int | None]]:
    night = workspace / "nights" / "suite-2026-11-21"
    night.mkdir(parents=True, exist_ok=True)
    (night / "report.json").write_text(json.dumps({"changes": changes}))
    rows = confirmed_by_nights(workspace, [ROW, OTHER, LOSS])[:2]
    return [(row.status, row.confirmation["pairs"] if row.confirmation else None) for row in rows]


def of_night(row: ChangeRow, pairs: int) -> dict[str, Any]:
    return change_row(replace(row, status="confirmed", confirmation={"pairs": pairs}))


def test_a_confirmation_is_shown_with_the_settings_that_it_is_about(tmp_path: Path) -> None:
    one, two = of_night(ROW, 4), of_night(OTHER, 8)
    assert told(tmp_path, two, one) == [("confirmed", 4), ("confirmed", 8)]
    assert told(tmp_path, two) == [("candidate", None), ("confirmed", 8)]
    # The place of a change moves as results come, and old reports do not name the trial.
    moved = {**one, "after_execution_id": "one-later"}
    assert told(tmp_path, two, moved) == [("confirmed", 4), ("confirmed", 8)]
    old = {name: value for name, value in two.items() if name != "after_execution_id"}
    assert told(tmp_path, old) == [("confirmed", 8), ("confirmed", 8)]


def test_a_culprit_of_several_repositories_is_of_the_change_that_brackets_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "bisect" / "1"
    folder.mkdir(parents=True)
    answer = {
        "status": "found",
        "method": ROW.method,
        "metric": ROW.metric,
        "direction": "worse",
        "culprit": {"name": "b2", "repository": "b"},
    }
    # The merged order ends with a commit of the culprit's repository, not with one of the other.
    begin = {
        "event": "begin",
        "revisions": ["b0", "a1", "b1", "b2", "b3"],
        "repositories": {"a": ["a0", "a1"], "b": ["b0", "b1", "b2", "b3"]},
    }
    (folder / "answer.json").write_text(json.dumps(answer))
    (folder / "search.jsonl").write_text(json.dumps(begin) + "\n")
    found = searches(tmp_path)
    row = replace(ROW, commits_before={"a": "a0", "b": "b1"}, commits_after={"a": "a1", "b": "b3"})
    assert culprit_of(row, found) is found[0]
    # The page names the repository where several moved.
    assert culprit_shown(found[0], row).repository == "b"
    still = replace(row, commits_before={"a": "a1", "b": "b1"})
    assert culprit_shown(found[0], still).repository == ""
    later = replace(row, commits_before={"a": "a0", "b": "b2"})
    assert culprit_of(later, found) is None
    assert set(revisions_of(folder)) == {"a0", "a1", "b0", "b1", "b2", "b3"}
