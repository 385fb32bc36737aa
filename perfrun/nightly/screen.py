"""A night on a terminal: the same as in its Markdown, drawn to the width that there is."""

from __future__ import annotations

from perfrun.nightly.night_words import (
    Medium,
    findings,
    methods_table,
    other_changes,
    period,
    verdict,
)
from perfrun.nightly.report import NightReport
from perfrun.reports.terminal import Terminal
from perfrun.shown import cell, line

_TERMINAL = Medium(clean=line, owner=line, commits=cell)


def show(report: NightReport, screen: Terminal) -> None:
    """Draw the verdict, what is to be looked at, the table of methods, and the notes."""
    lines = [f"{report.suite}: {verdict(report)}", f"{report.night}, {period(report)}"]
    lines += [f"{name} at {commit[:12]}" for name, commit in report.commits.items()]
    for heading, texts in (
        ("To be looked at:", findings(report, _TERMINAL)),
        ("Other changes of the last nights:", other_changes(report, _TERMINAL)),
    ):
        if texts:
            lines += ["", heading, *(f"  {text}" for text in texts)]
    screen.lines([*lines, ""])
    if report.methods:
        screen.table(methods_table(report.methods))
    if report.notes:
        screen.lines(["", *(f"Note: {note}" for note in report.notes)])
