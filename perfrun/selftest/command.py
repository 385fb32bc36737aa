"""Run `perfrun selftest`: workloads with reference values, compared with what perfrun measures.

All goes the way of a user's run: command line, workspace, worker in the environment under test,
summaries on disk, which are then read back.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

from perfrun.errors import Interrupted, UsageError
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.reports.table import Column, Table, TableCell, coloured
from perfrun.reports.terminal import Terminal
from perfrun.run.progress import Screen
from perfrun.run.runner import run
from perfrun.selftest.reference import Documents, ReferenceCheck, ReferenceRow, checks, read_peak
from perfrun.shown import say, write_json, write_lines
from perfrun.text import with_unit

ATTEMPTS = 3  # a busy machine may disturb one
CLASS = "perfrun.worker.calibrated.Calibrated"
# The flags that say where the workloads run and how the result is shown; what runs is fixed.
FLAGS = (
    *("python", "image", "image_python", "trial_network", "cpuset", "memory", "shm_size", "gpus"),
    *("pids_limit", "workspace", "timeout", "debug", "format"),
)
_COLUMNS = (
    Column(heading="what"),
    *(Column(heading=name, right=True) for name in ("reference", "measured", "error", "allowed")),
    Column(heading="verdict"),
)
_COLOURS = {"ok": "green", "off": "red"}
_FLAG_LINES = fill(
    ", ".join(f"--{name}" for name in FLAGS),
    width=78,
    initial_indent="  ",
    subsequent_indent="  ",
    break_on_hyphens=False,
)
_HELP = f"""\
usage: perfrun selftest [--python=FILE | --image=NAME] [--format=table|json]
                        [flags]

Run workloads of known length, size and outcome, and compare what perfrun
measures with the reference values. The flags are those of a run that say
where it runs:
{_FLAG_LINES}
Results are deleted unless --workspace is given.

Exit status: 0 no row is off, 1 a row is off, 2 wrong usage. All of it is in
docs/research/measurement.md.
"""


def selftest_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun selftest`; return 1 when a row is off, else 0."""
    if "--help" in argv or "-h" in argv:
        write_lines(_HELP.splitlines())
        return 0
    _check(argv)
    with ExitStack() as stack:
        words = list(argv)
        if not any(word.partition("=")[0] == "--workspace" for word in argv):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perfrun-selftest-"))
            words.append(f"--workspace={folder}")
        shown = parse([*words, "--allow_empty"])
        screen = _Notes()
        rows = judged(checks(read_peak()), lambda names: _run(words, names, screen), screen.note)
    if shown.output_format == "json":
        write_json(selftest_document(rows))
    else:
        screen_of_results = Terminal(sys.stdout, sys.stderr, quiet=True)
        screen_of_results.table(selftest_table(rows))
        screen_of_results.lines([verdicts_line(rows)])
    return 1 if any(row.verdict == "off" for row in rows) else 0


def _check(argv: Sequence[str]) -> None:
    """Refuse flags of a run that have no meaning here."""
    for word in argv:
        name = word.partition("=")[0]
        if name.startswith("-") and name.lstrip("-") not in FLAGS:
            known = ", ".join(f"--{flag}" for flag in FLAGS)
            raise UsageError(f"perfrun selftest: {name}: no such flag here; there are {known}")


class _Notes:
    """A screen that shows only notes; what the workloads print is in their folders."""

    is_live = False

    def note(self, text: str) -> None:
        say(text)

    problem = note

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    prepare = trial_started = trial_finished = profile_started = profile_finished = _ignore
    stdout = stderr = outlook = trial_ended = pair_finished = _ignore


def _run(words: Sequence[str], names: Sequence[str], screen: Screen) -> Documents:
    """Run workloads as a user would, and read their summaries from disk."""
    methods = ",".join(f"{CLASS}.{name}" for name in names)
    plan: RunPlan = parse([*words, f"--benchmark_methods={methods}"])
    result = run(plan, screen)
    if result.interrupted:
        raise Interrupted("selftest: interrupted")
    return {
        trial.name.rpartition(".")[2]: json.loads(Path(trial.summary).read_text(encoding="utf-8"))
        for trial in result.trials
    }


def judged(
    wanted: Sequence[ReferenceCheck],
    run_workloads: Callable[[Sequence[str]], Documents],
    note: Callable[[str], None],
) -> tuple[ReferenceRow, ...]:
    """Run and judge the checks; those that are off run again, and the best row of each counts."""
    rows: dict[str, ReferenceRow] = {}
    left = list(wanted)
    for attempt in range(1, ATTEMPTS + 1):
        names = tuple(dict.fromkeys(name for check in left for name in check.workloads))
        if attempt > 1:
            off = ", ".join(check.what for check in left)
            note(f"selftest: these were off and run once more: {off}")
        documents = run_workloads(names)
        for check in left:
            row = check.row(documents)
            if check.what not in rows or row.distance < rows[check.what].distance:
                rows[check.what] = row
        left = [check for check in left if rows[check.what].verdict == "off"]
        if not left:
            break
    return tuple(rows[check.what] for check in wanted)


def selftest_document(rows: Sequence[ReferenceRow]) -> dict[str, Any]:
    """Return the document of `--format=json`."""
    return {"rows": [asdict(row) for row in rows], "passed": all(r.verdict != "off" for r in rows)}


def selftest_table(rows: Sequence[ReferenceRow]) -> Table:
    """Return a table with reference and measured value, one row a check."""
    return Table(columns=_COLUMNS, rows=tuple(map(_cells, rows)))


def verdicts_line(rows: Sequence[ReferenceRow]) -> str:
    """Return how many rows have each verdict."""
    counts = {v: sum(row.verdict == v for row in rows) for v in ("ok", "off", "skipped")}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _cells(row: ReferenceRow) -> tuple[str | TableCell, ...]:
    verdict = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
    return (
        row.what,
        _value(row.truth, row.unit),
        _value(row.measured, row.unit),
        "" if row.error is None else _percent(row.error),
        "" if row.allowed is None else f"{_percent(row.allowed[0])} .. {_percent(row.allowed[1])}",
        coloured(verdict, _COLOURS.get(row.verdict, "")),
    )


def _value(value: float | str | None, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if unit == "bytes":
        return f"{value / 2**20:.2f} MiB"
    return with_unit(value, unit, 5)


def _percent(share: float) -> str:
    return f"{100 * share:+.2f} %"
