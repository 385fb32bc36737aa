"""`perfrun show RESULT|last`: one screen about a trial."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perfrun.compare.baselines import LAST
from perfrun.compare.selection import Results
from perfrun.options.parsers import CommandParser, parse_workspace
from perfrun.reports.run_table import shown_path
from perfrun.reports.sparkline import can_show_blocks
from perfrun.reports.table import Column, Table, aligned
from perfrun.reports.terminal import Terminal
from perfrun.show.run_again import RunAgain, run_again
from perfrun.show.screen import WIDTH, colours, screen
from perfrun.show.view import TrialView, view
from perfrun.shown import line, say, write_json, write_lines
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord
from perfrun.text import columns, duration

_ABOUT = "Show a trial on one screen: figures, steps, memory, phases, grade, how to run it again."
_EPILOG = """\
RESULT is a folder, a summary, or a choice of the results in --workspace: an execution id, run,
label, commit, date, baseline, or `last` for the newest trial (the default). The prefixes run:,
label:, id:, hash:, date: and baseline: say which of these a word is. Of several trials a list is
shown, from which one can be chosen.

Exit status: 0, or 2 when there is no such result. All of it is in docs/reference/results.md.
"""
_COLUMNS = (
    Column(heading="trial"),
    Column(heading="outcome"),
    Column(heading="grade"),
    Column(heading="wall time", right=True),
)
_MOST_LISTED = 100  # trials; a folder may hold a hundred thousand


def parser() -> CommandParser:
    """Return the parser of `perfrun show`."""
    made = CommandParser("perfrun show", _ABOUT, _EPILOG)
    made.add_argument("result", metavar="RESULT", nargs="?", default=LAST, help="what to show")
    made.add_workspace()
    made.add_store()
    made.add_format()
    return made


def show_command(argv: Sequence[str]) -> int:
    """Run `perfrun show`; return its exit status."""
    given = parser().parse_args(list(argv))
    workspace = parse_workspace(given.workspace)
    records = Results(workspace, say, given.store).select(given.result)
    newest_first = sorted(records, key=lambda one: (one.timestamp, one.execution_id), reverse=True)
    is_last = given.result in (LAST, f"run:{LAST}") and not Path(given.result).exists()
    chosen = newest_first[0] if is_last or len(records) == 1 else None
    if given.format == "json":
        write_json(_document(chosen, newest_first, workspace))
        return 0
    if chosen is not None:
        again = run_again(chosen, workspace)
        shown = view(chosen)
        shown = replace(shown, summary=shown_path(shown.summary)) if shown.summary else shown
        terminal = Terminal(sys.stdout, sys.stderr, quiet=False)
        can = can_show_blocks(sys.stdout)
        width = columns() if sys.stdout.isatty() else WIDTH
        drawn = screen(shown, again, blocks=can, width=width)
        terminal.lines(drawn, colours(shown), laid_out=True)
        if len(records) > 1:
            of_run = shlex.join([*_show_words(given), f"run:{chosen.run_id}"])
            write_lines([f"the last of {len(records)} trials; all of its run: {of_run}"])
    else:
        write_lines(_list_lines(newest_first, given))
    return 0


def _show_words(given: Any) -> list[str]:
    flags = [
        f"--{name}={getattr(given, name)}"
        for name in ("workspace", "store")
        if getattr(given, name)
    ]
    return ["perfrun", "show", *flags]


def _list_lines(records: Sequence[SummaryRecord], given: Any) -> list[str]:
    """Return the trials by method, newest first, and how one of them is chosen."""
    listed = records[:_MOST_LISTED]
    ids = [record.execution_id for record in records]
    names = {r.uid: _name(r, ids.count(r.execution_id) == 1) for r in listed}
    lines = [f"{len(records)} trials, the newest first"]
    for method in dict.fromkeys(record.method for record in listed):
        own = [record for record in listed if record.method == method]
        rows = tuple((names[r.uid], r.status.value, r.grade or "-", _wall_time(r)) for r in own)
        heads, *others = aligned(Table(columns=_COLUMNS, rows=rows))
        lines += ["", line(method), f"  {heads}", *(f"  {one}" for one in others)]
    if len(records) > len(listed):
        lines.append(f"and {len(records) - len(listed)} older ones")
    choose = shlex.join([*_show_words(given), names[listed[0].uid]])
    return [*lines, "", f"show one of them: {choose}"]


def _name(record: SummaryRecord, is_unique: bool) -> str:
    """Return the word that chooses the trial: its execution id where no other trial has it."""
    if is_unique or not record.path.name:
        return record.execution_id
    return shown_path(str(record.path.parent))


def _wall_time(record: SummaryRecord) -> str:
    value = record.values.get(WALL_TIME)
    return "-" if value is None else duration(value)


def _document(
    chosen: SummaryRecord | None, records: Sequence[SummaryRecord], workspace: Path
) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    return {
        "shown": None if chosen is None else _shown(chosen, run_again(chosen, workspace)),
        "trials": [
            {
                "execution_id": one.execution_id,
                "run_id": one.run_id,
                "method": one.method,
                "trial_id": one.trial_id,
                "timestamp": one.timestamp,
                "outcome": one.status.value,
                "grade": one.grade,
                "summary": str(one.path) if one.path.name else None,
            }
            for one in records
        ],
    }


def _shown(record: SummaryRecord, again: RunAgain) -> dict[str, Any]:
    found: TrialView = view(record)
    return {
        **asdict(found),
        "metrics": [
            {
                "name": one.name,
                "value": one.value,
                "unit": one.unit,
                "direction": one.direction,
                "derived_from": one.derived_from or None,
            }
            for one in record.metrics.values()
        ],
        "again": {
            "command": again.command or None,
            "words": list(again.words),
            "lacks": list(again.lacks),
            "why_not": again.why_not or None,
            "is_own": again.is_own,
        },
    }
