"""A night as Markdown: for a pull request, a job summary, a chat."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perfrun.nightly.report import ChangeReport, MethodReport, NightReport
from perfrun.reports.table import Column, Table, markdown_text
from perfrun.shown import markdown as clean
from perfrun.shown import markdown_code
from perfrun.summary.metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.text import with_unit

MOST_ROWS = 500  # a job summary may have 1 MiB
_COLUMNS = (
    Column(heading="environment"),
    Column(heading="method"),
    Column(heading="trials", right=True),
    Column(heading="wall time", right=True),
    Column(heading="throughput", right=True),
    Column(heading="other figures"),
    Column(heading="state"),
)
MOST_FIGURES = 3  # beside wall time and throughput; the other reports have all


def markdown(report: NightReport) -> str:
    """Return the document: failures and regressions first, then all methods, then notes."""
    parts = [f"# {clean(report.suite)}: {_verdict(report)}", _head(report)]
    wrong = [*(f"- {clean(error)}" for error in report.errors), *map(_bad_line, report.bad)]
    wrong += map(_change_line, report.regressions)
    if wrong:
        parts += ["## To be looked at", "\n".join(wrong)]
    known = [change for change in report.changes if not change.is_regression]
    if known:
        parts += ["## Other changes of the last nights", "\n".join(map(_change_line, known))]
    if report.methods:
        parts += ["## Methods", _table(report.methods)]
    if report.notes:
        parts += ["## Notes", "\n".join(f"- {clean(note)}" for note in report.notes)]
    return "\n\n".join(parts) + "\n"


def _verdict(report: NightReport) -> str:
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
    counts += [_many(len(report.regressions), "regression")] if report.regressions else []
    counts += [_many(len(report.errors), "error")] if report.errors else []
    return ", ".join(counts)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _head(report: NightReport) -> str:
    begun, ended = (datetime.fromtimestamp(at).astimezone() for at in (report.begun, report.ended))
    lines = [
        f"Night `{report.night}`, {begun:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} ({begun:%Z})."
    ]
    lines += [
        f"{clean(name)} at {markdown_code(commit[:12])}." for name, commit in report.commits.items()
    ]
    return "\n".join(lines)


def _bad_line(method: MethodReport) -> str:
    owner = f" ({clean(method.owner, may_mention=True)})" if method.owner else ""
    state = method.state.replace("_", " ")
    return (
        f"- {clean(method.method)} in {clean(method.environment)}{owner}: "
        f"{state}: {clean(method.why or '')}"
    )


def _change_line(change: ChangeReport) -> str:
    owner = f" ({clean(change.owner, may_mention=True)})" if change.owner else ""
    commits = [
        f"{clean(name)} {_commits(change.commits_before.get(name, ''), after)}"
        for name, after in change.commits_after.items()
        if change.commits_before.get(name, after) != after
    ]
    others = [clean(text) for text in change.environment_differences]
    why = "; ".join([*commits, *others]) or "nothing else is known to differ"
    doubt = ", a canary moved too" if change.machine_suspect else ""
    return (
        f"- {clean(change.method)} in {clean(change.environment)}{owner}: "
        f"{clean(change.metric)} {change.direction}, {(change.ratio - 1) * 100:+.1f} % "
        f"since the night of {change.night} ({_standing(change)}{doubt}): {why}"
    )


def _commits(before: str, after: str) -> str:
    return markdown_code(f"{before[:12]}..{after[:12]}")


def _standing(change: ChangeReport) -> str:
    """Return the status, and the result of the pairs if there were any."""
    status = clean(change.status.replace("_", " "))
    result = change.confirmation
    if result is None:
        return status
    share = f" {(result['ratio'] - 1) * 100:+.1f} %" if result["ratio"] else ""
    pairs = f" by {result['pairs']} pairs:{share}" if result["pairs"] else ""
    reason = f", {clean(result['reason'])}" if result["reason"] else ""
    return f"{status}{pairs}{reason}"


def _table(methods: Sequence[MethodReport]) -> str:
    shown = Table(columns=_COLUMNS, rows=tuple(map(_row, methods[:MOST_ROWS])))
    left = len(methods) - MOST_ROWS
    more = f"\n\n{left} more are in the JSON report." if left > 0 else ""
    return markdown_text(shown).rstrip() + more


def _row(method: MethodReport) -> tuple[str, ...]:
    of = "" if method.asked is None else f"/{method.asked}"
    disturbed = f" ({method.disturbed} disturbed)" if method.disturbed else ""
    mark = " (canary)" if method.canary else ""
    return (
        method.environment,
        f"{method.method}{mark}",
        f"{method.trials}{of}{disturbed}",
        _figure(method, WALL_TIME),
        _figure(method, THROUGHPUT),
        _others(method),
        method.state.replace("_", " "),
    )


def _figure(method: MethodReport, metric: str) -> str:
    for figure in method.figures:
        if figure.metric == metric:
            return with_unit(figure.median, figure.unit)
    return ""


def _others(method: MethodReport) -> str:
    shown = [
        f
        for f in method.figures
        if f.metric not in (WALL_TIME, THROUGHPUT, PEAK_RSS) and not f.derived_from
    ]
    texts = [
        f"{figure.metric} {with_unit(figure.median, figure.unit)}"
        for figure in shown[:MOST_FIGURES]
    ]
    more = [f"{len(shown) - MOST_FIGURES} more"] if len(shown) > MOST_FIGURES else []
    return ", ".join([*texts, *more])
