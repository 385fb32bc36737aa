"""The incidents of a suite: brought up to date at the end of a night, and told once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Literal

from perfrun.changes.observations import night_of
from perfrun.changes.watched import NoResultsError
from perfrun.errors import Interrupted, PerfrunError
from perfrun.incidents import ledger as file
from perfrun.incidents.grouping import brought_up_to_date
from perfrun.incidents.incident import Incident, Ledger, Worsening, is_same_step
from perfrun.incidents.search import Found, search
from perfrun.nightly.night_state import RECENT_DAYS
from perfrun.nightly.report import ChangeReport, IncidentReport, NightReport
from perfrun.nightly.suite import Suite
from perfrun.shown import say


def with_incidents(suite: Suite, report: NightReport) -> NightReport:
    """Bring the incidents up to date, and say which changes of the night belong to them.

    A night without changes for the worse, in a workspace without open incidents, costs nothing. A
    failure of any kind becomes a note: the changes are told one by one then. Raises Interrupted.
    """
    try:
        return _with_incidents(suite, report)
    except NoResultsError:
        return report
    except Interrupted:
        raise
    except Exception as error:  # the reports of the night are written whatever it is
        text = f"incidents could not be brought up to date: {what_went_wrong(error)}"
        return replace(report, notes=(*report.notes, text))


def _with_incidents(suite: Suite, report: NightReport) -> NightReport:
    known = file.read(suite.workspace)
    is_open = any(one.is_open for one in known.incidents)
    if not is_open and not any(change.direction == "worse" for change in report.changes):
        return _with_numbers(report, known.incidents, ())
    found = _searched(suite, report, known)
    after = file.change(suite.workspace, lambda now: _brought_up_to_date(now, found, report))
    return _with_numbers(report, after.incidents, with_news(report, after).incidents)


def with_news(report: NightReport, known: Ledger) -> NightReport:
    """Return the report with what it tells of the incidents of its methods."""
    names, oldest = _names(report), _oldest(report)
    own = [one for one in known.incidents if not names.isdisjoint(one.methods)]
    news = tuple(told for told in (_news(one, oldest) for one in own) if told is not None)
    return replace(report, incidents=news)


def _with_numbers(
    report: NightReport, incidents: Sequence[Incident], news: tuple[IncidentReport, ...]
) -> NightReport:
    """Return the report with its incidents, and the number of its incident at each change.

    What was told before, or accepted, is not alarmed again though its alarm has moved.
    """
    alarming = {one.incident.id for one in news if one.news in ("new", "grown")}
    changes = []
    for change in report.changes:
        number = _number(change, incidents)
        is_known = change.direction == "worse" and number is not None and number not in alarming
        changes.append(replace(change, incident=number, is_new=change.is_new and not is_known))
    return replace(report, changes=tuple(changes), incidents=news)


def told_incidents(suite: Suite, report: NightReport) -> None:
    """Write down that the reports of a night have told its incidents; told twice is no harm."""
    if not report.incidents:
        return
    counts = {one.incident.id: one for one in report.incidents}

    def changed(now: Ledger) -> Ledger:
        return replace(
            now,
            incidents=tuple(
                replace(
                    one,
                    told=len(counts[one.id].incident.changes),
                    has_told_end=counts[one.id].news == "fixed",
                    has_told_culprit=counts[one.id].incident.culprit is not None,
                )
                if one.id in counts
                else one
                for one in now.incidents
            ),
        )

    try:
        file.change(suite.workspace, changed)
    except Interrupted:
        raise
    except Exception as error:  # the reports are written and the night is over: told twice
        say(f"not written down which incidents were told: {what_went_wrong(error)}")


def what_went_wrong(error: Exception) -> str:
    """Return the text of an error that is one of ours or of the system, else its type, too."""
    is_told = isinstance(error, PerfrunError | ImportError | OSError)
    return str(error) if is_told else repr(error)


def _searched(suite: Suite, report: NightReport, known: Ledger) -> Found:
    from perfrun.options.store_address import parse_address
    from perfrun.store.index import open_store  # SQLAlchemy

    clones = {repo.directory: repo.clone for repo in suite.repos if repo.clone is not None}
    with open_store(parse_address(suite.store, suite.workspace)) as store:
        return search(
            store,
            suite.workspace,
            known_canaries=(*known.canaries, *_canaries(report)),
            clones=clones,
            tonight=report.changes,
        )


def _names(report: NightReport) -> set[str]:
    return {method.method for method in report.methods}


def _canaries(report: NightReport) -> list[str]:
    return sorted({method.method for method in report.methods if method.canary})


def _brought_up_to_date(now: Ledger, found: Found, report: NightReport) -> Ledger:
    own = {method.method: method.owner for method in report.methods if method.owner}
    known = replace(
        now,
        canaries=tuple(sorted({*now.canaries, *_canaries(report)})),
        owners={**now.owners, **own},
    )
    return brought_up_to_date(
        known,
        found.sightings,
        found.improvements,
        opened_since=_oldest(report),
        methods=_names(report),  # other suites, and other machines of a store, tell their own
    )


def _oldest(report: NightReport) -> str:
    """Return the first alarm night that the report of a night lists."""
    night = date.fromordinal(night_of(report.begun))
    return (night - timedelta(days=RECENT_DAYS - 1)).isoformat()


def _news(one: Incident, oldest: str) -> IncidentReport | None:
    """Return what a night tells of an incident; None for one that is over and told.

    What `perfrun incidents` has found in nights before `oldest` is no news.
    """
    more = len(one.changes) - one.told
    news: Literal["new", "grown", "found", "fixed", "known"] = "known"
    if one.status == "fixed":
        if one.has_told_end or not one.told:
            return None  # that it was there was never told
        news = "fixed"
    elif not one.is_open:
        return None
    elif not one.told:
        is_recent = max(change.alarm_night for change in one.changes) >= oldest
        news = "new" if is_recent else "known"
    elif more > 0:
        news = "grown"
    elif one.culprit is not None and not one.has_told_culprit:
        news = "found"
    return IncidentReport(news=news, more=max(0, more), incident=one)


def _number(change: ChangeReport, incidents: Sequence[Incident]) -> int | None:
    """Return the incident that a change is part of, or that it has ended."""
    is_of = {"worse": _is_same, "better": _has_ended}[change.direction]
    for one in reversed(incidents):
        if any(is_of(change, own) for own in one.changes):
            return one.id
    return None


def _is_same(change: ChangeReport, own: Worsening) -> bool:
    names = (change.method, change.metric, change.environment)
    return names == (own.method, own.metric, own.environment) and is_same_step(change, own)


def _has_ended(change: ChangeReport, own: Worsening) -> bool:
    return own.returned is not None and (
        change.method,
        change.metric,
        change.environment,
        change.night,
    ) == (own.method, own.metric, own.environment, own.returned.night)
