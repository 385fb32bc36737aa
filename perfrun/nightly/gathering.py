"""From what a night left on disk to its report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.nightly.report import MethodReport, NightReport, report_method
from perfrun.nightly.suite import MethodSpec, Night, Suite, Unit, UnitDone, units
from perfrun.plan import parse_selector
from perfrun.summary_record import SummaryRecord, read_record

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
