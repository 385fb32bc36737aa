"""A night with suspects, whose pairs get no time or cannot be run: nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from perfrun.changes.budget import parse_night_budget
from perfrun.changes.suspects import read_state
from perfrun.nightly.night_state import Nights
from perfrun.nightly.report import NightReport
from perfrun.nightly.suite import EnvironmentSpec, Suite
from perfrun.nightly.suite_changes import with_changes
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from tests.unit.nightly.test_suite_changes import BEGIN, METHOD, found, history, method, report

FIRST = date(2026, 6, 1)


def night(
    workspace: Path, number: int, told: Mapping[int, NightReport] | None = None
) -> NightReport:
    """Return the report of a night with suspects, whose deadline has come when pairs are due."""
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
    made, is_told = with_changes(
        suite,
        replace(report([]), night=f"n-{number}", begun=begun, deadline=begun),
        earlier,
        (),
        Terminal(sys.stdout, sys.stderr, quiet=True),
        Interruption(),
    )
    assert (made.errors, is_told) == ((), True)
    return made


def slowed(workspace: Path, nights: int | None = None) -> int:
    """Write a history until its alarm, or so many nights of it; return the night of the alarm."""
    factors = [1.0] * 30 + [1.2] * 15
    history(workspace / "whole", METHOD, factors, seed=1)
    (change,) = found(workspace / "whole", 30, method(METHOD))
    alarm = (date.fromisoformat(change.alarm_night) - FIRST).days
    history(workspace, METHOD, factors[: (nights or alarm) + 1], seed=1)
    return alarm


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
