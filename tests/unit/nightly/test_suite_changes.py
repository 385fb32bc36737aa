"""A night reports a new change of level once as new, and lists it for some nights."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from perfrun.changes.suspects import screen
from perfrun.nightly.junit import junit
from perfrun.nightly.markdown import markdown
from perfrun.nightly.night_state import Nights
from perfrun.nightly.openmetrics import openmetrics
from perfrun.nightly.report import ChangeReport, MethodReport, NightFigure, NightReport
from perfrun.nightly.suite import EnvironmentSpec, Suite
from perfrun.nightly.suite_changes import (
    change_reports,
    recent_changes,
    with_changes,
    with_moved,
)
from perfrun.options.store_address import parse_address
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from perfrun.store import columns, index, quarantine
from perfrun.store.index import open_store
from perfrun.store.quarantine import Period
from tests.summaries import summary, write

METHOD, CANARY = "pkg.cases.Cases.spin", "pkg.cases.Cases.still"
FIGURE = NightFigure(metric="wall_time", median=1.0, unit="s", direction="lower", trials=1)
BEGIN = datetime(2026, 6, 1, 23, 0).timestamp()


def history(workspace: Path, method: str, factors: Sequence[float], seed: int) -> None:
    noise = np.exp(0.005 * np.random.default_rng(seed).standard_normal(len(factors)))
    write(
        workspace / "output",
        *(
            summary(
                method=method,
                wall_time=float(factor * noise[number]),
                name=f"{method}-{number:03}",
                run_id=f"run-{number:03}",
                label=f"n-{number}",
                timestamp=BEGIN + number * 86400,
                commits={"bench": ("a" if factor == 1 else "b") * 40},
            )
            for number, factor in enumerate(factors)
        ),
    )


def method(name: str, *, canary: bool = False) -> MethodReport:
    return MethodReport(
        environment="here",
        unit="here",
        method=name,
        owner="me",
        canary=canary,
        state="ok",
        why=None,
        asked=1,
        trials=1,
        disturbed=0,
        figures=(FIGURE,),
        failures=(),
    )


def found(workspace: Path, night: int, *methods: MethodReport) -> tuple[ChangeReport, ...]:
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
        recent = recent_changes(store, methods, f"n-{night}", BEGIN + night * 86400)
    found = change_reports(recent.rows, methods, f"n-{night}", {})
    return tuple(change for change in found if change.metric == "wall_time")


def report(changes: Sequence[ChangeReport]) -> NightReport:
    return NightReport(
        night="n",
        suite="n",
        owner=None,
        begun=BEGIN,
        ended=BEGIN,
        deadline=None,
        commits={},
        methods=(method(METHOD),),
        errors=(),
        notes=(),
        changes=tuple(changes),
    )


def test_a_change_for_the_worse_is_new_in_the_night_that_made_it_sure(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    (first,) = found(tmp_path, 30, method(METHOD))
    alarm = (date.fromisoformat(first.alarm_night) - date(2026, 6, 1)).days
    assert first.night == "2026-07-01"
    (change,) = found(tmp_path, alarm, method(METHOD))
    assert (change.direction, change.is_new, change.owner) == ("worse", True, "me")
    assert not report([change]).is_ok
    (known,) = found(tmp_path, alarm + 1, method(METHOD))
    assert not known.is_new
    assert report([known]).is_ok
    assert len(found(tmp_path, alarm + 13, method(METHOD))) == 1
    assert found(tmp_path, alarm + 14, method(METHOD)) == ()


@pytest.mark.parametrize("is_repeat", [True, False])
def test_a_night_says_where_no_commit_can_be_the_cause(tmp_path: Path, is_repeat: bool) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    for path in (tmp_path / "output").glob("*/perfzero_summary.json") if is_repeat else ():
        path.write_text(path.read_text(encoding="utf-8").replace("b" * 40, "a" * 40))
    (change,) = found(tmp_path, 36, method(METHOD))
    assert change.ran_the_same is is_repeat
    told = markdown(report([replace(change, is_new=True)]))
    assert ("ran the same commits, image and packages: not the code" in told) is is_repeat


def test_a_change_of_a_night_that_told_nobody_is_new_in_the_next_one(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    (first,) = found(tmp_path, 44, method(METHOD))
    alarm = (date.fromisoformat(first.alarm_night) - date(2026, 6, 1)).days
    assert not first.is_new
    with open_store(parse_address(None, tmp_path)) as store:
        recent = recent_changes(store, [method(METHOD)], "n-44", BEGIN + 44 * 86400)
    for heard, is_new in (({f"n-{alarm}"}, True), ({f"n-{alarm - 1}", f"n-{alarm + 1}"}, False)):
        made = change_reports(recent.rows, [method(METHOD)], "n-44", {}, heard)
        assert [one.is_new for one in made if one.metric == "wall_time"] == [is_new]


@pytest.mark.parametrize("has_told", [False, True])
def test_a_change_whose_alarm_lies_in_an_earlier_night_is_new_until_a_report_has_told_it(
    has_told: bool, tmp_path: Path
) -> None:
    # What is sure depends on all series, so an alarm may come to lie in a night that had none.
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    (first,) = found(tmp_path, 44, method(METHOD))
    told = asdict(first) if has_told else {}
    alarm = (date.fromisoformat(first.alarm_night) - date(2026, 6, 1)).days
    suite = Suite(
        path=tmp_path / "s.toml",
        name="n",
        digest="d",
        workspace=tmp_path,
        methods=(),
        environments=(EnvironmentSpec(name="here"),),
    )
    that_night = replace(Nights(tmp_path).begin(suite, BEGIN), night=f"n-{alarm}", told=True)
    made, _ = with_changes(
        suite,
        replace(report([]), night="n-44", begun=BEGIN + 44 * 86400),
        [(that_night, {"changes": [told] if has_told else []})],
        (),
        Terminal(sys.stdout, sys.stderr, quiet=True),
        Interruption(),
    )
    assert [one.is_new for one in made.changes if one.metric == "wall_time"] == [not has_told]


@pytest.mark.parametrize(
    ("night", "alarm_night", "is_new"),
    [
        ("2026-07-01", "2026-07-03", False),  # found a night earlier
        ("2026-07-06", "2026-07-09", True),  # after the alarm: another change
    ],
)
def test_a_change_whose_alarm_moves_is_not_new_again(
    night: str, alarm_night: str, is_new: bool, tmp_path: Path
) -> None:
    # A history that is pruned to its last nights is another one, and its alarms may move.
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    with open_store(parse_address(None, tmp_path)) as store:
        store.refresh()
        rows = recent_changes(store, [method(METHOD)], "n-44", BEGIN + 44 * 86400).rows
    (row,) = (row for row in rows if row.metric == "wall_time")
    told = {"night": night, "status": "confirmed", "confirmation": {"pairs": 8}}
    key = (METHOD, "wall_time", row.environment, "worse", alarm_night)
    tonight = replace(row, evidence=frozenset({"n-44"}))
    known = with_moved([tonight], {key: told})
    (change,) = change_reports([tonight], [method(METHOD)], "n-44", known)
    assert change.is_new == is_new
    assert change.status == ("candidate" if is_new else "confirmed")


def test_a_change_beside_one_that_is_still_there_is_new(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    with open_store(parse_address(None, tmp_path)) as store:
        store.refresh()
        rows = recent_changes(store, [method(METHOD)], "n-44", BEGIN + 44 * 86400).rows
    (row,) = (row for row in rows if row.metric == "wall_time")
    told = {"night": "2026-07-01", "status": "confirmed"}
    key = (METHOD, "wall_time", row.environment, "worse", "2026-07-03")
    tonight = replace(row, evidence=frozenset({"n-44"}))
    still_there = replace(row, alarm_night="2026-07-03")
    for older, is_new in (([], False), ([still_there], True)):
        known = with_moved([tonight, *older], {key: told})
        (change,) = change_reports([tonight], [method(METHOD)], "n-44", known)
        assert change.is_new == is_new


def test_changes_that_only_earlier_reports_list_are_looked_at_too(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 90, seed=1)
    for night, listed, older in ((44, 1, 0), (55, 0, 1), (115, 0, 0)):
        with open_store(parse_address(None, tmp_path)) as store:
            store.refresh()
            recent = recent_changes(store, [method(METHOD)], f"n-{night}", BEGIN + night * 86400)
        assert [
            len([r for r in rows if r.metric == "wall_time"])
            for rows in (recent.rows, recent.older)
        ] == [listed, older]


def test_nothing_is_said_of_methods_of_other_suites_or_of_steady_ones(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    history(tmp_path, "other.mod.Class.one", [1.0] * 32, seed=2)
    assert found(tmp_path, 31, method("other.mod.Class.one")) == ()


def test_results_of_a_node_in_quarantine_are_no_change_and_the_night_says_so(
    tmp_path: Path,
) -> None:
    history(tmp_path, METHOD, [1.0] * 30, seed=1)
    slow = [
        summary(
            method=METHOD,
            wall_time=1.2,
            name=f"slow-{number}",
            run_id=f"slow-{number}",
            timestamp=BEGIN + (30 + number) * 86400,
            system={"hostname": "slow"},
        )
        for number in range(10)
    ]
    write(tmp_path / "output", *slow)
    assert len(found(tmp_path, 39, method(METHOD))) == 1
    period = Period(node="slow", at=1.0, because="")
    quarantine.change(tmp_path, lambda known: quarantine.put_in(known, [period]))
    with open_store(parse_address(None, tmp_path)) as store:
        recent = recent_changes(store, [method(METHOD)], "n-39", BEGIN + 39 * 86400)
    assert recent.rows == ()
    assert "in quarantine are left out: slow (10)" in recent.outlook[-1]


def test_the_first_weeks_say_what_is_not_sure_yet_and_what_would_be_seen(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 4, seed=1)
    history(tmp_path, "other.mod.Class.one", [1.0] * 20 + [1.2] * 4, seed=2)

    def outlook(night: int, *methods: MethodReport) -> tuple[str, ...]:
        with open_store(parse_address(None, tmp_path)) as store:
            store.refresh()
            begun = BEGIN + night * 86400
            return recent_changes(store, methods, f"n-{night}", begun).outlook

    (first,) = outlook(3, method(METHOD))
    assert first.startswith(f"wall_time of {METHOD}: 4 nights: after 2 more, changes above ")
    shift, young = outlook(23, method("other.mod.Class.one"), method(METHOD))
    assert shift.startswith("Largest shift not yet sure: wall_time of other.mod.Class.one +20 %")
    assert shift.endswith(" since 2026-06-21 (worse), 4 nights, about 2 more needed if it goes on")
    assert young.startswith("wall_time of other.mod.Class.one: 24 nights: changes above ")


def test_reports_name_the_regression_and_its_commits(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    whole = report(found(tmp_path, 31, method(METHOD)))
    text = markdown(whole)
    assert text.startswith("# n: 1 regression")
    assert f"bench `{'a' * 12}..{'b' * 12}`" in text
    assert "worse, +2" in text or "worse, +19" in text
    root = ElementTree.fromstring(junit(whole).encode())
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("type") == "regression"
    assert 'perfrun_night_regressions{suite="n"} 1.0' in openmetrics(whole)


def test_a_change_for_the_better_is_told_and_well(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [0.8] * 15, seed=1)
    changes = found(tmp_path, 31, method(METHOD))
    assert [change.direction for change in changes] == ["better"]
    assert report(changes).is_ok
    assert "Other changes of the last nights" in markdown(report(changes))


def test_a_night_without_figures_is_not_searched(tmp_path: Path) -> None:
    assert found(tmp_path, 1, replace(method(METHOD), figures=())) == ()


def test_what_moved_with_a_canary_is_listed_and_no_regression(tmp_path: Path) -> None:
    history(tmp_path, METHOD, [1.0] * 30 + [1.2] * 15, seed=1)
    history(tmp_path, CANARY, [1.0] * 30 + [1.2] * 15, seed=2)
    methods = (method(METHOD), method(CANARY, canary=True))
    (first, *_) = found(tmp_path, 30, *methods)
    alarm = (date.fromisoformat(first.alarm_night) - date(2026, 6, 1)).days
    changes = [c for c in found(tmp_path, alarm, *methods) if c.method == METHOD]
    assert [change.machine_suspect for change in changes] == [True]
    assert report(changes).is_ok
    assert "a canary moved too" in markdown(report(changes))


def test_a_night_reads_of_a_large_index_what_the_night_has_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = 40
    for seed, name in enumerate((METHOD, CANARY)):
        history(tmp_path, name, [1.0] * nights, seed)
    read: list[int] = []
    whole = columns.series_columns

    def counted(of: Any, metrics: Any, commits: Any, ask: Any, names: Any) -> Any:
        def told(ids: Sequence[int]) -> Any:
            read.extend(ids)
            return ask(ids)

        return whole(of, metrics, commits, told, names)

    monkeypatch.setattr(columns, "series_columns", counted)
    monkeypatch.setattr(index, "COLUMNS_FROM", 1)
    label = f"n-{nights - 1}"
    with open_store(parse_address(None, tmp_path)) as store:
        store.refresh()
        methods = [method(METHOD), method(CANARY)]
        recent = recent_changes(store, methods, label, BEGIN + (nights - 1) * 86400)
        assert recent.series == len(recent.watched) > 0
        screen(recent.watched, [0] * len(recent.watched), frozenset([label]))
    assert len(set(read)) <= 4  # tonight's two trials and, by its margin, those of the night before
