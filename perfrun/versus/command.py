"""`perfrun versus`: compares frameworks in one table."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from perfrun.errors import Interrupted
from perfrun.reports.terminal import Terminal
from perfrun.shown import say, write_json
from perfrun.summary.document import to_json
from perfrun.summary.result_folder import write_whole
from perfrun.versus.answer import VersusAnswer, answer_of, machine_text
from perfrun.versus.options import Combine, VersusPlan, parse_versus
from perfrun.versus.result_file import Combined, combine, find_saved, row_of, versus_document
from perfrun.versus.trials import Trials, run_trials
from perfrun.versus.versus_table import (
    failure_lines,
    markdown_page,
    software_lines,
    undecided_lines,
    versus_table,
)

# Why the rounds of a case ended, where the key's own word would not be clear.
_STOPPED = {"max_pairs": "all rounds", "time_budget": "--time_budget spent"}


def versus_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun versus` and return its exit status: 1 when something failed."""
    asked = parse_versus(argv)
    if isinstance(asked, Combine):
        return _combine(asked)
    begun = time.time()
    progress = sys.stdout if asked.output_format == "table" else sys.stderr
    screen = Terminal(progress, sys.stderr, quiet=asked.quiet)
    trials = run_trials(asked, screen)
    answer = answer_of(asked, trials)
    whole = versus_document(asked, trials, answer, begun)
    record = _write(asked, trials, whole, screen)
    if asked.output_format == "json":
        write_json({**whole, "record": record})
    else:
        lines = [*_lines(asked, trials, answer), *([f"All of it: {record}"] if record else [])]
        _show(_title(asked.model), answer, lines, asked.output_format)
    if trials.interrupted:
        say("interrupted; `--resume` with the same flags goes on from here")
        return Interrupted.exit_code
    return 1 if any(cell.failure for cell in answer.cells) else 0


def _write(
    asked: VersusPlan, trials: Trials, whole: dict[str, Any], screen: Terminal
) -> str | None:
    """Write the result beside the workspaces of the arms; return its path."""
    first = next(run for runs in trials.run_ids.values() for run in runs.values())
    path = asked.workspace / "versus" / f"{first}.json"
    try:
        write_whole(path, to_json(whole))
    except OSError as error:
        screen.problem(f"{path} could not be written: {error.strerror}")
        return None
    return str(path)


def _lines(asked: VersusPlan, trials: Trials, answer: VersusAnswer) -> list[str]:
    """Return the lines below the table."""
    cases = "; ".join(
        f"{name}: {len(blocks)} ({_STOPPED.get(why := trials.stopped_by[name], why)})"
        for name, blocks in trials.blocks.items()
    )
    ratio = f"Ratio: latency over that of {asked.arms[0].label}." if answer.ratios else ""
    failed = [f"Failed: {line}" for line in failure_lines(answer.cells)]
    versions = software_lines(answer.cells)
    undecided = [f"Undecided: {line}." for line in undecided_lines(answer.ratios)]
    seed = f"Rounds: {cases}. Seed {trials.seed}."
    platform = f"Platform: {answer.platform_name}: {machine_text(answer.machine)}."
    lines = (*failed, ratio, *undecided, seed, platform, *versions, *answer.notes)
    return [line for line in lines if line]


def _combine(asked: Combine) -> int:
    combined = combine(find_saved(asked.sources), asked.prices)
    failed = [f"Failed: {line}" for line in failure_lines(combined.cells)]
    if asked.output_format == "json":
        write_json(_combined_document(combined))
    else:
        title = _title(combined.sources[0].model)
        undecided = [f"Undecided: {line}." for line in undecided_lines(combined.ratios)]
        _show(title, combined, [*failed, *undecided, *combined.notes], asked.output_format)
    return 1 if failed else 0


def _combined_document(combined: Combined) -> dict[str, Any]:
    return {
        "sources": [str(one.path) for one in combined.sources],
        "machines": {one.platform_name: dict(one.machine) for one in combined.sources},
        "cells": [row_of(one) for one in combined.cells],
        "comparisons": [row_of(one) for one in combined.ratios],
        "notes": list(combined.notes),
    }


def _title(model: str | None) -> str:
    return f"perfrun versus: {model}" if model else "perfrun versus"


def _show(
    title: str, found: VersusAnswer | Combined, lines: Sequence[str], output_format: str
) -> None:
    table = versus_table(found.cells, found.ratios)
    if output_format == "markdown":
        sys.stdout.write(markdown_page(title, table, lines))
        return
    screen = Terminal(sys.stdout, sys.stderr, quiet=True)
    screen.table(table)
    screen.lines(["", *lines])
