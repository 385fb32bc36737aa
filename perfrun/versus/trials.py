"""The trials of a comparison: prepares every arm, then runs blocks in random order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from perfrun.analysis import pairs as rules
from perfrun.analysis.pairs import PairRule
from perfrun.compare.paired_runs import ArmScreen, Block, Blocks, Pair, Reason, Trial, log_ratios
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.run.interruption import Interruption, taking_signals
from perfrun.run.journal import unfinished
from perfrun.run.progress import Screen
from perfrun.run.rounds import Rounds
from perfrun.run.runner import prepare
from perfrun.summary.metrics import PEAK_RSS, WALL_TIME
from perfrun.summary.record import SummaryRecord
from perfrun.versus.equality import refuse_unequal
from perfrun.versus.options import FEWEST_FOR_INTERVAL, VersusPlan
from perfrun.worker.procfs import adopt_orphans

DECIDES = WALL_TIME  # the metric that decides: median latency of a step
# Figures that are judged for each arm and case, and their names in a summary. The throughput is not
# among them, because it says the same as the latency.
JUDGED = {
    "latency_s": DECIDES,
    "peak_memory_bytes": PEAK_RSS,
    "cold_start_s": "cold_start_s",
    "framework_import_s": "framework_import_s",
}


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The trials of a comparison, and how they ended."""

    blocks: Mapping[str, tuple[Block, ...]]  # by case
    stopped_by: Mapping[str, Reason]  # by case
    not_run: Mapping[str, str]  # arm -> why it could not be prepared
    run_ids: Mapping[str, Mapping[int, str]]  # arm -> batch size -> run
    seed: int
    interrupted: bool


def run_trials(asked: VersusPlan, screen: Screen) -> Trials:
    """Run blocks of all cases until each is decided, or the limits are reached.

    An arm that cannot be prepared is left out. Raises UsageError when no arm is left, and
    Interrupted when a signal comes before the first trial.
    """
    adopt_orphans()
    seed = _seed(asked)
    with taking_signals() as interruption, ExitStack() as stack:
        prepared: dict[str, dict[int, Rounds]] = {}
        not_run: dict[str, str] = {}
        with interruption.allowed():
            for arm in asked.arms:
                label = arm.label
                try:
                    prepared[label] = _prepared(asked, label, screen, interruption, stack, seed)
                except Interrupted:
                    raise
                except PerfrunError as error:
                    not_run[label] = str(error)
                    screen.note(f"{label} is left out: {error}")
        if not prepared:
            same = len(set(not_run.values())) == 1
            reasons = not_run.values() if same else map(": ".join, not_run.items())
            raise UsageError(
                f"perfrun versus: nothing can be run: {'; '.join(dict.fromkeys(reasons))}"
            )
        return _run(asked, prepared, not_run, seed)


def _seed(asked: VersusPlan) -> int:
    """Return the seed: from the flag, from the comparison that is resumed, or at random."""
    if asked.seed is not None:
        return asked.seed
    for plan in asked.plans.values():
        resumed = unfinished(plan.workspace / "runs", plan) if plan.resume else None
        if resumed is not None and resumed.seed is not None:
            return resumed.seed
    return int.from_bytes(os.urandom(4), "big")


def _prepared(
    asked: VersusPlan,
    label: str,
    screen: Screen,
    interruption: Interruption,
    stack: ExitStack,
    seed: int,
) -> dict[int, Rounds]:
    """Prepare the runs of an arm; all but the first one skip what they have in common."""
    found: dict[int, Rounds] = {}
    first: Rounds | None = None
    with ExitStack() as own:
        for (name, size), plan in asked.plans.items():
            if name == label:
                shown = ArmScreen(f"{label}, batch {size}", screen)
                found[size] = prepare(plan, shown, interruption, own, seed, first)
                first = first or found[size]
        stack.push(own.pop_all())
    return found


