"""What a night came to, as values: the reports draw them, nothing here reads or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import median
from typing import Any, Literal

from perfrun.counted import counted
from perfrun.nightly.suite import Bound, MethodSpec
from perfrun.summary_record import SummaryRecord

# `short`: it has trials, and fewer than asked for. `not_run`: it has none.
State = Literal["ok", "short", "failed", "out_of_bounds", "not_run"]
BAD: tuple[State, ...] = ("failed", "out_of_bounds", "not_run")


@dataclass(frozen=True, kw_only=True)
class Figure:
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
    figures: tuple[Figure, ...]
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


def _figures(readings: Sequence[SummaryRecord]) -> tuple[Figure, ...]:
    names = dict.fromkeys(name for reading in readings for name in reading.values)
    figures = []
    for name in names:
        known = [reading for reading in readings if name in reading.values]
        used = counted(known)
        figures.append(
            Figure(
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


def _broken(bounds: Sequence[Bound], figures: Sequence[Figure]) -> list[str]:
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
