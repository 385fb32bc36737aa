"""Gaps: methods and metrics of the night before that are missing tonight."""

from __future__ import annotations

from dataclasses import replace

from perfrun.nightly.report import (
    MethodReport,
    NightFigure,
    NightReport,
    State,
    gaps,
    report_document,
)

HOUR_S = 3600.0


def figure(metric: str) -> NightFigure:
    return NightFigure(metric=metric, median=1.0, unit="s", direction="lower", trials=1)


def method(name: str, *metrics: str, state: State = "ok", unit: str = "here") -> MethodReport:
    return MethodReport(
        environment="here",
        unit=unit,
        method=name,
        owner=None,
        canary=False,
        state=state,
        why=None,
        asked=1,
        trials=0 if state == "not_run" else 1,
        disturbed=0,
        figures=tuple(figure(metric) for metric in metrics),
        failures=(),
    )


def night(*methods: MethodReport, hour: float = 0.0) -> NightReport:
    return NightReport(
        night=f"n{hour:g}",
        suite="n",
        owner=None,
        begun=1.8e9 + hour * HOUR_S,
        ended=1.8e9 + (hour + 1) * HOUR_S,
        deadline=None,
        commits={},
        methods=methods,
        errors=(),
        notes=(),
    )


BEFORE = report_document(night(method("m.C.x", "wall_time", "loss"), method("m.C.y", "wall_time")))


def test_a_method_that_is_not_there_any_more_is_an_error_of_the_same_suite() -> None:
    tonight = night(method("m.C.x", "wall_time", "loss"), hour=24)
    assert gaps(BEFORE, tonight, same_suite=True) == (
        ["m.C.y in here ran in n0, and is not there tonight"],
        [],
    )
    assert gaps(BEFORE, tonight, same_suite=False) == (
        [],
        ["m.C.y in here ran in n0; the suite no longer asks for it"],
    )


def test_each_setting_of_a_sweep_is_missed_by_itself() -> None:
    of_8 = replace(method("m.C.x", "wall_time"), setting={"batch": "8"})
    of_1 = replace(of_8, setting={"batch": "1"})
    before = report_document(night(of_1, of_8))
    assert gaps(before, night(of_8, hour=24), same_suite=True) == (
        ["m.C.x batch=1 in here ran in n0, and is not there tonight"],
        [],
    )


def test_a_metric_that_is_not_measured_any_more_is_a_note() -> None:
    both = method("m.C.x", "wall_time"), method("m.C.y", "wall_time")
    assert gaps(BEFORE, night(*both, hour=24), same_suite=True) == (
        [],
        ["m.C.x in here: loss was measured in n0, and is not tonight"],
    )
    failed = replace(both[0], state="failed", figures=())
    assert gaps(BEFORE, night(failed, both[1], hour=24), same_suite=True) == ([], [])


def test_what_is_told_as_not_run_already_is_not_told_again() -> None:
    filtered = method("m.C.filter:.*", state="not_run")
    assert gaps(BEFORE, night(filtered, hour=24), same_suite=True) == ([], [])


def test_a_method_that_did_not_run_in_the_night_before_is_no_gap() -> None:
    before = report_document(night(method("m.C.y", state="not_run")))
    assert gaps(before, night(hour=24), same_suite=True) == ([], [])


def test_nights_that_never_came_are_said() -> None:
    same = method("m.C.x", "wall_time", "loss"), method("m.C.y", "wall_time")
    assert gaps(BEFORE, night(*same, hour=36), same_suite=True) == ([], [])
    _, (text,) = gaps(BEFORE, night(*same, hour=121), same_suite=True)
    assert text == "The night before this one is n0, 5.0 days ago."
