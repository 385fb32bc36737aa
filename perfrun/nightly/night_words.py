"""The sentences about a night, for each medium: Markdown, a terminal, a chat.

Text from outside goes through the medium's own function of `perfrun.shown`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from perfrun.changes.change_report import NO_COMMIT
from perfrun.incidents.words import fixed_text, incident_text
from perfrun.nightly.report import (
    ChangeReport,
    IncidentReport,
    MethodReport,
    NightFigure,
    NightReport,
)
from perfrun.nightly.trends import change_text, last_night_text, usual_text
from perfrun.reports.sparkline import sparkline
from perfrun.reports.table import Column, Table
from perfrun.summary.metrics import PEAK_RSS
from perfrun.text import counted, spread, with_unit

MOST_FIGURES = 3  # beside the main one; the other reports have all
_COLUMNS = (
    Column(heading="method"),
    Column(heading="environment"),
    Column(heading="trials", right=True),
    Column(heading="tonight"),
    Column(heading="against last night"),
    Column(heading="against the median of 14"),
    Column(heading="last nights"),
    Column(heading="other figures"),
    Column(heading="state"),
)
_NARROW = (
    ("method", "tonight", "against last night", "last nights", "state"),
    ("method", "environment", "trials", "against the median of 14", "other figures"),
)


@dataclass(frozen=True, kw_only=True)
class Medium:
    """The functions that make text from outside fit for a medium."""

    clean: Callable[[str], str]
    owner: Callable[[str], str]  # the name of an owner, which the suite's author has written
    commits: Callable[[str], str]


def verdict(report: NightReport) -> str:
    """Return `all well`, or how many of what is wrong."""
    if report.is_ok:
        return "all well"
    counts = []
    for state, text in (
        ("failed", "failed"),
        ("out_of_bounds", "out of bounds"),
        ("not_run", "not run"),
    ):
        number = sum(method.state == state for method in report.methods)
        counts += [f"{number} {text}"] if number else []
    counts += [_regressions(report)] if report.regressions else []
    counts += [counted(len(report.errors), "error")] if report.errors else []
    return ", ".join(counts)


def _regressions(report: NightReport) -> str:
    """Return `5 regressions in 1 incident`; without incidents, their number alone."""
    own = {change.incident for change in report.regressions}
    count = counted(len(report.regressions), "regression")
    return f"{count} in {counted(len(own), 'incident')}" if None not in own else count


def period(report: NightReport) -> str:
    """Return when the night began and ended, in local time with the zone."""
    begun, ended = (datetime.fromtimestamp(at).astimezone() for at in (report.begun, report.ended))
    return f"{begun:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} ({begun:%Z})"


def findings(report: NightReport, medium: Medium) -> list[str]:
    """Return what is to be looked at: errors, methods that did not pass, regressions.

    Regressions with one cause are one incident, which is told when it is new and when it grows.
    """
    told = [one for one in report.incidents if _is_finding(one, report)]
    alone = [change for change in report.regressions if change.incident is None]
    return [
        *map(medium.clean, report.errors),
        *(_bad_text(method, medium) for method in report.bad),
        *(_news_text(one, report, medium) for one in told),
        *(_change_text(change, medium) for change in alone),
    ]


def other_changes(report: NightReport, medium: Medium) -> list[str]:
    """Return the changes of the last nights that are no regressions of this one.

    Of incidents, those that are fixed are told, and news of which the machine is the cause; the
    others that are known are a number.
    """
    told = [one for one in report.incidents if one.news != "known" and not _is_finding(one, report)]
    known = sum(one.news == "known" for one in report.incidents)
    others = [c for c in report.changes if not c.is_regression and c.incident is None]
    return [
        *(_news_text(one, report, medium) for one in told),
        *(_change_text(change, medium) for change in others),
        *([f"{counted(known, 'known incident')} open: perfrun incidents"] if known else []),
    ]


def _is_finding(one: IncidentReport, report: NightReport) -> bool:
    """Return True for news to be looked at.

    What the machine has caused, as a canary moved too, is none, unless it is a regression.
    """
    if one.news not in ("new", "grown", "found"):
        return False
    own = {change.incident for change in report.regressions}
    return not one.incident.is_machine or one.incident.id in own


def _news_text(one: IncidentReport, report: NightReport, medium: Medium) -> str:
    """Return the line about an incident: new, grown, its commit found, or fixed."""
    words = (one.incident, medium.clean, medium.commits, medium.owner)
    if one.news == "fixed":
        return _begun_large(fixed_text(*words))
    more = f", {counted(one.more, 'change')} more" if one.news == "grown" else ""
    own = [change for change in report.changes if change.incident == one.incident.id]
    pairs = next((text for change in own if (text := _pairs_text(change))), "")
    pairs = pairs if one.incident.status in ("suspect", "confirmed") else ""
    return f"{one.news.capitalize()}{more}: {incident_text(*words, pairs=pairs)}"


def _begun_large(text: str) -> str:
    return text[:1].upper() + text[1:]


def _bad_text(method: MethodReport, medium: Medium) -> str:
    owner = f" ({medium.owner(method.owner)})" if method.owner else ""
    state = method.state.replace("_", " ")
    return (
        f"{medium.clean(method.name)} in {medium.clean(method.environment)}{owner}: "
        f"{state}: {medium.clean(method.why or '')}"
    )


def _change_text(change: ChangeReport, medium: Medium) -> str:
    clean = medium.clean
    owner = f" ({medium.owner(change.owner)})" if change.owner else ""
    commits = [
        f"{clean(name)} {_commits(change.commits_before.get(name, ''), after, medium)}"
        for name, after in change.commits_after.items()
        if change.commits_before.get(name, after) != after
    ]
    others = [clean(text) for text in change.environment_differences]
    others += [NO_COMMIT] if change.ran_the_same else []
    why = "; ".join([*commits, *others]) or "nothing else is known to differ"
    doubt = ", a canary moved too" if change.machine_suspect else ""
    return (
        f"{clean(change.name)} in {clean(change.environment)}{owner}: "
        f"{clean(change.metric)} {change.direction}, {change_text(change.ratio)} "
        f"since the night of {change.night} ({_standing(change, clean)}{doubt}): {why}"
    )


def _commits(before: str, after: str, medium: Medium) -> str:
    return medium.commits(f"{before[:12]}..{after[:12]}")


def _standing(change: ChangeReport, clean: Callable[[str], str]) -> str:
    """Return the status, and the result of the pairs if there were any."""
    status = clean(change.status.replace("_", " "))
    result = change.confirmation
    if result is None:
        return status
    reason = f", {clean(result['reason'])}" if result["reason"] else ""
    return f"{status}{_pairs_text(change)}{reason}"


def _pairs_text(change: ChangeReport) -> str:
    """Return ` by 8 pairs: +10 %`; empty where no pairs were run."""
    result = change.confirmation
    if result is None or not result["pairs"]:
        return ""
    share = f" {change_text(result['ratio'])}" if result["ratio"] else ""
    return f" by {result['pairs']} pairs:{share}"


def methods_table(methods: Sequence[MethodReport]) -> Table:
    """Return a row for each method, with its main figure beside those of the nights before."""
    return Table(columns=_COLUMNS, rows=tuple(map(_row, methods)), narrow=_NARROW)


def _row(method: MethodReport) -> tuple[str, ...]:
    of = "" if method.asked is None else f"/{method.asked}"
    disturbed = f" ({method.disturbed} disturbed)" if method.disturbed else ""
    mark = " (canary)" if method.canary else ""
    main = method.main_figure
    trend = main.trend if main else None
    return (
        f"{method.name}{mark}",
        method.environment,
        f"{method.trials}{of}{disturbed}",
        figure_text(main) if main else "",
        last_night_text(trend),
        usual_text(trend),
        sparkline(trend.history) if trend else "",
        _others(method, main),
        method.state.replace("_", " "),
    )


def figure_text(figure: NightFigure) -> str:
    """Return `wall_time 2.5 s (2.4..2.6)`: the name, the median and its interval."""
    if figure.low is None or figure.high is None:
        return f"{figure.metric} {with_unit(figure.median, figure.unit)}"
    return f"{figure.metric} {spread(figure.median, figure.low, figure.high, figure.unit)}"


def _others(method: MethodReport, main: NightFigure | None) -> str:
    shown = [
        figure
        for figure in method.figures
        if figure is not main and figure.metric != PEAK_RSS and not figure.derived_from
    ]
    texts = [
        f"{figure.metric} {with_unit(figure.median, figure.unit)}"
        for figure in shown[:MOST_FIGURES]
    ]
    more = [f"{len(shown) - MOST_FIGURES} more"] if len(shown) > MOST_FIGURES else []
    return ", ".join([*texts, *more])
