"""`perfrun` without the name of a command: run benchmark methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from perfrun.errors import Interrupted
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.reports.terminal import Terminal
from perfrun.run.runner import run
from perfrun.shown import say, write_json
from perfrun.summary.document import TrialResult
from perfrun.summary.estimates import RunResult, run_document


def run_command(argv: Sequence[str]) -> int:
    """Run the methods, show their results and return the exit status."""
    plan = parse(argv)
    result = run_and_show(plan)
    if result.interrupted:
        return Interrupted.exit_code
    bad = [
        trial
        for trial in result.trials
        if not trial.status.ran or (trial.status == "out_of_bounds" and plan.fail_on_bounds)
    ]
    return 1 if bad else 0


def run_and_show(
    plan: RunPlan, extra_lines: Callable[[TrialResult], Sequence[str]] = lambda _: ()
) -> RunResult:
    """Carry out the plan and print its results: tables, `extra_lines` of each trial, JSON."""
    as_json = plan.output_format == "json"
    stream = sys.stderr if as_json else sys.stdout
    terminal = Terminal(
        stream, sys.stderr, quiet=plan.quiet, verbose=plan.verbose, metrics=plan.metrics
    )
    result = run(plan, terminal, check_names=True)
    terminal.results(result.trials, result.methods, plan.repetition.precision)
    for trial in result.trials:
        stream.write("".join(f"{line}\n" for line in extra_lines(trial)))
    if plan.print_perfzero_summary:
        from perfrun.run.perfzero_prints import closing_prints

        stream.write(closing_prints(result))
    if as_json:
        document = {**run_document(result), "workspace": str(plan.workspace)}
        write_json(document)
        sys.stdout.flush()  # another program reads it: it must be complete
    if result.interrupted:
        say("interrupted; `--resume` with the same flags goes on from here")
    return result
