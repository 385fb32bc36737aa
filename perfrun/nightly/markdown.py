"""A night as Markdown: for a pull request, a job summary, a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from perfrun.nightly.night_words import (
    Medium,
    findings,
    methods_table,
    other_changes,
    period,
    verdict,
)
from perfrun.nightly.report import MethodReport, NightReport
from perfrun.reports.table import markdown_text
from perfrun.shown import markdown as clean
from perfrun.shown import markdown_code

MOST_ROWS = 500  # a job summary may have 1 MiB
MARKDOWN = Medium(clean=clean, owner=partial(clean, may_mention=True), commits=markdown_code)


def markdown(report: NightReport) -> str:
    """Return the document: failures and regressions first, then all methods, then notes."""
    parts = [f"# {clean(report.suite)}: {verdict(report)}", _head(report)]
    wrong, known = findings(report, MARKDOWN), other_changes(report, MARKDOWN)
    if wrong:
        parts += ["## To be looked at", _list(wrong)]
    if known:
        parts += ["## Other changes of the last nights", _list(known)]
    if report.methods:
        parts += ["## Methods", _table(report.methods)]
    if report.notes:
        parts += ["## Notes", _list([clean(note) for note in report.notes])]
    return "\n\n".join(parts) + "\n"


def _list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _head(report: NightReport) -> str:
    lines = [f"Night `{report.night}`, {period(report)}."]
    lines += [
        f"{clean(name)} at {markdown_code(commit[:12])}." for name, commit in report.commits.items()
    ]
    return "\n".join(lines)


def _table(methods: Sequence[MethodReport]) -> str:
    left = len(methods) - MOST_ROWS
    more = f"\n\n{left} more are in the JSON report." if left > 0 else ""
    return markdown_text(methods_table(methods[:MOST_ROWS])).rstrip() + more
