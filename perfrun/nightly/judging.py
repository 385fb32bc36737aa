"""What the history says of a night: new changes of level, confirmed by pairs if the suite asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfrun.confirming import INTERRUPTED
from perfrun.errors import Interrupted, PerfrunError
from perfrun.interruption import Interruption
from perfrun.nightly.report import NightReport
from perfrun.nightly.state import Earlier
from perfrun.nightly.suite import Suite
from perfrun.screen import Screen

if TYPE_CHECKING:
    from perfrun.nightly.changes import Key, Recent
    from perfrun.reports.changes import Row


def with_changes(
    suite: Suite,
    report: NightReport,
    earlier: Earlier,
    screen: Screen,
    interruption: Interruption,
) -> NightReport:
    """Bring the index up to date, look for changes, and run the pairs of the new ones.

    What is wrong there is the night's error. Raises Interrupted.
    """
    from perfrun.nightly.changes import change_reports  # numpy and scipy: after the trials

    try:
        with interruption.allowed():
            recent = _recent(suite, report)
    except Interrupted:
        raise
    except (PerfrunError, ImportError) as error:
        text = f"the index could not be brought up to date or searched: {error}"
        return replace(report, errors=(*report.errors, text))
    rows, errors, known = recent.rows, report.errors, _known(earlier)
    if suite.confirm is not None:
        try:
            rows = _confirmed(suite, report, rows, known, screen, interruption)
        except Interrupted:
            raise
        except PerfrunError as error:
            errors = (*errors, f"changes could not be confirmed: {error}")
    changes = change_reports(rows, report.methods, report.night, known)
    notes = (*report.notes, *_young(recent))
    return replace(report, changes=changes, errors=errors, notes=notes)


def _recent(suite: Suite, report: NightReport) -> Recent:
    from perfrun.nightly.changes import recent_changes
    from perfrun.store.address import parse_address
    from perfrun.store.index import open_store  # SQLAlchemy

    clones = {repo.directory: repo.clone for repo in suite.repos if repo.clone is not None}
    with open_store(parse_address(suite.store, suite.workspace)) as store:
        store.refresh([suite.workspace] if suite.store else [])
        return recent_changes(store, report.methods, report.night, report.begun, clones)


def _confirmed(
    suite: Suite,
    report: NightReport,
    rows: Sequence[Row],
    known: Mapping[Key, Mapping[str, Any]],
    screen: Screen,
    interruption: Interruption,
) -> tuple[Row, ...]:
    """Run the pairs of what this night has made sure; the deadline of the night ends them."""
    from perfrun.confirmations import TOO_LATE, confirm_rows
    from perfrun.nightly.changes import is_new

    assert suite.confirm is not None
    new = [row for row in rows if is_new(row, report.night, known)]
    with interruption.until(report.deadline):
        told = confirm_rows(
            new,
            suite.workspace,
            suite.confirm,
            screen,
            deadline=report.deadline,
            interruption=interruption,
        )
    interruption.check()
    by_row = {id(row): after for row, after in zip(new, told, strict=True)}
    found = []
    for row in rows:
        after = by_row.get(id(row), row)
        if after.confirmation is not None and after.confirmation["reason"] == INTERRUPTED:
            after = replace(after, confirmation={**after.confirmation, "reason": TOO_LATE})
        found.append(after)
    return tuple(found)


def _known(earlier: Earlier) -> dict[Key, Mapping[str, Any]]:
    """The changes that earlier nights have reported; what pairs said last of each counts."""
    found: dict[Key, Mapping[str, Any]] = {}
    for _, document in reversed(earlier):
        for change in document.get("changes") or ():
            names = ("method", "metric", "environment", "direction", "alarm_night")
            method, metric, environment, direction, alarm_night = (change.get(n) for n in names)
            key = (method, metric, environment, direction, alarm_night)
            if key not in found or change.get("confirmation") is not None:
                found[key] = change
    return found


def _young(recent: Recent) -> tuple[str, ...]:
    if not recent.young:
        return ()
    text = f"{recent.young} of {recent.series} series have too few nights to show a change yet."
    return (text,)
