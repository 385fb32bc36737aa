"""`perfrun nodes`: name nodes that are slower than their equals, and leave their results out."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.changes.detect import parse_since
from perfrun.errors import UsageError
from perfrun.nodes.fleet_results import FleetResults, fleet_results
from perfrun.nodes.words import (
    SLOW,
    fingerprint_rows,
    lines_about,
    named,
    node_row,
    ordered,
    percent,
    period_row,
    quarantine_lines,
    table_of,
    verdict_text,
)
from perfrun.options.parsers import (
    CommandParser,
    nearest,
    parse_share,
    parse_word,
    parse_workspace,
    shown,
)
from perfrun.reports.terminal import Terminal
from perfrun.shown import say, write_json, write_prose
from perfrun.store import quarantine as file
from perfrun.store.command import bring_up_to_date, opened
from perfrun.store.quarantine import Period, Quarantine
from perfrun.summary.metrics import WALL_TIME

if TYPE_CHECKING:
    from perfrun.analysis.nodes import NodeFindings
    from perfrun.summary.record import SummaryRecord

_ACROSS = ("none", "software", "all")
_DAYS = 30  # whose results are judged without --since
_ACTIONS = ("quarantine", "release", "forget")
_EPILOG = """\
  perfrun nodes                     judge the nodes of the index
  perfrun nodes --quarantine=NODE   leave out what it measured and measures
  perfrun nodes --release=NODE      what it measures from now on counts again
  perfrun nodes --forget=NODE       everything that it measured counts again

Exit status: 0 no node is odd (or all that are, are in quarantine), 1 one is, 2 wrong usage or no
results. All of it is in docs/guides/nodes.md.
"""


def parser() -> CommandParser:
    """Return the parser of `perfrun nodes`."""
    made = CommandParser("perfrun nodes", __doc__, _EPILOG)
    made.flag("--since", "DATE|DAYSd", f"judge results from then on (default {_DAYS}d)")
    made.flag("--method", "PATTERN", "only these methods (* for any text)")
    made.flag("--metric", "PATTERN", f"compare these metrics (default {WALL_TIME})")
    canary = "a method that runs between the others on each node (repeatable; * for any text)"
    made.flag("--canary", "METHOD", canary, default=[], action="append")
    made.flag(
        "--across",
        "|".join(_ACROSS),
        "compare also nodes of other software, or of any kind (default none)",
        partial(parse_word, words=_ACROSS),
        _ACROSS[0],
    )
    error = "how often a fleet of equal nodes may have one named (default 0.5%%)"
    made.flag("--error", "PERCENT", error, partial(parse_share, above_zero=True))
    many: dict[str, Any] = {"default": [], "action": "append"}
    made.flag("--quarantine", "NODE", "leave out the results of this node (repeatable)", **many)
    made.flag("--release", "NODE", "let its later results count again (repeatable)", **many)
    made.flag("--forget", "NODE", "let all of its results count again (repeatable)", **many)
    made.switch("--quarantine_slow", "put the slow nodes that are found into quarantine")
    made.flag("--because", "TEXT", "with --quarantine: why, for those who ask later")
    made.flag("--from", "DATE|DAYSd", "with --quarantine: leave out its results from then on only")
    made.add_workspace()
    made.add_store()
    made.add_format()
    return made


def nodes_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun nodes`: 1 when a node is odd and in no quarantine."""
    given = parser().parse_args(list(argv))
    asked = [name for name in _ACTIONS if getattr(given, name)]
    if (given.because or vars(given)["from"]) and "quarantine" not in asked:
        raise UsageError("perfrun nodes: --because and --from go with --quarantine")
    if given.quarantine_slow and asked:
        raise UsageError(f"perfrun nodes: --quarantine_slow and --{asked[0]} exclude each other")
    workspace = parse_workspace(given.workspace)
    if asked:
        return _carry_out(given, workspace)
    known = file.read(workspace)  # what is wrong with it is said before the search
    found, results = _judged(given)
    if given.quarantine_slow:
        known = _put_in_slow_ones(found, results, known, workspace)
    if given.format == "json":
        write_json(_document(found, results, known, given))
    else:
        Terminal(sys.stdout, sys.stderr, quiet=False).table(table_of(found, results, known))
        write_prose(lines_about(found, results, known, _error(given)))
    return 1 if named(found, known) else 0


def _judged(given: argparse.Namespace) -> tuple[Sequence[NodeFindings], FleetResults]:
    """Read the results and judge their nodes. Raises UsageError when there are none."""
    from perfrun.analysis.nodes import judge_nodes  # numpy and scipy

    today = date.today()
    since = parse_since(given.since, today) or today - timedelta(days=_DAYS)
    with opened(given) as store:
        from perfrun.store.query import Selector

        bring_up_to_date(store, given)
        methods = (given.method, *given.canary) if given.method else ()
        records = list(store.trials(Selector(since=_midnight(since), methods=methods)))
        results = fleet_results(
            records,
            metric=given.metric or WALL_TIME,
            canaries=given.canary,
            across=given.across,
        )
        place = store.address.shown
    if not results.nodes:
        raise UsageError(
            f"{place} holds no results of that kind since {since.isoformat()} "
            "(--since=DATE takes earlier ones, `perfrun index DIR` reads those of other machines)"
        )
    _refuse_mistyped(given, records, results, place)
    judged = {one.node: one for one in judge_nodes(results.figures, _error(given))}
    return [judged.get(name) or _unjudged(name) for name in sorted(results.nodes)], results


