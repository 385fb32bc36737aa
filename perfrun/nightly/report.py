"""The report of a night, as values: made from its records, judged, and compared for gaps."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any, Literal

from perfrun.errors import UsageError
from perfrun.incidents.incident import Incident, incident_row
from perfrun.nightly.suite import Bound, MethodSpec, Night, Suite, Unit, UnitDone, units
from perfrun.options.plan import parse_selector
from perfrun.options.sweeps import Setting, setting_text
from perfrun.summary.counted_trials import counted
from perfrun.summary.metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.summary.series_identity import is_number, section

# `short`: it has trials, and fewer than asked for. `not_run`: it has none.
State = Literal["ok", "short", "failed", "out_of_bounds", "not_run"]
BAD: tuple[State, ...] = ("failed", "out_of_bounds", "not_run")
_NO_TURN = "its turn did not come before the night's deadline"
_CUT_SHORT = "the night's deadline came first"
_LATE_S = 36 * 3600.0  # between the end of the night before and the begin of tonight


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A figure of tonight beside those of the nights before (`perfrun.nightly.trends`)."""

    last_night: str | None  # id of the night before; None where it has no such figure
    ratio: float | None  # tonight over that night
    low: (
        float | None
    )  # 95 % interval of the ratio, by the trials of both nights; None where unknown
    high: float | None
    nights: int  # the nights in the median, at most 14
    nights_median: float | None  # of the nights before tonight; None without any
    nights_ratio: float | None  # tonight over that median
    nights_spread: float | None  # standard deviation of a night, over the median; None below three
    history: tuple[float | None, ...]  # the oldest night first, tonight last; None is a gap


@dataclass(frozen=True, kw_only=True)
class NightFigure:
    """One metric of one method tonight."""

    metric: str
    median: float
    unit: str  # empty where unknown
    direction: str  # which way is better: lower, higher or none
    trials: int  # in the median: the undisturbed ones, or all when most were disturbed
    derived_from: str | None = None  # its primary metric; None for a primary one
    low: float | None = None  # 95 % interval of the median; None for a single trial
    high: float | None = None
    trend: Trend | None = None  # of a primary metric


