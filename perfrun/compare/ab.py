"""`perfrun ab --a=FLAGS --b=FLAGS`: run pairs of trials until it is decided which is slower."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.analysis import pairs as rules
from perfrun.analysis.pairs import PairRule
from perfrun.analysis.two_sets import Comparison
from perfrun.compare.command import comparison_row, difference_row
from perfrun.compare.comparison_table import (
    comparison_table,
    derived_lines,
    environment_lines,
    reason_lines,
)
from perfrun.compare.differences import Difference, differences
from perfrun.compare.pair_progress import Undecided, command_lines, pairs_needed, undecided_lines
from perfrun.compare.paired_runs import (
    ArmName,
    PairLimits,
    PairResult,
    arm_plan,
    comparisons,
    decider,
    log_ratios,
    run_pairs,
    shared_rule,
)
from perfrun.errors import Interrupted, UsageError
from perfrun.options.command_line import parse
from perfrun.options.parsers import CommandParser, parse_shell_words, parse_whole, split_at_dashes
from perfrun.options.plan import RunPlan, refuse_baseline
from perfrun.reports.terminal import Terminal
from perfrun.shown import say, write_json, write_lines
from perfrun.summary.derived_metrics import DerivedRatio, derived_ratios, derived_rows
from perfrun.summary.document import to_json
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.result_folder import write_whole

_EPILOG = """\
All other flags are flags of a run and apply to both arms. --a and --b hold the flags of one arm,
with flags of its benchmark after --:
  perfrun ab --a='--python=old/bin/python' --b='--python=new/bin/python' \\
      --benchmark_methods=pkg.mod.Class.method

Exit status: 0 nothing is slower by --metric, 1 something is, or failed, 2 wrong usage, 130
interrupted. All of it is in docs/guides/comparing.md.
"""


def parser() -> CommandParser:
    """Return the parser of the flags that a run does not have."""
    made = CommandParser(
        "perfrun ab",
        "Run A and B in randomised pairs until it is decided which is slower.",
        _EPILOG,
        "perfrun ab --a=FLAGS --b=FLAGS [flags of a run] [-- flags of the benchmark]",
    )
    made.flag("--a", "FLAGS", "flags of arm A, quoted as for a shell", default="")
    made.flag("--b", "FLAGS", "flags of arm B", default="")
    made.flag("--metric", "NAME", "the metric that decides (default wall_time)")
    most, count = rules.MAX_PAIRS, partial(parse_whole, least=rules.FEWEST_PAIRS)
    made.flag("--max_pairs", "N", f"most pairs of a method (default {most})", count, most)
    made.add_pair_rules(rules.MIN_EFFECT)
    return made


@dataclass(frozen=True, kw_only=True)
class AbPlan:
    """The command line of `perfrun ab`."""

    plans: dict[ArmName, RunPlan]
    workspace: Path
    rule: PairRule
    limits: PairLimits
    metric: str
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class AbAnswer:
    """The comparisons of one call, and the pairs that they are made of."""

    comparisons: tuple[Comparison, ...]
    derived: Mapping[tuple[str, str], tuple[DerivedRatio, ...]]  # by method and primary metric
    differences: tuple[Difference, ...]
    result: PairResult
    stopped_by: str


def ab_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun ab`."""
    asked = parse_ab(argv)
    plan = asked.plans["a"]
    as_json = plan.output_format == "json"
    screen = Terminal(
        sys.stderr if as_json else sys.stdout, sys.stderr, quiet=plan.quiet, verbose=plan.verbose
    )
    answer = compare_arms(asked, screen)
    record = _write(asked, answer, screen)
    if as_json:
        write_json({**_document(answer), "record": record})
    else:
        _show(asked, answer, record, screen, argv)
    if answer.result.interrupted:
        say("interrupted; `--resume` with the same flags goes on from here")
        return Interrupted.exit_code
    # The error rate holds for the metric that decides; each of the others has its own.
    bad = any(c.verdict == "slower" and c.metric == asked.metric for c in answer.comparisons)
    return 1 if bad or "failed" in answer.result.stopped_by.values() else 0


def parse_ab(argv: Sequence[str]) -> AbPlan:
    """Parse the command line, without touching a file. Raises UsageError."""
    words, after = split_at_dashes(argv)
    given, common = parser().parse_known_args(words)
    count = given.max_pairs
    plans: dict[ArmName, RunPlan] = {}
    workspaces = set()
    for name, text in (("a", given.a), ("b", given.b)):
        own, own_after = split_at_dashes(parse_shell_words(text, f"--{name}"))
        last = [*after, *own_after]
        try:
            plan = parse([*common, *own, *(["--", *last] if last else [])], also=parser())
        except UsageError as error:
            raise UsageError(f"arm {name}: {error}") from None
        _refuse_repetition(plan)
        workspaces.add(plan.workspace)
        plans[name] = arm_plan(plan, name, plan.workspace, count)  # type: ignore[index,arg-type]
    if len(workspaces) > 1:
        raise UsageError("--workspace: both arms share it; each gets a folder of its own there")
    return AbPlan(
        plans=plans,
        workspace=workspaces.pop(),
        rule=rules.PairRule(max_pairs=count, min_effect=given.min_effect),
        limits=PairLimits(max_pairs=count, time_s=given.time_budget),
        metric=given.metric or WALL_TIME,
        seed=given.seed,
    )