def _refuse_mistyped(
    given: argparse.Namespace, records: Sequence[SummaryRecord], results: FleetResults, place: str
) -> None:
    """Raise UsageError for a metric or a canary that no trial has."""
    if given.metric and not results.figures:
        known = {name for record in records for name in record.metrics}
        raise _fits_nothing("--metric", given.metric, known, place)
    methods = {record.subject.method for record in records}
    for pattern in given.canary:
        if not any(fnmatchcase(name, pattern) for name in methods):
            raise _fits_nothing("--canary", pattern, methods, place)


def _fits_nothing(flag: str, pattern: str, known: Collection[str], place: str) -> UsageError:
    near = nearest(pattern, sorted(known))
    hint = f"; did you mean {shown(near)}?" if near else ""
    return UsageError(f"{flag}={shown(pattern)}: no result of {place} has it{hint}")


def _unjudged(name: str) -> NodeFindings:
    from perfrun.analysis.nodes import without_equals

    return without_equals(name)


def _error(given: argparse.Namespace) -> float:
    from perfrun.analysis.nodes import ERROR

    return given.error or ERROR


def _midnight(day: date) -> float:
    try:
        return max(0.0, datetime(day.year, day.month, day.day).timestamp())
    except (OverflowError, OSError, ValueError):  # before what this platform can tell
        return 0.0


def _document(
    found: Sequence[NodeFindings],
    results: FleetResults,
    known: Quarantine,
    given: argparse.Namespace,
) -> dict[str, Any]:
    return {
        "error": _error(given),
        "across": given.across,
        "nodes": [node_row(one, results, known) for one in ordered(found)],
        "fingerprints": fingerprint_rows(results),
        "disturbed": results.disturbed,
        "nameless": results.nameless,
        "quarantine": [period_row(one) for one in known.periods],
    }


def _put_in_slow_ones(
    found: Sequence[NodeFindings], results: FleetResults, known: Quarantine, workspace: Path
) -> Quarantine:
    now = time.time()
    slow = [one for one in named(found, known) if one.verdict in SLOW]
    for one in slow:
        if not file.is_name(one.node):
            say(f"{shown(one.node)} is no name of a node: it is not put into quarantine")
    fresh = [
        Period(node=one.node, at=now, because=_reason(one, results))
        for one in slow
        if file.is_name(one.node)
    ]
    if not fresh:
        return known
    return file.change(workspace, lambda before: file.put_in(before, fresh))


def _reason(one: NodeFindings, results: FleetResults) -> str:
    text = verdict_text(one, results)
    effect = f" ({percent(one.effect or 0.0)})" if one.verdict == "slow" else ""
    return f"{text}{effect}"[: file.LONGEST_REASON]


def _carry_out(given: argparse.Namespace, workspace: Path) -> int:
    """Put nodes into quarantine, or take them out of it. Raises UsageError."""
    now = time.time()
    begin = parse_since(vars(given)["from"], date.today(), "--from")
    because = " ".join((given.because or "").split())[: file.LONGEST_REASON]
    names = {name: _names(getattr(given, name), name) for name in _ACTIONS}
    every = [name for own in names.values() for name in own]
    if len({*every}) < len(every):
        raise UsageError("perfrun nodes: a node is named twice")
    if not workspace.is_dir():
        raise UsageError(f"--workspace={workspace}: is not there; name the workspace")
    fresh = [
        Period(
            node=node,
            at=now,
            because=because,
            since=None if begin is None else _midnight(begin),
        )
        for node in names["quarantine"]
    ]
    if fresh:
        _say_unknown(given, [one.node for one in fresh])

    def changed(before: Quarantine) -> Quarantine:
        for node in names["release"]:
            if before.of(node) is None:
                raise _not_there(node, [n for n in before.nodes if before.of(n)], workspace)
        for node in names["forget"]:
            if node not in before.nodes:
                raise _not_there(node, before.nodes, workspace)
        after = file.released(before, names["release"], now)
        return file.put_in(file.forgotten(after, names["forget"]), fresh)

    after = file.change(workspace, changed)
    if given.format == "json":
        write_json({"quarantine": [period_row(one) for one in after.periods]})
    else:
        write_prose(quarantine_lines(after))
    return 0


def _names(words: Sequence[str], flag: str) -> list[str]:
    """Return the names of nodes. Raises UsageError for one that no host can have."""
    for word in words:
        if not file.is_name(word):
            raise UsageError(f"--{flag}={shown(word)}: is no name of a node")
    return list(words)


def _not_there(node: str, known: Sequence[str], workspace: Path) -> UsageError:
    near = nearest(node, known)
    hint = f"did you mean {shown(near)}?" if near else "`perfrun nodes` lists those that are"
    return UsageError(f"node {shown(node)} is not in the quarantine of {workspace}; {hint}")


def _say_unknown(given: argparse.Namespace, nodes: Sequence[str]) -> None:
    """Say which nodes have no results: they may be mistyped, or come later."""
    with opened(given) as store:
        bring_up_to_date(store, given)
        known = store.nodes()
    for node in nodes:
        if node not in known:
            near = nearest(node, known)
            hint = f"; did you mean {shown(near)}?" if near else ""
            say(f"there are no results of node {shown(node)} yet{hint}")