MethodKey = tuple[str, str, Setting]  # environment, method, setting


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One trial that failed or missed a bound."""

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
    why: str | None  # the reason for a state other than ok, in one line
    asked: int | None  # trials; None where a precision decides
    trials: int
    disturbed: int
    figures: tuple[NightFigure, ...]
    failures: tuple[Failure, ...]
    spent_s: float = 0.0  # wall time of all trials, the starting of their processes included
    setting: Mapping[str, str] = field(default_factory=dict)  # of the suite's sweep
    series: str = ""  # changes with the module, its settings and the machine; '' when unknown

    @property
    def name(self) -> str:
        """The method with its setting, as people read it."""
        return f"{self.method} {self.setting_text}".rstrip()

    @property
    def setting_text(self) -> str:
        """Its setting, as people read it; empty without a sweep."""
        return setting_text(tuple(self.setting.items()))

    @property
    def key(self) -> MethodKey:
        """Its place in a suite, the same in each night."""
        return self.environment, self.method, tuple(self.setting.items())

    @property
    def main_figure(self) -> NightFigure | None:
        """The figure that stands for the method: the first of its primary metrics that is judged.

        Wall time comes first, then throughput, and the peak of memory last.
        """
        first = (WALL_TIME, THROUGHPUT)

        def place(figure: NightFigure) -> int:
            if figure.metric in first:
                return first.index(figure.metric)
            return 4 if figure.metric == PEAK_RSS else 2 if figure.direction != "none" else 3

        return min((f for f in self.figures if not f.derived_from), key=place, default=None)


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
    night: str  # date at whose noon the first night at the new level began
    alarm_night: str  # the same of the night that made the change sure
    is_new: bool  # True when that is this night
    machine_suspect: bool  # a canary moved too
    commits_before: Mapping[str, str]
    commits_after: Mapping[str, str]
    environment_differences: tuple[str, ...]
    confirmation: Mapping[str, Any] | None = None  # as in `perfrun detect --confirm`
    derived: tuple[Mapping[str, Any], ...] = ()  # as in `perfrun detect`
    incident: int | None = None  # that it is part of, or that it has ended
    settings: str = ""  # of the series: variables, flags of the benchmark
    ran_the_same: bool = False  # the night before, on record: no commit is the cause

    @property
    def name(self) -> str:
        """The method with the settings of its series, as people read it."""
        return f"{self.method} {self.settings}".rstrip()

    @property
    def is_regression(self) -> bool:
        """True for a new change for the worse, unless pairs or a canary speak against it."""
        if not self.is_new or self.direction != "worse":
            return False
        if self.status == "candidate":
            return not self.machine_suspect
        return self.status == "confirmed"


@dataclass(frozen=True, kw_only=True)
class IncidentReport:
    """An incident that is open, or that was fixed since the last night."""

    news: Literal["new", "grown", "found", "fixed", "known"]
    more: int  # changes that no earlier night has told
    incident: Incident


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
    incidents: tuple[IncidentReport, ...] = ()

    @property
    def regressions(self) -> tuple[ChangeReport, ...]:
        """The changes for the worse that this night has made sure."""
        return tuple(change for change in self.changes if change.is_regression)

    @property
    def bad(self) -> tuple[MethodReport, ...]:
        """The methods that failed, missed a bound or were not run."""
        return tuple(method for method in self.methods if method.state in BAD)

    @property
    def is_ok(self) -> bool:
        """True when nothing failed, everything was run and nothing has become worse."""
        return not self.bad and not self.errors and not self.regressions


def report_method(
    spec: MethodSpec,
    name: str,
    records: Sequence[SummaryRecord],
    *,
    environment: str,
    unit: str,
    missing: str | None,
    fail_on_bounds: bool,
    default_owner: str | None,
    setting: Setting = (),
) -> MethodReport:
    """Judge a method by its trials. `missing` is the reason for fewer trials than asked for."""
    figures = _figures(records)
    failures = _failures(records, fail_on_bounds=fail_on_bounds)
    state, why = _state(records, failures, _broken(spec.bounds, figures), missing)
    return MethodReport(
        environment=environment,
        unit=unit,
        method=name,
        owner=spec.owner or default_owner,
        canary=spec.canary,
        state=state,
        why=why,
        asked=spec.rules.trials,
        trials=len(records),
        disturbed=sum(record.disturbed for record in records),
        figures=figures,
        failures=failures,
        spent_s=sum(map(_elapsed_s, records)),
        setting=dict(setting),
        series=_series(records),
    )


def report_document(report: NightReport) -> dict[str, Any]:
    """Return the JSON report. Times are in ISO 8601, with the zone."""
    incidents = [
        {"news": one.news, "more": one.more, **incident_row(one.incident)}
        for one in report.incidents
    ]
    return {
        **asdict(replace(report, incidents=())),
        "incidents": incidents,
        "begun": _iso(report.begun),
        "ended": _iso(report.ended),
        "deadline": None if report.deadline is None else _iso(report.deadline),
        "ok": report.is_ok,
    }


def _elapsed_s(record: SummaryRecord) -> float:
    elapsed = section(section(record.document, "perfrun"), "usage").get("elapsed_s")
    return float(elapsed) if is_number(elapsed) and elapsed > 0 else 0.0


def _series(records: Sequence[SummaryRecord]) -> str:
    """Return a short key of what was measured on what; figures of another key do not compare."""
    if not records:
        return ""
    one = records[-1].subject
    parts = (one.environment, one.hardware, one.driver, one.source, one.settings)
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def _figures(records: Sequence[SummaryRecord]) -> tuple[NightFigure, ...]:
    names = dict.fromkeys(name for record in records for name in record.values)
    figures = []
    for name in names:
        known = [record for record in records if name in record.values]
        used = counted(known)
        values = [record.values[name] for record in used]
        low, high = _interval(values)
        figures.append(
            NightFigure(
                metric=name,
                median=median(values),
                low=low,
                high=high,
                unit=used[-1].metrics[name].unit,
                direction=used[-1].metrics[name].direction,
                trials=len(used),
                derived_from=used[-1].metrics[name].derived_from or None,
            )
        )
    return tuple(figures)


def _interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the median; None where there is none that numbers can say."""
    from numpy import errstate

    from perfrun.analysis.stats import median_interval

    with errstate(over="ignore", invalid="ignore"):  # a trial may report 1e307
        found = median_interval(values)
    if found is None or not (isfinite(found.low) and isfinite(found.high)):
        return None, None
    return found.low, found.high


def _failures(records: Sequence[SummaryRecord], *, fail_on_bounds: bool) -> tuple[Failure, ...]:
    return tuple(
        Failure(status=record.status.value, reason=record.reason, summary=str(record.path))
        for record in records
        if not record.ran or (fail_on_bounds and record.status.value == "out_of_bounds")
    )


def _broken(bounds: Sequence[Bound], figures: Sequence[NightFigure]) -> list[str]:
    """Return a text for each missed bound; a metric without a value misses its bound."""
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
    records: Sequence[SummaryRecord],
    failures: Sequence[Failure],
    broken: Sequence[str],
    missing: str | None,
) -> tuple[State, str | None]:
    if not records:
        return "not_run", missing or "no trial was begun"
    if failures:
        first = failures[0]
        own_bounds = all(failure.status == "out_of_bounds" for failure in failures)
        text = f"{len(failures)} of {len(records)} trials: {first.status}"
        why = f"{text} ({first.reason})" if first.reason else text
        return ("out_of_bounds" if own_bounds else "failed"), why
    if broken:
        return "out_of_bounds", "; ".join(broken)
    return ("short", missing) if missing else ("ok", None)


