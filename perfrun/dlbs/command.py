"""`perfrun dlbs`: an ordinary run, and then its results in the form of DLBS' logs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.dlbs.lines import result_lines
from perfrun.dlbs.parsing import parse_experiment
from perfrun.document import TrialResult
from perfrun.errors import Interrupted
from perfrun.reports.terminal import Terminal
from perfrun.results import run_document
from perfrun.runner import run
from perfrun.worker.rows import read_rows


def dlbs_command(argv: Sequence[str]) -> int:
    """Run the experiment and print its log lines. 1 when it failed: DLBS' script said 0 then."""
    experiment = parse_experiment(argv)
    plan = experiment.plan
    as_json = plan.output_format == "json"
    stream = sys.stderr if as_json else sys.stdout
    screen = Terminal(stream, sys.stderr, quiet=plan.quiet)
    result = run(plan, screen)
    screen.results(result.trials)
    screen.methods(result.methods)
    for trial in result.trials:
        lines = result_lines(experiment, trial.document, _times_s(trial))
        stream.write("".join(f"{line}\n" for line in lines))
    if as_json:
        document = {**run_document(result), "workspace": str(plan.workspace)}
        sys.stdout.write(json.dumps(document) + "\n")
    if result.interrupted:
        sys.stderr.write("perfrun: interrupted; `--resume` with the same flags goes on from here\n")
        return Interrupted.exit_code
    return 0 if all(trial.status.ran for trial in result.trials) else 1


def _times_s(trial: TrialResult) -> list[float]:
    """Every timed step of the first series: its rows, which have them all; else its summary's."""
    series: Sequence[Mapping[str, Any]] = trial.document["perfrun"]["series"]
    if not series:
        return []
    rows_file = series[0].get("rows_file")
    if rows_file:
        path = Path(trial.summary).parent / "perfrun" / str(rows_file)
        try:
            rows = read_rows(str(path))
        except OSError:
            pass
        else:
            return [
                wall_ns / steps / 1e9
                for wall_ns, steps in zip(rows.wall_ns, rows.steps, strict=True)
                if steps > 0
            ]
    return [float(one) for one in series[0].get("times_s") or ()]
