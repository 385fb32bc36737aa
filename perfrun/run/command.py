"""`perfrun` without the name of a command: run benchmark methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from perfrun.errors import Interrupted
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.reports.terminal import Terminal
from perfrun.run.runner import run
from perfrun.shown import say, write_json
from perfrun.summary.document import TrialResult
from perfrun.summary.estimates import RunResult, run_document


class Judgement(Protocol):
    """The answer to how a run compares with its baseline."""

    @property
    def status(self) -> int:
        """The exit status that follows from it."""

    @property
    def document(self) -> Mapping[str, Any]:
        """The key `baseline` of what `--format=json` prints."""

    def show(self) -> None:
        """Print it."""


Judge = Callable[[RunResult], Judgement]


def run_command(argv: Sequence[str], make_judge: Callable[[RunPlan], Judge] | None = None) -> int:
    """Run the methods, show their results and return the exit status.

    `make_judge` is called for a plan with a baseline, before anything runs. A method that did not
    pass outweighs what the comparison says.
    """
    plan = parse(argv)
    judge = make_judge(plan) if make_judge and plan.baseline else None
    result, judgement = _run_and_show(plan, judge)
    if result.interrupted:
        return Interrupted.exit_code
    bad = [
        trial
        for trial in result.trials
        if not trial.status.ran or (trial.status == "out_of_bounds" and plan.fail_on_bounds)
    ]
    return 1 if bad else judgement.status if judgement else 0


def run_and_show(
    plan: RunPlan, extra_lines: Callable[[TrialResult], Sequence[str]] = lambda _: ()
) -> RunResult:
    """Carry out the plan and print its results: tables, `extra_lines` of each trial, JSON."""
    return _run_and_show(plan, None, extra_lines)[0]


def _run_and_show(
    plan: RunPlan,
    judge: Judge | None,
    extra_lines: Callable[[TrialResult], Sequence[str]] = lambda _: (),
) -> tuple[RunResult, Judgement | None]:
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
    judgement = judge(result) if judge and not result.interrupted else None
    if as_json:
        document = {**run_document(result), "workspace": str(plan.workspace)}
        if judgement:
            document["baseline"] = judgement.document
        write_json(document)
        sys.stdout.flush()  # another program reads it: it must be complete
    elif judgement:
        judgement.show()
    if result.interrupted:
        say("interrupted; `--resume` with the same flags goes on from here")
    return result, judgement