def _run(
    asked: VersusPlan,
    prepared: Mapping[str, Mapping[int, Rounds]],
    not_run: dict[str, str],
    seed: int,
) -> Trials:
    phases = list(dict.fromkeys(case.phase for case in asked.cases))
    cases: dict[str, dict[str, Trial]] = {}
    for case in asked.cases:
        cases[case.name] = {}
        for label, runs in prepared.items():
            rounds = runs[case.batch_size]
            method = rounds.methods[phases.index(case.phase)]
            cases[case.name][label] = partial(rounds.run_one, method)
    labels = tuple(arm.label for arm in asked.arms)
    names = tuple(case.name for case in asked.cases)
    decision = Decision(labels[0], labels, asked.rounds, _rule(asked, 1), names)
    every = [rounds for runs in prepared.values() for rounds in runs.values()]

    def decide(case: str, blocks: Sequence[Block]) -> Reason | None:
        if len(blocks) == 1:
            refuse_unequal(asked, blocks[0].readings)
        return decision(case, blocks)

    try:
        done = Blocks(
            cases,
            decide,
            most=asked.rounds,
            time_s=asked.time_s,
            seed=seed,
            is_figure=has_figure,
            taken_over_s=lambda: sum(rounds.spent_s for rounds in every),
        ).run()
    except UsageError:  # the arms are not equal
        for rounds in every:
            rounds.finish(ended=False)
        raise
    for rounds in every:
        rounds.finish(ended=not done.interrupted)
    return Trials(
        blocks=done.blocks,
        stopped_by=done.stopped_by,
        not_run=not_run,
        run_ids={
            label: {size: rounds.run_id for size, rounds in runs.items()}
            for label, runs in prepared.items()
        },
        seed=seed,
        interrupted=done.interrupted,
    )


def rule_of(asked: VersusPlan, blocks: Mapping[str, Sequence[Block]]) -> PairRule:
    """Return the rule for all judged figures, which share the 5 % of false alarms.

    Judged is each figure of `JUDGED` that any pair has, of each rival in each case. A figure that
    no pair has cannot raise a false alarm.
    """
    base, *rivals = (arm.label for arm in asked.arms)
    return _rule(asked, sum(count_judged(own, base, rivals) for own in blocks.values()))


def _rule(asked: VersusPlan, judged: int) -> PairRule:
    return PairRule(max_pairs=asked.rounds, min_effect=asked.min_effect, methods=max(1, judged))


def count_judged(blocks: Sequence[Block], base: str, rivals: Sequence[str]) -> int:
    """Return the number of figures that are judged in a case: those that any pair has."""
    return sum(
        any(pair.values(metric) for pair in pairs_of(blocks, base, rival))
        for rival in rivals
        for metric in JUDGED.values()
    )


def has_figure(record: SummaryRecord) -> bool:
    """Return True when the trial has the figure that decides."""
    return (record.values.get(DECIDES) or 0) > 0


def pairs_of(blocks: Sequence[Block], base: str, rival: str) -> tuple[Pair, ...]:
    """Return the blocks that have both arms as pairs of base and rival."""
    return tuple(
        Pair(
            number=block.number,
            first="a" if block.order.index(base) < block.order.index(rival) else "b",
            a=block.readings[base],
            b=block.readings[rival],
        )
        for block in blocks
        if base in block.readings and rival in block.readings
    )


@dataclass(frozen=True)
class Decision:
    """Callable that returns why a case ends, or None; it is called after each block.

    It decides at the interim analyses, by the rule that judges the case at the end. The rule is
    known by then: all cases have a block before any has enough for an interim analysis.
    """

    base: str
    labels: tuple[str, ...]
    rounds: int
    rule: PairRule
    cases: tuple[str, ...] = ()
    judged: dict[str, int] = field(default_factory=dict)  # by case that was called so far

    def __call__(self, case: str, blocks: Sequence[Block]) -> Reason | None:
        others = [label for label in self.labels if label != self.base]
        self.judged[case] = count_judged(blocks, self.base, others)
        unknown = len(set(self.cases) - self.judged.keys()) * len(others) * len(JUDGED)
        rule = replace(self.rule, methods=max(1, unknown + sum(self.judged.values())))
        going = blocks[-1].readings.keys()
        rivals = [label for label in going if label != self.base] if self.base in going else []
        if not rivals:  # nothing to compare: go on until the rest have an interval
            lost = len(going) < len(self.labels)
            return "failed" if lost and len(blocks) >= FEWEST_FOR_INTERVAL else None
        return "decided" if all(self._decided(blocks, one, rule) for one in rivals) else None

    def _decided(self, blocks: Sequence[Block], rival: str, rule: PairRule) -> bool:
        found = pairs_of(blocks, self.base, rival)
        ratios = log_ratios(found, DECIDES)
        if len(ratios) not in rules.interim_analyses(self.rounds):
            return False
        direction = found[-1].b.directions.get(DECIDES, "lower")
        return rules.judge(ratios, direction, rule).verdict != "undecided"
