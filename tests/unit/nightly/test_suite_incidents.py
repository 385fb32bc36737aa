"""A night tells each incident once: when it is new, when it has grown, when it is fixed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import schemas

from perfrun.benchmark import main
from perfrun.changes.budget import parse_night_budget
from perfrun.changes.suspects import SuspectSeries
from perfrun.errors import Interrupted
from perfrun.incidents import ledger
from perfrun.incidents.incident import Bisection, Explanation, Ledger
from perfrun.nightly.chat import message
from perfrun.nightly.markdown import markdown
from perfrun.nightly.night_state import Earlier, Nights
from perfrun.nightly.night_words import verdict
from perfrun.nightly.report import MethodReport, NightReport, report_document
from perfrun.nightly.suite import EnvironmentSpec, Suite
from perfrun.nightly.suite_causes import with_causes
from perfrun.nightly.suite_changes import change_reports, with_changes
from perfrun.nightly.suite_incidents import told_incidents, with_incidents
from perfrun.nightly.suite_screening import confirmed_row
from perfrun.options.store_address import parse_address
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from perfrun.store.index import open_store
from tests.summaries import summary, write
from tests.unit.nightly.test_suite_changes import BEGIN, METHOD, found, method, report

OTHER = "pkg.cases.Cases.turn"


class Suites:
    """A suite whose nights lie in the past."""

    def __init__(self, folder: Path) -> None:
        self.suite = Suite(
            path=folder / "s.toml",
            name="n",
            digest="d",
            workspace=folder,
            methods=(),
            environments=(EnvironmentSpec(name="here"),),
        )

    def past(self, name: str, first: int, *factors: float) -> None:
        noise = np.exp(0.005 * np.random.default_rng(len(name)).standard_normal(100))
        write(
            self.suite.workspace / "output",
            *(
                summary(
                    method=name,
                    wall_time=float(factor * noise[night]),
                    name=f"{name}-{night:03}",
                    run_id=f"run-{night:03}",
                    label=f"n-{night}",
                    timestamp=BEGIN + night * 86400,
                    commits={"bench": ("a" if night < 30 else "b") * 40},
                )
                for night, factor in enumerate(factors, start=first)
            ),
        )

    def night(self, number: int, *names: str | MethodReport, earlier: Earlier = ()) -> NightReport:
        """The end of a night: its changes and incidents are found and told."""
        begun = BEGIN + number * 86400
        methods = tuple(method(name) if isinstance(name, str) else name for name in names)
        empty = replace(report([]), night=f"n-{number}", begun=begun, methods=methods)
        screen = Terminal(sys.stdout, sys.stderr, quiet=True)
        made, told = with_changes(self.suite, empty, earlier, (), screen, Interruption())
        assert told
        made = with_incidents(self.suite, made)
        told_incidents(self.suite, made)
        schemas.check("nightly", json.loads(json.dumps(report_document(made))))
        return made

    def alarm(self) -> int:
        (first,) = found(self.suite.workspace, 44, method(METHOD))
        return (date.fromisoformat(first.alarm_night) - date(2026, 6, 1)).days


def news(made: NightReport) -> list[tuple[str, int]]:
    return [(one.news, len(one.incident.changes)) for one in made.incidents]


def test_an_incident_is_told_when_it_is_new_grows_and_is_fixed(tmp_path: Path) -> None:
    suites = Suites(tmp_path)
    suites.past(METHOD, 0, *[1.0] * 30, *[1.2] * 15)
    first = suites.night(suites.alarm(), METHOD)
    assert (news(first), verdict(first)) == ([("new", 1)], "1 regression in 1 incident")
    text = markdown(first)
    line = f"New: incident 1 (me): 1 method worse since the night of 2026-07-01, most {METHOD}"
    assert line in text.replace("\\", "")
    assert f"bench `{'a' * 12}..{'b' * 12}`" in text
    assert text.count("worse") == 1  # and not once more for its change
    for form in ("slack", "teams", "discord"):
        assert json.dumps(message(first, form)).count("incident 1 ") == 1

    again = suites.night(44, METHOD)
    assert (news(again), again.is_ok) == ([("known", 1)], True)
    assert markdown(again).count("worse") == 0
    assert "- 1 known incident open: perfrun incidents\n" in markdown(again)

    def bisected(now: Ledger) -> Ledger:
        return replace(now, incidents=(replace(now.incidents[0], is_bisecting=True),))

    known = ledger.change(tmp_path, bisected)
    theirs = replace(again, methods=(method(OTHER),), changes=(), incidents=())
    assert with_incidents(suites.suite, theirs).incidents == ()  # a night of another suite
    assert ledger.read(tmp_path).incidents == known.incidents

    suites.past(OTHER, 0, *[1.0] * 30, *[1.1] * 15)
    assert news(suites.night(44, METHOD)) == [("known", 1)]  # the other is of another suite
    grown = suites.night(44, METHOD, OTHER)
    assert news(grown) == [("grown", 2)]
    assert "Grown, 1 change more: incident 1 (me): 2 methods worse" in markdown(grown)
    assert news(suites.night(44, METHOD, OTHER)) == [("known", 2)]

    for name in (METHOD, OTHER):
        suites.past(name, 45, *[1.0] * 12)
    fixed = suites.night(56, METHOD, OTHER)
    assert (news(fixed), fixed.is_ok) == ([("fixed", 2)], True)
    assert "at the old level since the night of 2026-07-16" in markdown(fixed)
    over = suites.night(56, METHOD, OTHER)
    assert over.incidents == ()
    assert markdown(over).count(METHOD) == 1  # in the table


def test_what_the_machine_has_caused_is_not_to_be_looked_at(tmp_path: Path) -> None:
    suites = Suites(tmp_path)
    for name in (METHOD, OTHER):
        suites.past(name, 0, *[1.0] * 30, *[1.2] * 15)
    alarm = suites.alarm()
    methods = (method(METHOD), method(OTHER, canary=True))
    made = suites.night(alarm, *methods)
    assert (news(made)[0][0], verdict(made)) == ("new", "all well")
    text = markdown(made).replace("\\", "")
    assert "To be looked at" not in text
    assert text.index("Other changes of the last nights") < text.index("New: incident 1")


def test_what_was_accepted_is_not_alarmed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suites = Suites(tmp_path)
    suites.past(METHOD, 0, *[1.0] * 30, *[1.2] * 15)
    alarm = suites.alarm()
    assert not suites.night(alarm, METHOD).is_ok
    assert main(["incidents", "accept", "1", f"--workspace={tmp_path}"]) == 0
    capsys.readouterr()
    # No report of an earlier night is left that says it was told.
    again = suites.night(alarm, METHOD)
    assert (again.is_ok, again.incidents, again.changes[0].incident) == (True, (), 1)


def test_what_a_search_by_hand_finds_in_old_nights_is_no_news(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suites = Suites(tmp_path)
    suites.past(METHOD, 0, *[1.0] * 30, *[1.2] * 50)
    assert main(["incidents", f"--workspace={tmp_path}"]) == 1
    capsys.readouterr()
    late = suites.night(79, METHOD)
    assert (news(late), late.is_ok) == ([("known", 1)], True)


def test_a_file_of_incidents_that_cannot_be_read_costs_no_report(tmp_path: Path) -> None:
    suites = Suites(tmp_path)
    suites.past(METHOD, 0, *[1.0] * 30, *[1.2] * 15)
    (tmp_path / "incidents.json").write_text("{")
    made = suites.night(suites.alarm(), METHOD)
    assert verdict(made) == "1 regression"
    assert made.notes[-1].startswith("incidents could not be brought up to date: ")
    assert "worse, +2" in markdown(made) or "worse, +19" in markdown(made)
    assert not Nights(tmp_path).folder.exists()


def test_what_pairs_confirm_is_told_once_though_the_history_shows_it_later(tmp_path: Path) -> None:
    suites = Suites(tmp_path)
    suites.past(METHOD, 0, *[1.0] * 30, 1.05)
    assert suites.night(30, METHOD).changes == ()
    with open_store(parse_address(None, tmp_path)) as store:
        (key,) = (s.key for s in store.series(which="primary") if s.key.metric == "wall_time")
    day = date(2026, 7, 1).toordinal()
    suspect = SuspectSeries(
        series=(METHOD, "wall_time", key.environment, key.hardware, "", "", ""),
        direction="worse",
        first_day=day,
        before_day=day - 1,
        after_day=day,
        before_summary="",
        after_summary="",
        before_execution_id=f"{METHOD}-029",
        after_execution_id=f"{METHOD}-030",
        shift=0.05,
        noise=0.005,
        odds=10.0,
        seen_day=day,
        alpha=0.01,
        pairs=(0.048, 0.05, 0.049, 0.051) * 3,
        told_day=day,
        told_in="n-30",
        commits_before={"bench": "a" * 40},
        commits_after={"bench": "b" * 40},
    )
    methods = (method(METHOD),)
    changes = change_reports([confirmed_row(suspect)], methods, "n-30", {})
    tonight = replace(report(changes), night="n-30", begun=BEGIN + 30 * 86400, methods=methods)
    first = with_incidents(suites.suite, tonight)
    told_incidents(suites.suite, first)
    assert (news(first), verdict(first)) == ([("new", 1)], "1 regression in 1 incident")
    (own,) = first.incidents[0].incident.changes
    assert (own.status, own.night, own.commits) == (
        "confirmed",
        "2026-07-01",
        {"bench": ("a" * 40, "b" * 40)},
    )
    assert own.level == pytest.approx(1.0, rel=0.01)

    # No run of this workspace wrote these results, so nothing that they name is run again.
    budget = parse_night_budget("9s", "x")
    asks = replace(suites.suite, bisect_budget=budget, explain_budget=budget)
    screen = Terminal(sys.stdout, sys.stderr, quiet=True)
    for one in with_causes(asks, first, screen, Interruption()).incidents:
        why = "cannot be run again: was imported, not run in this workspace: before and after"
        assert one.incident.bisection == Bisection(state="ended", why=why, tries=3)
        assert one.incident.explanation == Explanation(why=why, tries=3)
    told = ledger.read(tmp_path)
    again = with_causes(asks, first, screen, Interruption())
    assert (ledger.read(tmp_path), again.notes) == (told, first.notes)

    suites.past(METHOD, 31, *[1.05] * 14)
    later = suites.night(suites.alarm(), METHOD)
    assert (news(later), later.is_ok) == ([("known", 1)], True)
    assert [change.incident for change in later.changes] == [1]
    also = with_incidents(suites.suite, replace(first, begun=later.begun, incidents=()))
    assert (news(also), also.is_ok) == ([("known", 1)], True)
    (one,) = ledger.read(tmp_path).incidents
    assert (one.status, len(one.changes), one.told) == ("confirmed", 1, 1)
    assert one.changes[0].alarm_night > own.alarm_night  # the figures are those of the history


def test_no_fault_of_the_incidents_ends_a_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suites = Suites(tmp_path)
    suites.past(METHOD, 0, *[1.0] * 30, *[1.2] * 15)
    fault: list[Exception] = [ZeroDivisionError("division by zero")]

    def fails(*_: object, **__: object) -> None:
        raise fault[0]

    with monkeypatch.context() as patched:
        patched.setattr("perfrun.nightly.suite_incidents.search", fails)
        made = suites.night(suites.alarm(), METHOD)
        assert (verdict(made), "ZeroDivisionError" in made.notes[-1]) == ("1 regression", True)
        fault[0] = Interrupted("Ctrl-C")
        with pytest.raises(Interrupted):
            suites.night(suites.alarm(), METHOD)
    made = suites.night(suites.alarm(), METHOD)
    fault[0] = ZeroDivisionError("division by zero")
    monkeypatch.setattr("perfrun.incidents.ledger.change", fails)
    told_incidents(suites.suite, made)
    assert "not written down which incidents were told: Zero" in capsys.readouterr().err
