"""`perfrun` without the name of a command: run benchmark methods."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from perfrun.errors import Interrupted
from perfrun.options.command_line import parse
from perfrun.reports.terminal import Terminal
from perfrun.run.runner import run
from perfrun.summary.estimates import run_document


def run_command(argv: Sequence[str]) -> int:
    """Run the methods and show what came of them; return the exit status."""
    plan = parse(argv)
    as_json = plan.output_format == "json"
    terminal = Terminal(sys.stderr if as_json else sys.stdout, sys.stderr, quiet=plan.quiet)
    result = run(plan, terminal)
    terminal.results(result.trials)
    terminal.methods(result.methods)
    if as_json:
        document = {**run_document(result), "workspace": str(plan.workspace)}
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()  # another program reads it: make sure that it has left us
    if result.interrupted:
        sys.stderr.write("perfrun: interrupted; `--resume` with the same flags goes on from here\n")
        return Interrupted.exit_code
    bad = [
        trial
        for trial in result.trials
        if not trial.status.ran or (trial.status == "out_of_bounds" and plan.fail_on_bounds)
    ]
    return 1 if bad else 0
