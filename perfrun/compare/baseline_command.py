"""`perfrun baseline set|list|rm`: name sets of results that others are compared with."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from perfrun.compare import baselines
from perfrun.compare.baselines import Baseline
from perfrun.compare.selection import Results
from perfrun.errors import PerfrunError, UsageError
from perfrun.options.parsers import CommandParser, nearest, parse_workspace
from perfrun.reports.table import Column, Table
from perfrun.reports.terminal import Terminal
from perfrun.shown import say, write_json, write_prose
from perfrun.summary.document import Status
from perfrun.summary.record import SummaryRecord
from perfrun.text import counted

ACTIONS = ("set", "list", "rm")
_ABOUT = "Name sets of results, which later results are compared with."
_EPILOG = """\
  perfrun baseline set NAME [SELECTION ...]  name results (without SELECTION
                                             the latest run)
  perfrun baseline list                      show those of the workspace
  perfrun baseline rm NAME ...               forget them; results stay

SELECTION is what `perfrun compare` takes: a folder, a run, label, commit, date or `last`. A
baseline is used by its name: `perfrun compare NAME last`, `perfrun --baseline=NAME ...`. It names
trials and does not copy them; `perfrun prune` keeps them.

Exit status: 0, or 2 when there is no such baseline or no such result. All of it is in
docs/guides/comparing.md.
"""
_GOOD_GRADES = ("", "A", "B", "C")  # '' of a trial that nobody has judged
_COLUMNS = (
    Column(heading="baseline"),
    Column(heading="trials", right=True),
    Column(heading="gone", right=True),
    Column(heading="methods", right=True),
    Column(heading="from"),
    Column(heading="to"),
    Column(heading="set to"),
)


def parser() -> CommandParser:
    """Return the parser of `perfrun baseline`."""
    usage = "perfrun baseline set NAME [SELECTION ...] | list | rm NAME ... [flags]"
    made = CommandParser("perfrun baseline", _ABOUT, _EPILOG, usage)
    made.add_argument("action", metavar="set|list|rm", help="what to do")
    made.add_argument("words", metavar="NAME", nargs="*", help="a baseline, then SELECTION")
    made.add_workspace()
    made.add_store()
    made.add_format()
    return made


def baseline_command(argv: Sequence[str]) -> int:
    """Run `perfrun baseline`; return its exit status."""
    given = parser().parse_intermixed_args(list(argv))
    workspace = parse_workspace(given.workspace)
    if given.action not in ACTIONS:
        near = nearest(given.action, ("set", "list"))  # a word is never taken for a removal
        hint = f"did you mean {near}?" if near else f"say one of {', '.join(ACTIONS)}"
        raise UsageError(f"perfrun baseline: {given.action!r} is no action; {hint}")
    if given.action == "list":
        if given.words:
            raise UsageError("perfrun baseline list: takes no name; it shows all baselines")
        return _list(workspace, as_json=given.format == "json")
    if not given.words:
        raise UsageError(f"perfrun baseline {given.action}: name a baseline")
    if given.action == "rm":
        return _remove(workspace, given.words, as_json=given.format == "json")
    return _set(workspace, given)


def _set(workspace: Path, given: Any) -> int:
    name, *words = given.words
    baselines.checked_name(name)
    results = Results(workspace, say, given.store)
    selection = words or [baselines.LAST]
    chosen = [record for word in selection for record in results.select(word)]
    chosen = results.without_quarantine(chosen, f"baseline {name}")
    ended = [record for record in chosen if record.ran]
    if not ended:
        raise UsageError(
            f"perfrun baseline set {name}: no trial of {' '.join(selection)} has ended by itself"
        )
    correct = [record for record in ended if record.status is Status.PASSED]
    if not correct:
        raise UsageError(
            f"perfrun baseline set {name}: each trial of {' '.join(selection)} has missed a bound "
            "of its figures, so what it did cannot be a baseline"
        )
    usable = _good(correct)
    for count, what in (
        (len(chosen) - len(ended), "failed or did not end"),
        (len(ended) - len(correct), "missed a bound of its figures"),
        (len(correct) - len(usable), "disturbed, or of grade D or worse"),
    ):
        if count:
            say(f"{counted(count, 'trial')} left out: {what}")
    before = _before(workspace, name)
    made = baselines.write(workspace, name, selection, usable)
    if given.format == "json":
        write_json(_row(made, workspace))
    else:
        write_prose([_set_line(made, before), *_hints(made, usable)])
    return 0


def _good(records: Sequence[SummaryRecord]) -> list[SummaryRecord]:
    """Return the trials of each method that are undisturbed and of a good grade.

    Where most of a method's are not, that is how this machine measures, and all of them count.
    """
    found = []
    for method in dict.fromkeys(record.method for record in records):
        own = [record for record in records if record.method == method]
        good = [r for r in own if not r.disturbed and r.grade in _GOOD_GRADES]
        found += good if 2 * len(good) >= len(own) else own
    return found


def _before(workspace: Path, name: str) -> Baseline | None:
    try:
        return baselines.read(workspace, name)
    except PerfrunError:  # it is replaced, whatever is wrong with it
        return None


def _set_line(made: Baseline, before: Baseline | None) -> str:
    what = f"{counted(len(made.trials), 'trial')} of {counted(len(made.methods), 'method')}"
    old = f"; before it was {counted(len(before.trials), 'trial')}" if before else ""
    return f"baseline {made.name}: {what}, {_span(made)}{old}"


def _hints(made: Baseline, records: Sequence[SummaryRecord]) -> list[str]:
    disturbed = sum(record.disturbed for record in records)
    lines = [f"{counted(disturbed, 'trial')} disturbed"] if disturbed else []
    fewest = min(sum(r.method == method for r in records) for method in made.methods)
    if fewest == 1:
        lines.append("a method with one trial has no interval: a comparison with it stays open")
    return [*lines, f"compare with it: perfrun compare {made.name} last"]


def _list(workspace: Path, *, as_json: bool) -> int:
    found, failures = [], []
    for name in baselines.names(workspace):
        try:
            one = baselines.read(workspace, name)
        except PerfrunError as error:
            failures.append(error.line)
            continue
        if one is not None:
            found.append(one)
    for line in [*failures, *(note for one in found for note in one.notes)]:
        say(line)
    if as_json:
        write_json({"baselines": [_row(one, workspace) for one in found]})
    elif found:
        rows = tuple(_cells(one, workspace) for one in found)
        table = Table(columns=_COLUMNS, rows=rows)
        Terminal(sys.stdout, sys.stderr, quiet=False).table(table)
    else:
        write_prose([f"no baseline in {workspace}; `perfrun baseline set NAME` makes one"])
    return 2 if failures else 0


def _remove(workspace: Path, names: Sequence[str], *, as_json: bool) -> int:
    known = baselines.names(workspace)
    for name in names:
        if name not in known:
            baselines.named(workspace, name)  # it says what is wrong, before anything is removed
    for name in dict.fromkeys(names):
        baselines.remove(workspace, name)
    if as_json:
        write_json({"removed": list(dict.fromkeys(names))})
    else:
        write_prose(f"baseline {name}: removed; its results stay" for name in dict.fromkeys(names))
    return 0


def _cells(one: Baseline, workspace: Path) -> tuple[str, ...]:
    begin, end = _times(one)
    gone = _gone(one, workspace)
    return (
        one.name,
        str(len(one.trials)),
        str(gone) if gone else "-",
        str(len(one.methods)),
        begin,
        end,
        " ".join(one.selection) or "-",
    )


def _row(one: Baseline, workspace: Path) -> dict[str, Any]:
    return {
        "name": one.name,
        "set_at": one.set_at,
        "selection": list(one.selection),
        "methods": list(one.methods),
        "trials": [
            {
                "execution_id": trial.execution_id,
                "method": trial.method,
                "timestamp": trial.timestamp,
                "summary": str(baselines.place_of(trial, workspace) or "") or None,
            }
            for trial in one.trials
        ],
        "gone": _gone(one, workspace),
    }


def _gone(one: Baseline, workspace: Path) -> int:
    """Return how many summaries are not where they were; an index may still have their figures."""
    places = [baselines.place_of(trial, workspace) for trial in one.trials]
    return sum(place is not None and not os.path.lexists(place) for place in places)


def _times(one: Baseline) -> tuple[str, str]:
    times = [trial.timestamp for trial in one.trials] or [one.set_at]
    return _day(min(times)), _day(max(times))


def _span(one: Baseline) -> str:
    begin, end = _times(one)
    return f"of {begin}" if begin == end else f"from {begin} to {end}"


def _day(timestamp: float) -> str:
    try:
        return f"{datetime.fromtimestamp(timestamp):%Y-%m-%d}"
    except (OverflowError, OSError, ValueError):  # beyond Python's calendar
        return "-"
