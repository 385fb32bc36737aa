"""What a night came to, as values: the reports draw them, nothing here reads or writes.

From what a night left on disk to its report.

What used to be there and is not tonight: a gap that nobody is told of lasts for months. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

from perfrun.errors import UsageError
from perfrun.nightly.suite import Bound, MethodSpec, Night, Suite, Unit, UnitDone, units
from perfrun.options.plan import parse_selector
from perfrun.summary.counted import counted
from perfrun.summary.record import SummaryRecord, read_record

# `short`: it has trials, and fewer than asked for. `not_run`: it has none.
State = Literal["ok", "short", "failed", "out_of_bounds", "not_run"]
BAD: tuple[State, ...] = ("failed", "out_of_bounds", "not_run")


@dataclass(frozen=True, kw_only=True)
class NightFigure:
    """One metric of one method tonight."""

    metric: str
    median: float
    unit: str  # empty where unknown
    direction: str  # which way is better: lower, higher or none
    trials: int  # that it is the median of: the quiet ones, or all when most were disturbed
    derived_from: str | None = (
        None  # the primary metric that it follows from; None of a primary one
    )


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One trial that did not do what it should."""

    status: str
    reason: str | None
    summary: str


@dataclass(frozen=True, kw_only=True)
class MethodReport:
    """One method in one environment."""

    environment: str
    unit: str
    method: str
    owner: str | None
    canary: bool
    state: State
    why: str | None  # not ok: in one line
    asked: int | None  # trials; None where a precision decides
    trials: int
    disturbed: int
    figures: tuple[NightFigure, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeReport:
    """A change of level that the nights up to this one show (`perfrun detect`)."""

    method: str
    metric: str
    environment: str
    owner: str | None
    before_execution_id: str
    after_execution_id: str
    ratio: float  # after over before
    direction: str  # worse or better
    status: str  # candidate, confirmed or not_reproduced
    night: str  # date at whose noon the first night of the new level began
    alarm_night: str  # and the night that made it sure
    is_new: bool  # that is this night
    machine_suspect: bool  # a canary moved too
    commits_before: Mapping[str, str]
    commits_after: Mapping[str, str]
    environment_differences: tuple[str, ...]
    confirmation: Mapping[str, Any] | None = None  # as in `perfrun detect --confirm`
    derived: tuple[Mapping[str, Any], ...] = ()  # metrics that say the same; as in `perfrun detect`

    @property
    def is_regression(self) -> bool:
        """Somebody should look at it, and has not been told before."""
        if not self.is_new or self.direction != "worse":
            return False
        if self.status == "candidate":
            return not self.machine_suspect
        return self.status == "confirmed"


@dataclass(frozen=True, kw_only=True)
class NightReport:
    """The whole night."""

    night: str
    suite: str
    owner: str | None
    begun: float  # seconds since the epoch
    ended: float
    deadline: float | None
    commits: Mapping[str, str]
    methods: tuple[MethodReport, ...]
    errors: tuple[str, ...]  # what went wrong besides the methods; a night with one is not ok
    notes: tuple[str, ...]
    changes: tuple[ChangeReport, ...] = ()  # of the last nights

    @property
    def regressions(self) -> tuple[ChangeReport, ...]:
        """The changes for the worse that this night has made sure."""
        return tuple(change for change in self.changes if change.is_regression)

    @property
    def bad(self) -> tuple[MethodReport, ...]:
        """The methods that somebody should look at."""
        return tuple(method for method in self.methods if method.state in BAD)

    @property
    def is_ok(self) -> bool:
        """Nothing failed, nothing is missing altogether, and nothing has become slower."""
        return not self.bad and not self.errors and not self.regressions


def report_method(
    spec: MethodSpec,
    name: str,
    readings: Sequence[SummaryRecord],
    *,
    environment: str,
    unit: str,
    missing: str | None,
    fail_on_bounds: bool,
    default_owner: str | None,
) -> MethodReport:
    """Judge a method by its trials. `missing` says why there are not all that were asked for."""
    figures = _figures(readings)
    failures = _failures(readings, fail_on_bounds=fail_on_bounds)
    state, why = _state(readings, failures, _broken(spec.bounds, figures), missing)
    return MethodReport(
        environment=environment,
        unit=unit,
        method=name,
        owner=spec.owner or default_owner,
        canary=spec.canary,
        state=state,
        why=why,
        asked=spec.rules.trials,
        trials=len(readings),
        disturbed=sum(reading.disturbed for reading in readings),
        figures=figures,
        failures=failures,
    )


def document(report: NightReport) -> dict[str, Any]:
    """What `--format=json` prints, the file and the webhook get. Times are ISO 8601 with zone."""
    return {
        **asdict(report),
        "begun": _iso(report.begun),
        "ended": _iso(report.ended),
        "deadline": None if report.deadline is None else _iso(report.deadline),
        "ok": report.is_ok,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def _figures(readings: Sequence[SummaryRecord]) -> tuple[NightFigure, ...]:
    names = dict.fromkeys(name for reading in readings for name in reading.values)
    figures = []
    for name in names:
        known = [reading for reading in readings if name in reading.values]
        used = counted(known)
        figures.append(
            NightFigure(
                metric=name,
                median=median(reading.values[name] for reading in used),
                unit=used[-1].metrics[name].unit,
                direction=used[-1].metrics[name].direction,
                trials=len(used),
                derived_from=used[-1].metrics[name].derived_from or None,
            )
        )
    return tuple(figures)


def _failures(readings: Sequence[SummaryRecord], *, fail_on_bounds: bool) -> tuple[Failure, ...]:
    failures = []
    for reading in readings:
        status = reading.status.value
        if not reading.ran or (fail_on_bounds and status == "out_of_bounds"):
            failures.append(
                Failure(
                    status=status,
                    reason=reading.reason,
                    summary=str(reading.path),
                )
            )
    return tuple(failures)


def _broken(bounds: Sequence[Bound], figures: Sequence[NightFigure]) -> list[str]:
    """The bounds that are missed; a metric that is not there misses its bound."""
    found = {figure.metric: figure.median for figure in figures}
    broken = []
    for bound in bounds:
        value = found.get(bound.metric)
        if value is None:
            broken.append(f"{bound.metric} was not measured")
        elif bound.low is not None and value < bound.low:
            broken.append(f"{bound.metric} = {value:.6g} is below {bound.low:.6g}")
        elif bound.high is not None and value > bound.high:
            broken.append(f"{bound.metric} = {value:.6g} is above {bound.high:.6g}")
    return broken


def _state(
    readings: Sequence[SummaryRecord],
    failures: Sequence[Failure],
    broken: Sequence[str],
    missing: str | None,
) -> tuple[State, str | None]:
    if not readings:
        return "not_run", missing or "no trial was begun"
    if failures:
        first = failures[0]
        own_bounds = all(failure.status == "out_of_bounds" for failure in failures)
        text = f"{len(failures)} of {len(readings)} trials: {first.status}"
        why = f"{text} ({first.reason})" if first.reason else text
        return ("out_of_bounds" if own_bounds else "failed"), why
    if broken:
        return "out_of_bounds", "; ".join(broken)
    return ("short", missing) if missing else ("ok", None)


_NO_TURN = "its turn did not come before the night's deadline"
_CUT_SHORT = "the night's deadline came first"


def gather(
    suite: Suite, night: Night, ended: float, errors: Sequence[str], notes: Sequence[str]
) -> NightReport:
    """Read the summaries of a night and judge its methods."""
    methods: list[MethodReport] = []
    wrong, said = list(errors), list(notes)
    for unit in units(suite):
        done = night.units.get(unit.name, UnitDone())
        if done.error:
            wrong.append(f"{unit.name}: {done.error}")
        readings = _readings(done, said)
        for spec in unit.methods:
            known = {method.method for method in methods if method.unit == unit.name}
            found = _methods(suite, unit, spec, done, readings)
            # A method that two filters name is reported once, as the first of them has it.
            methods += [method for method in found if method.method not in known]
    return NightReport(
        night=night.night,
        suite=suite.name,
        owner=suite.owner,
        begun=night.begun,
        ended=ended,
        deadline=night.deadline,
        commits=dict(night.pinned),
        methods=tuple(methods),
        errors=tuple(wrong),
        notes=tuple(said),
    )


def _readings(done: UnitDone, notes: list[str]) -> tuple[SummaryRecord, ...]:
    readings = []
    for path in done.summaries:
        try:
            readings.append(read_record(Path(path)))
        except (OSError, ValueError) as error:
            notes.append(f"{path} is left out: {error}")
    return tuple(readings)


def _methods(
    suite: Suite, unit: Unit, spec: MethodSpec, done: UnitDone, readings: Sequence[SummaryRecord]
) -> list[MethodReport]:
    """A filter may have named several methods; one that never ran is reported as it was asked."""
    names = dict.fromkeys((*done.stopped_by, *(reading.method for reading in readings)))
    own = [name for name in names if _is_of(name, spec)] or [spec.selector.text]
    found = []
    for name in own:
        trials = [reading for reading in readings if reading.method == name]
        found.append(
            report_method(
                spec,
                name,
                trials,
                environment=unit.environment.name,
                unit=unit.name,
                missing=_missing(spec, done, name, len(trials)),
                fail_on_bounds=suite.fail_on_bounds,
                default_owner=suite.owner,
            )
        )
    return found


def _is_of(name: str, spec: MethodSpec) -> bool:
    wanted = spec.selector
    if name == wanted.text:
        return True
    if wanted.pattern is None:
        return False
    try:
        one = parse_selector(name)
    except UsageError:
        return False
    return (one.module, one.class_name) == (wanted.module, wanted.class_name) and bool(
        re.match(wanted.pattern, one.method or "")
    )


def _missing(spec: MethodSpec, done: UnitDone, name: str, trials: int) -> str | None:
    """Why there are fewer trials than asked for; None when there are all."""
    if done.error:
        return "its run could not be begun"
    if not trials:
        return _CUT_SHORT if done.stopped_by.get(name) == "deadline" else _NO_TURN
    asked = spec.rules.trials
    if done.stopped_by.get(name) == "deadline" or (asked is not None and trials < asked):
        return _CUT_SHORT
    return None


_LATE_S = 36 * 3600.0  # from the end of the night before to tonight's begin


def gaps(
    before: Mapping[str, Any], report: NightReport, *, same_suite: bool
) -> tuple[list[str], list[str]]:
    """Compare with the JSON report of the night before: errors, and notes.

    A method that has gone although the suite is the same is an error; one that the suite does not
    ask for any more, and a metric that is not measured any more, are notes.
    """
    errors: list[str] = []
    notes = _late(before, report)
    tonight = {(method.environment, method.method): method for method in report.methods}
    excused = {method.unit for method in report.methods if method.state == "not_run"}
    excused |= {error.partition(":")[0] for error in report.errors}  # a run that was not begun
    for past in before["methods"]:
        where = f"{past['method']} in {past['environment']}"
        now = tonight.get((past["environment"], past["method"]))
        if now is not None:
            notes += [
                f"{where}: {metric} was measured in {before['night']}, and is not tonight"
                for metric in _lost(past, now)
            ]
        elif past["trials"] and same_suite and past["unit"] not in excused:
            errors.append(f"{where} ran in {before['night']}, and is not there tonight")
        elif past["trials"] and not same_suite:
            notes.append(f"{where} ran in {before['night']}; the suite no longer asks for it")
    return errors, notes


def _lost(past: Mapping[str, Any], now: MethodReport) -> list[str]:
    if now.state not in ("ok", "short"):  # the reason is told already
        return []
    there = {figure.metric for figure in now.figures}
    return [f["metric"] for f in past["figures"] if f["metric"] not in there]


def _late(before: Mapping[str, Any], report: NightReport) -> list[str]:
    silent_s = report.begun - datetime.fromisoformat(before["ended"]).timestamp()
    if silent_s <= _LATE_S:
        return []
    return [f"The night before this one is {before['night']}, {silent_s / 86400:.1f} days ago."]