def gather(
    suite: Suite, night: Night, ended: float, errors: Sequence[str], notes: Sequence[str]
) -> NightReport:
    """Read the summaries of a night and judge its methods."""
    methods: list[MethodReport] = []
    all_errors, all_notes = list(errors), list(notes)
    for unit in units(suite):
        done = night.units.get(unit.name, UnitDone())
        if done.error:
            swept = f"{setting_text(unit.setting)}: " if unit.setting else ""
            all_errors.append(f"{unit.name}: {swept}{done.error}")
        records = _records(done, all_notes)
        known: set[str] = set()
        for spec in unit.methods:
            found = _methods(suite, unit, spec, done, records)
            # A method that two filters name is reported once, by the first filter.
            methods += [method for method in found if method.method not in known]
            known |= {method.method for method in found}
    return NightReport(
        night=night.night,
        suite=suite.name,
        owner=suite.owner,
        begun=night.begun,
        ended=ended,
        deadline=night.deadline,
        commits=dict(night.pinned),
        methods=tuple(methods),
        errors=tuple(all_errors),
        notes=tuple(all_notes),
    )


def _records(done: UnitDone, notes: list[str]) -> tuple[SummaryRecord, ...]:
    records = []
    for path in done.summaries:
        try:
            records.append(read_record(Path(path)))
        except (OSError, ValueError) as error:
            notes.append(f"{path} is left out: {error}")
    return tuple(records)


def _methods(
    suite: Suite, unit: Unit, spec: MethodSpec, done: UnitDone, records: Sequence[SummaryRecord]
) -> list[MethodReport]:
    """Return the methods of one entry, which a filter may select; without any, the entry itself."""
    names = dict.fromkeys((*done.stopped_by, *(record.method for record in records)))
    own = [name for name in names if _is_of(name, spec)] or [spec.selector.text]
    found = []
    for name in own:
        trials = [record for record in records if record.method == name]
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
                setting=unit.setting,
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
    """Return why there are fewer trials than asked for; None when there are enough."""
    if done.error:
        return "its run could not be begun"
    if not trials:
        return _CUT_SHORT if done.stopped_by.get(name) == "deadline" else _NO_TURN
    asked = spec.rules.trials
    if done.stopped_by.get(name) == "deadline" or (asked is not None and trials < asked):
        return _CUT_SHORT
    return None


def gaps(
    before: Mapping[str, Any], report: NightReport, *, same_suite: bool
) -> tuple[list[str], list[str]]:
    """Compare with the JSON report of the night before; return errors and notes.

    A method that is missing although the suite is the same is an error. A method that the suite
    no longer asks for, and a metric that is no longer measured, are notes.
    """
    errors: list[str] = []
    notes = _late(before, report)
    tonight = {method.key: method for method in report.methods}
    excused = {method.unit for method in report.methods if method.state == "not_run"}
    excused |= {error.partition(":")[0] for error in report.errors}  # runs that could not begin
    for earlier in before["methods"]:
        setting = setting_of(earlier)
        what = " ".join((earlier["method"], setting_text(setting))).rstrip()
        where = f"{what} in {earlier['environment']}"
        now = tonight.get((earlier["environment"], earlier["method"], setting))
        if now is not None:
            notes += [
                f"{where}: {metric} was measured in {before['night']}, and is not tonight"
                for metric in _lost(earlier, now)
            ]
        elif earlier["trials"] and same_suite and earlier["unit"] not in excused:
            errors.append(f"{where} ran in {before['night']}, and is not there tonight")
        elif earlier["trials"] and not same_suite:
            notes.append(f"{where} ran in {before['night']}; the suite no longer asks for it")
    return errors, notes


def setting_of(method: Mapping[str, Any]) -> Setting:
    """Return the setting of a method in a JSON report; an older perfrun wrote none."""
    setting = method.get("setting")
    if not isinstance(setting, dict):
        return ()
    return tuple((str(name), str(value)) for name, value in setting.items())


def _lost(earlier: Mapping[str, Any], now: MethodReport) -> list[str]:
    if now.state not in ("ok", "short"):  # the report has the reason already
        return []
    there = {figure.metric for figure in now.figures}
    return [f["metric"] for f in earlier["figures"] if f["metric"] not in there]


def _late(before: Mapping[str, Any], report: NightReport) -> list[str]:
    silent_s = report.begun - datetime.fromisoformat(before["ended"]).timestamp()
    if silent_s <= _LATE_S:
        return []
    return [f"The night before this one is {before['night']}, {silent_s / 86400:.1f} days ago."]
