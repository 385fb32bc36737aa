"""A night with suspects, whose pairs get no time or cannot be run: nothing is lost."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from perfrun.changes.budget import parse_night_budget
from perfrun.changes.suspects import read_state, write_state
from perfrun.nightly.night_state import Nights
from perfrun.nightly.report import MethodReport, NightReport
from perfrun.nightly.suite import EnvironmentSpec, Suite
from perfrun.nightly.suite_changes import recent_changes, with_changes
from perfrun.nightly.suite_screening import _owners
from perfrun.options.store_address import parse_address
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from perfrun.store.index import open_store
from tests.unit.nightly.test_suite_changes import (
    BEGIN,
    CANARY,
    METHOD,
    found,
    history,
    method,
    report,
)

FIRST = date(2026, 6, 1)


def night(
    workspace: Path,
    number: int,
    told: Mapping[int, NightReport] | None = None,
    *,
    is_late: bool = True,
    methods: tuple[MethodReport, ...] | None = None,
) -> NightReport:
    """Return the report of a night with suspects, whose deadline is over when pairs are due."""
    suite = Suite(
        path=workspace / "s.toml",
        name="n",
        digest="d",
        workspace=workspace,
        methods=(),
        environments=(EnvironmentSpec(name="here"),),
        confirm_budget=parse_night_budget("30m", "x"),
    )
    earlier = [
        (
            replace(Nights(workspace).begin(suite, BEGIN), night=f"n-{at}", told=True),
            dict[str, Any](changes=[asdict(change) for change in one.changes]),
        )
        for at, one in sorted((told or {}).items(), reverse=True)
    ]
    begun = BEGIN + number * 86400
    deadline = begun if is_late else None
    begins = report([]) if methods is None else replace(report([]), methods=methods)
    made, is_told = with_changes(
        suite,
        replace(begins, night=f"n-{number}", begun=begun, deadline=deadline),
        earlier,
        (),
        Terminal(sys.stdout, sys.stderr, quiet=True),
        Interruption(),
    )
    assert (made.errors, is_told) == ((), True)
    return made


def slowed(workspace: Path) -> int:
    """Write a history until the night of its alarm, which is returned, and the rest elsewhere."""
    history(workspace / "whole", METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    (change,) = found(workspace / "whole", 30, method(METHOD))
    alarm = (date.fromisoformat(change.alarm_night) - FIRST).days
    for number in range(alarm + 1):
        add(workspace, number)
    return alarm


def add(workspace: Path, number: int) -> None:
    (trial,) = workspace.glob(f"whole/output/*-{number:03}*")
    shutil.copytree(trial, workspace / "output" / trial.name)


def test_a_regression_is_told_when_the_deadline_leaves_no_time_for_its_pairs(
    tmp_path: Path,
) -> None:
    alarm = slowed(tmp_path)
    (change,) = night(tmp_path, alarm).changes
    assert (change.status, change.direction, change.is_new) == ("candidate", "worse", True)
    assert change.confirmation is not None
    assert change.confirmation["reason"] == "the deadline came first"
    (suspect,) = read_state(tmp_path).open
    assert suspect.seen_day == FIRST.toordinal() + alarm


def test_what_a_killed_night_has_proved_is_confirmed_and_not_told_twice(tmp_path: Path) -> None:
    alarm = slowed(tmp_path)
    first = night(tmp_path, alarm)
    state = read_state(tmp_path)
    (suspect,) = state.open
    proven = replace(suspect, alpha=1e-4, pairs=(0.18,) * 30)
    assert proven.is_proven
    write_state(tmp_path, replace(state, open=(proven,)))
    add(tmp_path, alarm + 1)
    (change,) = night(tmp_path, alarm + 1, {alarm: first}).changes
    assert (change.status, change.is_new) == ("confirmed", False)
    after = read_state(tmp_path)
    assert (after.open, [one.told_in for one in after.confirmed]) == ((), [f"n-{alarm + 1}"])


def test_what_another_suite_of_the_workspace_suspects_is_left_to_it(tmp_path: Path) -> None:
    alarm = slowed(tmp_path)
    night(tmp_path, alarm)
    state = read_state(tmp_path)
    (own,) = state.open
    series = ("other.mod.Class.one", *own.series[1:])
    others = (
        replace(own, series=series, alpha=1e-4, pairs=(0.18,) * 30),
        replace(own, series=(*series[:-1], "x"), alpha=1e-4, told_day=own.seen_day, told_in="o"),
    )
    state = replace(state, open=(own, others[0]), confirmed=(others[1],), spent_s={"o": 7.0})
    write_state(tmp_path, state)
    add(tmp_path, alarm + 1)
    assert all("Class.one" not in text for text in night(tmp_path, alarm + 1).notes)
    after = read_state(tmp_path)
    assert (after.open[1:], after.confirmed) == (others[:1], others[1:])
    assert after.spent_s == {"o": 7.0, f"n-{alarm + 1}": 0.0}


def test_what_prevented_the_pairs_of_a_night_is_tried_again_in_the_next_one(tmp_path: Path) -> None:
    alarm = slowed(tmp_path)
    first = night(tmp_path, alarm)
    state = read_state(tmp_path)
    (own,) = state.open
    went_on = replace(own, alpha=1e-4, pairs=(0.18,) * 3, why_not="the server is down")
    write_state(tmp_path, replace(state, open=(went_on,)))
    add(tmp_path, alarm + 1)
    after = night(tmp_path, alarm + 1, {alarm: first}, is_late=False)
    (note,) = (text for text in after.notes if "no pairs" in text)
    assert "was imported, not run in this workspace" in note
    (kept,) = read_state(tmp_path).open
    assert kept.pairs == went_on.pairs


def test_series_that_differ_in_a_setting_only_are_not_mixed_up(tmp_path: Path) -> None:
    alarm = slowed(tmp_path)
    night(tmp_path, alarm)
    state = read_state(tmp_path)
    (own,) = state.open
    other = replace(own, series=(*own.series[:-1], "x"), alpha=1e-4)
    told = replace(other, told_day=own.seen_day, told_in="o")
    write_state(tmp_path, replace(state, open=(), confirmed=(told,)))
    changes = night(tmp_path, alarm).changes
    assert [(change.status, change.is_new) for change in changes] == [
        ("confirmed", False),
        ("candidate", True),
    ]
    assert changes[1].confirmation is not None


def test_what_moved_with_a_canary_is_told_as_such_and_gets_no_pairs(tmp_path: Path) -> None:
    for seed, name in enumerate((METHOD, CANARY), start=1):
        history(tmp_path / "whole", name, [1.0] * 30 + [1.2] * 15, seed=seed)
    methods = (method(METHOD), method(CANARY, canary=True))
    change = next(one for one in found(tmp_path / "whole", 30, *methods) if one.method == METHOD)
    alarm = (date.fromisoformat(change.alarm_night) - FIRST).days
    for number in range(alarm + 1):
        for trial in tmp_path.glob(f"whole/output/*-{number:03}*"):
            shutil.copytree(trial, tmp_path / "output" / trial.name)
    (told,) = (
        one for one in night(tmp_path, alarm, methods=methods).changes if one.method == METHOD
    )
    assert (told.machine_suspect, told.is_new) == (True, True)
    assert told.confirmation is None


def test_a_change_is_of_the_series_that_has_its_trial(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    history(tmp_path, CANARY, [1.0] * 45, seed=2)
    methods = [method(METHOD), method(CANARY)]
    with open_store(parse_address(None, tmp_path)) as store:
        store.refresh()
        recent = recent_changes(store, methods, "n-44", BEGIN + 44 * 86400)
    (row,) = (row for row in recent.rows if row.metric == "wall_time")
    ours, other = (
        next(one for one in recent.watched if (one.method, one.metric) == (name, "wall_time"))
        for name in (METHOD, CANARY)
    )
    with_setting = replace(other, method=METHOD, subject=replace(ours.subject, settings="x"))
    assert _owners([row], [with_setting, ours]) == {id(row): ours}


@pytest.mark.parametrize(
    ("days", "why_not", "told"),
    [
        (0, None, ["confirmed"]),
        (-2, None, ["confirmed"]),
        (-3, None, ["confirmed", "candidate"]),
        (3, None, ["confirmed", "candidate"]),
        (0, "its summary is gone", ["confirmed", "candidate"]),
    ],
    ids=["the step", "some nights off", "a later step", "an earlier step", "a step beside it"],
)
def test_a_confirmed_step_hides_only_itself_in_the_history(
    days: int, why_not: str | None, told: list[str], tmp_path: Path
) -> None:
    alarm = slowed(tmp_path)
    night(tmp_path, alarm)
    state = read_state(tmp_path)
    (own,) = state.open
    confirmed = replace(
        own,
        alpha=1e-4,
        before_day=own.after_day + days,
        after_day=own.after_day + days,
        first_day=own.after_day + days,
        told_day=own.seen_day,
        told_in="o",
    )
    open_ = (replace(own, alpha=1e-4, pairs=(0.18,) * 3, why_not=why_not),) if why_not else ()
    write_state(tmp_path, replace(state, open=open_, confirmed=(confirmed,)))
    changes = night(tmp_path, alarm, is_late=False).changes
    assert [change.status for change in changes] == told
