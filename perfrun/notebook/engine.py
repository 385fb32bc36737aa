"""A run in a process of its own, as a notebook starts it: `perfrun run` with its JSON read back.

The notebook's process stays as it is: a run takes signals, adopts the orphans of its trials and
watches /proc, which is nothing for a process that holds somebody's data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.run import own_process
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.summary.series_identity import objects, text
from perfrun.untrusted import Refused, parse_json, read_file

_GRACE_S = 30.0  # for a run to write its summaries when it is interrupted
_LARGEST_ANSWER = 1 << 26


@dataclass(frozen=True, kw_only=True)
class RunAnswer:
    """What a run has left: its trials, and the lines that it printed about problems."""

    records: tuple[SummaryRecord, ...]
    problems: tuple[str, ...]


def run(words: Sequence[str], *, keeps_files: bool) -> RunAnswer:
    """Carry out `perfrun run WORDS`; without `keeps_files` the records name no files.

    Raises UsageError for wrong words, KeyboardInterrupt when Ctrl-C ended it, PerfrunError for the
    rest.
    """
    with tempfile.TemporaryDirectory(prefix="perfrun-answer-") as folder:
        answer = Path(folder, "answer.json")
        status, problems = _carried_out([*words, "--format=json", "--quiet"], answer)
        if status == UsageError.exit_code:
            raise UsageError("; ".join(problems) or "perfrun run: wrong usage")
        if status == Interrupted.exit_code:
            raise KeyboardInterrupt
        if status not in (0, 1):
            raise PerfrunError("; ".join(problems) or f"perfrun run ended with status {status}")
        records = _records(answer)
    if not keeps_files:
        records = [replace(record, path=Path()) for record in records]
    return RunAnswer(records=tuple(records), problems=problems)


def _carried_out(words: Sequence[str], answer: Path) -> tuple[int, tuple[str, ...]]:
    """Run the command; return its exit status, and the last lines of its standard error."""
    with answer.open("wb") as stdout, tempfile.TemporaryFile() as stderr:
        process = own_process.begin(["run", *words], stdout, stderr)
        try:
            status = process.wait()
        except BaseException:
            own_process.end(process, _GRACE_S)
            raise
        stderr.seek(0)
        said = own_process.said_lines(stderr.read(_LARGEST_ANSWER))
    return status, tuple(said[-20:])


def _records(answer: Path) -> list[SummaryRecord]:
    try:
        document: Any = parse_json(read_file(answer, _LARGEST_ANSWER))
        paths = [text(one.get("summary")) for one in objects(document.get("results"))]
        return [read_record(Path(path)) for path in paths]
    except (OSError, Refused, ValueError, AttributeError) as error:
        raise PerfrunError(f"the run's answer cannot be read: {error}") from None
