"""What used to be there and is not tonight: a gap that nobody is told of lasts for months. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from perfrun.nightly.report import MethodReport, NightReport

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
