"""`perfrun selftest`: run workloads whose truth is known, and hold the results against it.

Everything goes the way of a user's run: command line, workspace, worker in the environment under
test, summaries on disk, which are then read back.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfrun.errors import Interrupted, UsageError
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.reports.table import Column, Table, plain_text
from perfrun.run.runner import run
from perfrun.selftest.reference import Documents, ReferenceCheck, ReferenceRow, checks, read_peak
from perfrun.summary.document import TrialResult
from perfrun.text import with_unit

ATTEMPTS = 3  # a busy machine may spoil one
CLASS = "perfrun.worker.calibrated.Calibrated"
# Where the workloads run, and how the result is shown. What is run is not for the user to say.
FLAGS = (
    *("python", "image", "image_python", "trial_network", "cpuset", "memory", "shm_size", "gpus"),
    *("pids_limit", "workspace", "timeout", "debug", "format"),
)
_COLUMNS = (
    Column(heading="what"),
    *(Column(heading=name, right=True) for name in ("truth", "measured", "error", "allowed")),
    Column(heading="verdict"),
)
_HELP = f"""\
usage: perfrun selftest [--python=FILE | --image=NAME] [--format=table|json] [flags]

Run workloads of known length, size and outcome, and hold what perfrun measures against the truth.
Flags are those of a run that say where it runs: {", ".join(f"--{name}" for name in FLAGS)}.
Results are thrown away unless --workspace is given.

Exit status: 0 nothing is off, 1 something is, 2 wrong usage. All of it is in docs/measurement.md.
"""


def selftest_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun selftest`: 0 when no row is off, 1 when one is."""
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(_HELP)
        return 0
    _check(argv)
    with ExitStack() as stack:
        words = list(argv)
        if not any(word.partition("=")[0] == "--workspace" for word in argv):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perfrun-selftest-"))
            words.append(f"--workspace={folder}")
        shown = parse([*words, "--allow_empty"])
        screen = _Screen()
        rows = judged(checks(read_peak()), lambda names: _run(words, names, screen), screen.note)
    if shown.output_format == "json":
        sys.stdout.write(json.dumps(document(rows)) + "\n")
    else:
        sys.stdout.write(table(rows))
    return 1 if any(row.verdict == "off" for row in rows) else 0


def _check(argv: Sequence[str]) -> None:
    """Refuse flags of a run that mean nothing here."""
    for word in argv:
        name = word.partition("=")[0]
        if name.startswith("-") and name.lstrip("-") not in FLAGS:
            known = ", ".join(f"--{flag}" for flag in FLAGS)
            raise UsageError(f"perfrun selftest: {name}: no such flag here; there are {known}")


class _Screen:
    """Says on standard error what goes on; what the workloads print is in their folders."""

    def prepare(self) -> None:
        pass

    def note(self, text: str) -> None:
        sys.stderr.write(f"perfrun: {text}\n")

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        pass

    def stdout(self, text: str) -> None:
        pass

    def stderr(self, text: str) -> None:
        pass

    def trial_finished(self, result: TrialResult) -> None:
        pass

    def profile_started(self, method: str, kind: str) -> None:
        pass

    def profile_finished(self, result: TrialResult) -> None:
        pass


def _run(words: Sequence[str], names: Sequence[str], screen: _Screen) -> Documents:
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
    """Run what the checks need and judge; what is off is run again, and its best row counts."""
    rows: dict[str, ReferenceRow] = {}
    left = list(wanted)
    for attempt in range(1, ATTEMPTS + 1):
        names = tuple(dict.fromkeys(name for check in left for name in check.workloads))
        if attempt > 1:
            off = ", ".join(check.what for check in left)
            note(f"selftest: once more, for what was off: {off}")
        documents = run_workloads(names)
        for check in left:
            row = check.row(documents)
            if check.what not in rows or row.distance < rows[check.what].distance:
                rows[check.what] = row
        left = [check for check in left if rows[check.what].verdict == "off"]
        if not left:
            break
    return tuple(rows[check.what] for check in wanted)


def document(rows: Sequence[ReferenceRow]) -> dict[str, Any]:
    """What `--format=json` prints."""
    return {"rows": [asdict(row) for row in rows], "passed": all(r.verdict != "off" for r in rows)}


def table(rows: Sequence[ReferenceRow]) -> str:
    """Aligned text: truth against measured, one row a check."""
    text = plain_text(Table(columns=_COLUMNS, rows=tuple(map(_cells, rows))))
    counts = {v: sum(row.verdict == v for row in rows) for v in ("ok", "off", "skipped")}
    return (
        text + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) + "\n"
    )


def _cells(row: ReferenceRow) -> tuple[str, ...]:
    verdict = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
    return (
        row.what,
        _value(row.truth, row.unit),
        _value(row.measured, row.unit),
        "" if row.error is None else _percent(row.error),
        "" if row.allowed is None else f"{_percent(row.allowed[0])} .. {_percent(row.allowed[1])}",
        verdict,
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
