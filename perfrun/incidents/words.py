"""The sentences about incidents, for each medium: a terminal, Markdown, a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date

from perfrun.incidents.incident import Commits, Drifting, Incident, Worsening
from perfrun.reports.figures import changed_by, time_left
from perfrun.reports.table import Column, Table, aligned
from perfrun.shown import cell, markdown_code, page
from perfrun.shown import markdown as markdown_of
from perfrun.text import counted

Clean = Callable[[str], str]
_HASH = 12
_MOST_DIFFERENCES = 5
_NONE_OPEN = "No incident is open."


def status_text(one: Incident) -> str:
    """Return the status in words."""
    return one.status.replace("_", " ")


def incident_text(
    one: Incident, clean: Clean, commits: Clean, owner: Clean, *, pairs: str = ""
) -> str:
    """Return one line: what became worse since when, the status, the owner and the cause.

    `pairs` is what pairs have found of one of its changes, as ` by 8 pairs: +10 %`.
    """
    largest = one.largest
    methods = counted(len(one.methods), "method")
    of = f" ({owner(one.owner)})" if one.owner else ""
    return (
        f"incident {one.id}{of}: {methods} worse since the night of {one.began}, most "
        f"{clean(largest.method)}: {clean(largest.metric)} {changed_by(largest.ratio)} "
        f"({status_text(one)}{pairs}): {cause_text(one, clean, commits)}"
        f"{search_text(one, '; found by ')}{explained_text(one, clean)}"
    )


def search_text(one: Incident, before: str) -> str:
    """Return what the search for the commit has cost, after some words; '' where none found it."""
    found = one.bisection
    if found is None or found.state != "found" or not found.trials:
        return ""
    return f"{before}{counted(found.trials, 'trial')} in {time_left(found.spent_s)}"


def explained_text(one: Incident, clean: Clean) -> str:
    """Return what profiles have named, after a semicolon; '' without any."""
    rows = () if one.explanation is None else one.explanation.rows
    return f"; {'; '.join(map(clean, rows))}" if rows else ""


def cause_text(one: Incident, clean: Clean, commits: Clean) -> str:
    """Return the cause as far as it is known."""
    if one.culprit is not None:
        culprit = one.culprit
        author = f" of {clean(culprit.author)}" if culprit.author else ""
        subject = f": {clean(culprit.subject)}" if culprit.subject else ""
        several = len(one.main.commits) > 1 and bool(culprit.repository)
        repository = f"{clean(culprit.repository)} " if several else ""
        return f"{repository}{commits(culprit.name[:_HASH])}{author}{subject}"
    differences = _differences(one.differences, clean)
    if one.kind == "drift" and one.drift is not None:
        return drift_text(one.drift)
    parts = [commits_text(one.main.commits, clean, commits), differences]
    if one.kind == "machine":
        parts.insert(0, "the machine, as a canary moved too")
    return ", or ".join(part for part in parts if part) or "nothing else is known to differ"


def drift_text(drift: Drifting) -> str:
    """Return the words about a level that moved a little every night."""
    nights = max(1, (date.fromisoformat(drift.end) - date.fromisoformat(drift.begin)).days)
    return (
        f"a drift, {changed_by(drift.ratio)} from {drift.begin} to {drift.end} "
        f"({changed_by(drift.ratio ** (1 / nights))} a night), and no single night"
    )


def commits_text(moved: Commits, clean: Clean, commits: Clean) -> str:
    """Return `models 1a2b3c4d5e6f..6f7a8b9c0d1e` for each checkout that moved."""
    pairs = {name: [one[:_HASH] or "none" for one in pair] for name, pair in moved.items()}
    return "; ".join(f"{clean(name)} {commits('..'.join(pair))}" for name, pair in pairs.items())


def fixed_text(one: Incident, clean: Clean, commits: Clean, owner: Clean) -> str:
    """Return the line about an incident whose levels have returned."""
    fix = one.fix
    assert fix is not None
    of = f" ({owner(one.owner)})" if one.owner else ""
    by = commits_text(fix.commits, clean, commits)
    return (
        f"incident {one.id}{of} is fixed: {counted(len(one.methods), 'method')}, most "
        f"{clean(one.largest.method)}, at the old level since the night of {fix.night}"
        f"{f': {by}' if by else ''}"
    )


def text_of(incidents: Sequence[Incident], notes: Iterable[str], closed: int) -> str:
    """Return the list for a terminal, and the number of closed incidents that it leaves out."""
    lines: list[str] = []
    for one in incidents:
        lines += [f"{one.id}  {_head(one)}", *(f"   {fact}" for fact in _facts(one)), ""]
    lines += [] if incidents else [_NONE_OPEN if closed else "There is no incident."]
    lines += [f"{counted(closed, 'closed incident')}: perfrun incidents --all"] if closed else []
    return page([*lines, *notes])


def one_text(one: Incident) -> str:
    """Return all that is known of an incident, with a line for each change."""
    columns = tuple(
        Column(heading=name, right=name == "change")
        for name in ("method", "metric", "change", "interval", "night", "seen", "pairs", "back")
    )
    rows = tuple(_row(change) for change in one.changes)
    table = aligned(Table(columns=columns, rows=rows))
    return page([f"incident {one.id}: {_head(one)}", *_facts(one), "", *table])


def markdown_list(incidents: Sequence[Incident], closed: int) -> str:
    """Return the list as Markdown."""
    lines = [
        f"- {incident_text(one, markdown_of, markdown_code, markdown_of)}"
        if one.fix is None
        else f"- {fixed_text(one, markdown_of, markdown_code, markdown_of)}"
        for one in incidents
    ]
    lines += [] if lines else [_NONE_OPEN]
    lines += ["", f"{counted(closed, 'closed incident')} left out."] if closed else []
    return "\n".join(lines) + "\n"


def _head(one: Incident) -> str:
    largest = one.largest
    return (
        f"{status_text(one)}, began {one.began}, seen {one.first_seen}: "
        f"{counted(len(one.methods), 'method')}, {largest.metric} {changed_by(largest.ratio)} "
        f"({changed_by(largest.low)} to {changed_by(largest.high)}) {largest.method}"
    )


def _facts(one: Incident) -> list[str]:
    facts = [f"cause: {cause_text(one, cell, cell)}"]
    facts += _cause_facts(one)
    facts += [f"owner: {one.owner}"] if one.owner else []
    if one.decision is not None:
        reason = f": {one.decision.reason}" if one.decision.reason else ""
        facts.append(f"{one.decision.what} {one.decision.day}{reason}")
    if one.fix is not None:
        by = commits_text(one.fix.commits, cell, cell)
        facts.append(f"back at the old level since {one.fix.night}{f': {by}' if by else ''}")
    return facts


def _cause_facts(one: Incident) -> list[str]:
    search = search_text(one, "bisection: found by ")
    facts = [search] if search else []
    if one.bisection is not None and one.bisection.state == "ended":
        facts.append(f"bisection: ended without a commit: {one.bisection.why}")
    if one.explanation is not None:
        facts += [f"profiles: {row}" for row in one.explanation.rows]
        facts += [f"profiles: none, {one.explanation.why}"] if one.explanation.why else []
        is_empty = not (one.explanation.rows or one.explanation.why)
        facts += ["profiles: they name nothing"] if is_empty else []
    return facts


def _row(change: Worsening) -> tuple[str, ...]:
    status: Mapping[str, str] = {"candidate": "-", "not_reproduced": "not reproduced"}
    return (
        f"{change.method} {change.settings}".rstrip(),
        change.metric,
        changed_by(change.ratio),
        f"{changed_by(change.low)} to {changed_by(change.high)}",
        change.night,
        change.alarm_night,
        status.get(change.status, change.status),
        "-" if change.returned is None else change.returned.night,
    )


def _differences(texts: Sequence[str], clean: Clean) -> str:
    more = len(texts) - _MOST_DIFFERENCES
    shown = [clean(text) for text in texts[:_MOST_DIFFERENCES]]
    return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])
