"""The commands that look for the causes of incidents: how they fail, and how they are ended."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import schemas

from perfrun.errors import UsageError
from perfrun.incidents import ledger
from perfrun.incidents.command import with_decision
from perfrun.incidents.incident import (
    Bisection,
    Culprit,
    Decision,
    Explanation,
    Incident,
    Ledger,
)
from perfrun.locks import FileLock
from perfrun.nightly import suite_causes
from perfrun.nightly.own_command import Carried, carry_out
from perfrun.nightly.suite import EnvironmentSpec, Suite
from perfrun.nightly.suite_causes import _Asked, _Causes, _is_to_bisect, _sides
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from tests.unit.incidents.test_grouping import worse
from tests.unit.nightly.test_suite_changes import report

ONE = Incident(id=1, changes=(worse("a", status="confirmed"),))
CULPRIT = Culprit(name="9" * 40, author="A", subject="")


def asked(*words: str) -> _Asked:
    return _Asked(change=ONE.changes[0], place=("--format=json",), words=words, after=())


@pytest.fixture
def causes(tmp_path: Path) -> _Causes:
    here = (EnvironmentSpec(name="here"),)
    suite = Suite(
        path=tmp_path / "s.toml",
        name="n",
        digest="d",
        workspace=tmp_path,
        methods=(),
        environments=here,
    )
    screen = Terminal(sys.stdout, sys.stderr, quiet=True)
    return _Causes(suite, report([]), screen, Interruption(), [])


@pytest.fixture
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ignored")
def test_a_night_that_ignores_ctrl_c_ends_its_commands_by_it(tmp_path: Path) -> None:
    """As of `perfrun nightly s.toml &` in a script; this command waits for a lock."""
    with FileLock(tmp_path / ".locks" / "incidents") as lock:
        lock.own()
        words = ("incidents", "accept", "1", f"--workspace={tmp_path}")
        done = carry_out(words, 1.0, Interruption())
    assert done.late
    assert done.status != -signal.SIGKILL


def test_a_bisection_that_fails_is_tried_in_three_nights(causes: _Causes, tmp_path: Path) -> None:
    one = ONE
    for night in (1, 2, 3):
        assert _is_to_bisect(one)
        one = causes._bisect(one, asked(), 60.0)
        assert one.bisection is not None
        assert "commit hash" in one.bisection.why
        assert (one.bisection.state, one.bisection.tries) == ("ended", night)
        known = Ledger(incidents=(one,), next=2)
        assert ledger.change(tmp_path, lambda _, known=known: known) == ledger.read(tmp_path)  # type: ignore[misc]
    assert not _is_to_bisect(one)
    schemas.check("incidents-file", json.loads((tmp_path / ledger.FILE).read_text()))


def test_what_fails_on_the_way_to_a_command_is_tried_again(causes: _Causes) -> None:
    def work(*_: object) -> Incident:
        raise error

    causes._asked = lambda _: asked()  # type: ignore[assignment, method-assign]
    causes._bisect = work  # type: ignore[method-assign]
    error: Exception = OSError("no space")
    assert _is_to_bisect(causes._worked(ONE, 1.0, work))
    error = UsageError("not on record")
    assert not _is_to_bisect(causes._worked(ONE, 1.0, work))


def test_an_answer_that_comes_with_the_interruption_counts(
    causes: _Causes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = {"name": CULPRIT.name, "author": "A", "subject": ""}
    document = {"status": "found", "culprit": commit, "previous": commit, "pairs_run": 9}
    several = {**document, "culprit": {**commit, "repository": "models"}}
    answers = [document, None, {**several, "trials_run": 20, "spent_s": 130.0}]

    def carried(*_: object) -> Carried:
        return Carried(status=0, late=True, document=answers.pop(0), said="")

    monkeypatch.setattr(suite_causes, "carry_out", carried)
    found = causes._bisect(ONE, asked(), 1.0)
    assert found.culprit == CULPRIT
    assert found.bisection == Bisection(state="found", previous=CULPRIT.name)
    assert causes._bisect(ONE, asked(), 1.0).bisection == Bisection(state="going_on")
    [note] = causes._notes
    assert note.endswith("the bisection goes on in the next night, after 0 s of this one.")
    found = causes._bisect(ONE, asked(), 1.0)
    assert found.culprit == replace(CULPRIT, repository="models")
    assert found.bisection == replace(
        Bisection(state="found", previous=CULPRIT.name), trials=20, spent_s=130.0
    )


def test_a_search_without_a_commit_says_what_it_has_cost(
    causes: _Causes, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"status": "undecided", "pairs_run": 9, "trials_run": 20, "spent_s": 130.0}
    done = Carried(status=1, late=False, document=document, said="")
    monkeypatch.setattr(suite_causes, "carry_out", lambda *_: done)
    over = causes._bisect(ONE, asked(), 1.0).bisection
    assert over is not None
    assert over.why.endswith("between the commits, 9 pairs, 20 trials in 2 min")


def test_a_cause_that_was_not_found_is_looked_for_again_once_it_is_reopened() -> None:
    ended = Bisection(state="ended", why="x", tries=3)
    over = replace(ONE, bisection=ended, explanation=Explanation(rows=("x",)), is_fixed=True)
    decision = Decision(what="reopened", at=0.0, day="2026-07-09", reason="")
    again = with_decision(over, decision)
    assert (again.bisection, again.explanation) == (None, None)
    known = with_decision(replace(over, culprit=CULPRIT), decision)
    assert (known.bisection, known.explanation) == (over.bisection, over.explanation)


def test_only_what_stands_for_a_commit_is_explained_beside_it() -> None:
    found = replace(ONE, culprit=CULPRIT, bisection=Bisection(state="found", previous="8" * 40))
    assert _sides(found, asked())[:3] == ("8" * 40, CULPRIT.name, "--repo=models")
    assert _sides(ONE, asked())[:2] == ("id:b", "id:a")
    two = {"models": ("1", "2"), "other": ("3", "4")}
    several = replace(asked(), change=replace(ONE.changes[0], commits=two))
    assert _sides(ONE, several)[:2] == ("id:b", "id:a")
    with pytest.raises(UsageError, match="several repositories moved"):
        _sides(found, several)