def compare_arms(asked: AbPlan, screen: Terminal) -> AbAnswer:
    """Run the pairs and judge them."""
    result = run_pairs(
        asked.plans,
        screen,
        decider(asked.rule),
        asked.limits,
        metric=asked.metric,
        seed=asked.seed,
        check_names=True,
        shown_by=asked.rule,
    )
    every = [pair for pairs in result.pairs.values() for pair in pairs]
    judged = comparisons(result, asked.rule, asked.metric)
    return AbAnswer(
        comparisons=judged,
        derived={(c.method, c.metric): _derived(result, c.method, c.metric) for c in judged},
        differences=differences([p.a for p in every], [p.b for p in every]),
        result=result,
        stopped_by=_stopped_by(result),
    )


def _derived(result: PairResult, method: str, metric: str) -> tuple[DerivedRatio, ...]:
    pairs = result.pairs[method]
    arms = [pair.a for pair in pairs], [pair.b for pair in pairs]
    return derived_ratios(*arms, metric, count_disturbed=True)


def _stopped_by(result: PairResult) -> str:
    """Return the worst of the methods' reasons; `decided` when all of them are."""
    order = ("interrupted", "failed", "no_figure", "time_budget", "max_pairs")
    reasons = set(result.stopped_by.values())
    return next((reason for reason in order if reason in reasons), "decided")


def _document(answer: AbAnswer) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    result = answer.result
    every = [pair for pairs in result.pairs.values() for pair in pairs]
    return {
        "comparisons": [
            {
                **comparison_row(one),
                "derived": derived_rows(answer.derived.get((one.method, one.metric), ())),
                "stopped_by": result.stopped_by[one.method],
            }
            for one in answer.comparisons
        ],
        "pairs": len(every),
        "stopped_by": answer.stopped_by,
        "seed": result.seed,
        "environment_differences": [difference_row(d) for d in answer.differences],
        "run_ids": dict(result.run_ids),
        "failed": {
            "a": sum(not pair.a.ran for pair in every),
            "b": sum(not pair.b.ran for pair in every),
        },
    }


def _write(asked: AbPlan, answer: AbAnswer, screen: Terminal) -> str | None:
    """Write the answer and the pairs beside the workspaces of the arms; return the file's path."""
    pairs = [
        {
            "method": method,
            "pair": pair.number,
            "first": pair.first,
            "a": str(pair.a.path),
            "b": str(pair.b.path),
            "values": pair.values(asked.metric),
        }
        for method, found in answer.result.pairs.items()
        for pair in found
    ]
    path = asked.workspace / "ab" / f"{answer.result.run_ids['a']}.json"
    try:
        write_whole(path, to_json({**_document(answer), "trials": pairs}))
    except OSError as error:
        screen.problem(f"{path} could not be written: {error.strerror}")
        return None
    return str(path)


def _show(
    asked: AbPlan, answer: AbAnswer, record: str | None, screen: Terminal, argv: Sequence[str]
) -> None:
    """Print the table, then the reasons for stopping, derived metrics and differences."""
    screen.table(comparison_table(answer.comparisons))
    reasons = ", ".join(
        f"{method}: {len(answer.result.pairs[method])} pairs, {reason}"
        for method, reason in answer.result.stopped_by.items()
    )
    screen.lines(
        [
            "",
            f"base is a, new is b. {reasons}. Seed {answer.result.seed}.",
            *reason_lines(answer.comparisons),
            *derived_lines(answer.comparisons, answer.derived),
            *environment_lines(answer.differences),
            *([f"Pairs and trials: {record}"] if record else []),
        ]
    )
    undecided = [] if answer.result.interrupted else _undecided(asked, answer)
    screen.lines(["", *undecided_lines(undecided)] if undecided else [])
    # As it is: a command that is cut at blanks cannot be copied.
    write_lines(command_lines(undecided, argv))


def _undecided(asked: AbPlan, answer: AbAnswer) -> list[Undecided]:
    """Return the methods whose pairs or time were spent before they decided."""
    result = answer.result
    rule = shared_rule(asked.rule, len(result.pairs))
    found = []
    for method, reason in result.stopped_by.items():
        ratios = log_ratios(result.pairs[method], asked.metric)
        if reason in ("max_pairs", "time_budget") and ratios:
            found.append(
                Undecided(
                    method=method,
                    log_ratios=ratios,
                    needed=pairs_needed(ratios, rule),
                    pair_s=result.pair_s[method],
                )
            )
    return found


def _refuse_repetition(plan: RunPlan) -> None:
    """Raise UsageError for flags that say how often a method runs: the pairs decide that."""
    refuse_baseline(plan, "perfrun ab")
    if plan.repetition.precision is not None or plan.num_trials != 1:
        raise UsageError(
            "perfrun ab: pairs run until the methods are decided; limit them by --max_pairs and "
            "--time_budget, not by --benchmark_num_trials or --precision"
        )
    if plan.metrics is not None:
        raise UsageError("perfrun ab: judges every metric; --metric=NAME says which one decides")
    if plan.repetition.max_reruns or plan.execution_id:
        raise UsageError("perfrun ab: takes neither --max_reruns nor --execution_id")
