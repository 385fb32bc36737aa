"""`perfrun fleet [SUBMISSION]`: what ran, what is missing, what failed and why."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfrun.errors import PerfrunError, UsageError
from perfrun.fleet.engines import Engine, engine_named
from perfrun.fleet.submissions import bring_in, engines_of, find_plan, look, missing_of, name_of
from perfrun.fleet.submit import submit_shards
from perfrun.options.parsers import CommandParser, nearest, parse_workspace, shown
from perfrun.reports.table import markdown_text
from perfrun.reports.terminal import Terminal
from perfrun.shards import standing, sweep_table
from perfrun.shards.plan import Plan
from perfrun.shards.status import ShardStatus
from perfrun.shards.telling import Teller
from perfrun.shown import line, say, write_json, write_lines

_LOOK_S = 15.0  # between two looks at what waits or runs
_MOST_FAILURES = 40  # looks in a row at a cluster that does not answer: ten minutes
_ABOUT = "Show what ran of a submission, what is missing, and what failed and why."
_EPILOG = """\
SUBMISSION is an id, a folder of a submission, or `last`, the newest one. Results that have come in
since are collected into the workspace first.

Exit status: 0, also while shards wait or run; 1 when a shard failed or has no result; 2 an engine
that cannot be asked. All of it is in docs/guides/fleet.md.
"""


def fleet_parser() -> CommandParser:
    """Return the parser of `perfrun fleet`."""
    made = CommandParser("perfrun fleet", _ABOUT, _EPILOG)
    made.add_argument("submission", metavar="SUBMISSION", nargs="?", default="last", help="its id")
    made.add_workspace()
    made.add_store()
    made.add_format(("table", "json", "markdown"))
    made.switch("--table", "print the results: a row a setting, a column a metric")
    about = "metric of --table (default: the first primary ones); may be given again"
    made.flag("--metric", "NAME", about, action="append", default=[])
    made.switch("--wait", "go on until nothing waits or runs, and collect what comes")
    made.switch("--resubmit", "submit what has no result, as `perfrun submit --resume` does")
    made.switch("--cancel", "cancel what waits or runs")
    made.switch("--no_engine", "only read the files: do not ask the engine")
    return made


def fleet_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun fleet`; return the exit status."""
    given = fleet_parser().parse_intermixed_args(list(argv))
    if given.metric and not given.table:
        raise UsageError("--metric: is of --table")
    if given.format == "markdown" and not given.table:
        raise UsageError("--format=markdown: is of --table")
    asked = [name for name in ("table", "resubmit", "cancel") if getattr(given, name)]
    if given.wait and (given.resubmit or given.cancel or given.no_engine):
        raise UsageError("--wait: goes with --table, --format and --store only")
    if len(asked) > 1 or (given.no_engine and (given.resubmit or given.cancel)):
        also = asked[1] if len(asked) > 1 else "no_engine"
        raise UsageError(f"--{asked[0]}: does not go with --{also}; give one of them")
    plan = find_plan(parse_workspace(given.workspace), given.submission)
    engines = () if given.no_engine else engines_of(plan)
    if given.cancel:
        open_now = [one.shard.index for one in look(plan, engines) if not one.state.has_result]
        # One that stays refuses; where a scheduler has shards, they are what is meant.
        for one in [one for one in engines if not one.stays] or engines:
            one.cancel(plan, open_now)
        say(f"{plan.submission}: what waited or ran is cancelled")
    found = look(plan, engines)
    bring_in(plan, found, given.store)
    if given.wait:
        found = _wait(plan, engines, found, given.store)
    as_json = given.format == "json"
    if given.resubmit:
        engine = engine_named(plan.engine)
        engine.check(plan.options)
        missing = missing_of(found)
        return submit_shards(plan, engine, plan.options, missing, given.store, as_json=as_json)
    if given.table:
        rows = sweep_table.rows_of(plan, found, given.metric)
        _check_metrics(plan, found, given.metric, rows)
        _show_table(rows, plan.folder, given.format)
    else:
        standing.show(plan, found, name_of(plan), as_json=as_json)
    return 1 if any(one.state.is_bad for one in found) else 0


def _wait(
    plan: Plan, engines: Sequence[Engine], found: tuple[ShardStatus, ...], store: str | None
) -> tuple[ShardStatus, ...]:
    """Look again until no shard is open, and say how each of them ends; return the last look."""
    teller = Teller(plan, [one.shard.index for one in found if one.state.is_open])
    failures = 0
    while open_now := {one.shard.index for one in found if one.state.is_open}:
        time.sleep(_LOOK_S)
        try:
            found = look(plan, engines)
            failures = 0
        except PerfrunError as error:  # a cluster that does not answer for a moment
            failures += 1
            if failures == _MOST_FAILURES:
                raise
            say(f"{line(str(error), 500)}; it is asked again")
            continue
        bring_in(plan, found, store)
        for one in found:
            if one.shard.index in open_now and not one.state.is_open:
                teller.ended(one.shard.index)
    return found


def _check_metrics(
    plan: Plan, found: Sequence[ShardStatus], names: Sequence[str], rows: Sequence[sweep_table.Row]
) -> None:
    """Raise UsageError for a metric that no trial has."""
    there = {name for row in rows for name in row.values}
    unknown = next((name for name in names if name not in there), None)
    if unknown is None or not rows:
        return
    known = sorted(sweep_table.metrics_of(plan, found))
    near = nearest(unknown, known)
    hint = f"did you mean {near}?" if near else f"there are: {', '.join(known[:20]) or 'none'}"
    raise UsageError(f"--metric={shown(unknown)}: no trial has it; {hint}")


def _show_table(rows: Sequence[sweep_table.Row], folder: Path, form: str) -> None:
    if form == "json":
        document: dict[str, Any] = {"submission": folder.name, "rows": sweep_table.document(rows)}
        write_json(document)
    elif rows and form == "markdown":
        write_lines(markdown_text(sweep_table.table(rows)).rstrip("\n").split("\n"))
    elif rows:
        Terminal(sys.stdout, sys.stderr, quiet=True).table(sweep_table.table(rows))
    else:
        write_lines(["no trial of it has ended by itself yet"])
