"""Trials of several arms in randomised pairs or blocks, and the verdicts of pairs.

`perfrun ab` and `detect --confirm` run pairs, with a case for each method; `perfrun versus` runs
blocks of any number of arms, with a case for each phase and batch size. A slow drift of the
machine affects all arms of a block alike, and the order of the arms is drawn for each block.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from perfrun.analysis.directions import Direction, direction_of
from perfrun.analysis.pairs import PairRule, can_decide, interim_analyses, judge
from perfrun.analysis.stats import median
from perfrun.analysis.two_samples import cliffs_delta
from perfrun.analysis.two_sets import Comparison
from perfrun.compare.pair_progress import PairClock, standing
from perfrun.errors import UsageError
from perfrun.options.plan import RunPlan
from perfrun.run.interruption import Interruption, taking_signals
from perfrun.run.progress import Screen
from perfrun.run.rounds import Rounds
from perfrun.run.runner import prepare
from perfrun.summary.derived_metrics import judged_metrics
from perfrun.summary.document import TrialResult
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord, record_of
from perfrun.worker.procfs import adopt_orphans

Reason = Literal["decided", "max_pairs", "time_budget", "failed", "no_figure", "interrupted"]
MOST_FAILURES = 3  # blocks in a row without a value of the metric
ArmName = Literal["a", "b"]
ARMS: tuple[ArmName, ArmName] = ("a", "b")
# Runs the trial of that number, or reads it if it was run before; None when interrupted.
Trial = Callable[[int], TrialResult | None]
# Returns True when pairs have decided, by the logarithms of their ratios; called after each pair.
Decided = Callable[[Sequence[float], Direction], bool]
# Makes such a rule for a number of methods; may raise UsageError.
Decider = Callable[[int], Decided]


@dataclass(frozen=True, kw_only=True)
class Block:
    """One trial of each arm, one right after the other."""

    number: int  # from 1
    order: tuple[str, ...]  # of the arms
    readings: Mapping[str, SummaryRecord]  # by arm


# Is told of each pair of a method, with why the method is over, if it is.
Show = Callable[[str, Sequence[Block], Reason | None], None]
# Returns why a case is over, or None when it goes on; called after each of its blocks.
StopRule = Callable[[str, Sequence[Block]], Reason | None]


@dataclass(frozen=True, kw_only=True)
class BlocksResult:
    """All blocks, by case, in their order."""

    blocks: Mapping[str, tuple[Block, ...]]
    stopped_by: Mapping[str, Reason]
    interrupted: bool
    cost_s: Mapping[str, float]  # of the last block


@dataclass
class _Case:
    arms: dict[str, Trial]
    blocks: list[Block] = field(default_factory=list)
    stopped_by: Reason | None = None
    cost_s: float = 0.0  # of the last block


class Blocks:
    """The loop over blocks and cases."""

    def __init__(
        self,
        cases: Mapping[str, Mapping[str, Trial]],
        asked: StopRule,
        *,
        most: int,
        time_s: float | None,
        seed: int,
        is_figure: Callable[[SummaryRecord], bool] | None = None,
        taken_over_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Take the arms of each case and the rule that ends a case.

        A case has `most` blocks at most, and none but its first begins that would end after
        `time_s`. With `is_figure`, an arm that fails it too often leaves its case, and the others
        go on. `taken_over_s` returns the time of the trials that were run before and read so far.
        """
        self._cases = {name: _Case(dict(arms)) for name, arms in cases.items()}
        self._asked, self._most, self._time_s = asked, most, time_s
        self._seed, self._is_figure = seed, is_figure
        self._taken_over_s = taken_over_s
        self._begun_s = time.monotonic()

    def run(self) -> BlocksResult:
        """Run until every case is over; an interruption leaves the complete blocks."""
        interrupted = not all(self._round(number) for number in range(1, self._most + 1))
        left: Reason = "interrupted" if interrupted else "max_pairs"
        return BlocksResult(
            blocks={name: tuple(case.blocks) for name, case in self._cases.items()},
            stopped_by={name: case.stopped_by or left for name, case in self._cases.items()},
            interrupted=interrupted,
            cost_s={name: case.cost_s for name, case in self._cases.items()},
        )

    def _round(self, number: int) -> bool:
        """Run one block of each case that is still open; return False when interrupted."""
        names = [name for name, case in self._cases.items() if case.stopped_by is None]
        random.Random(f"{self._seed}/{number}").shuffle(names)  # noqa: S311
        return all(self._block(name, number) for name in names)

    def _block(self, name: str, number: int) -> bool:
        case = self._cases[name]
        if self._out_of_time(case):
            case.stopped_by = "time_budget"
            return True
        order = list(case.arms)
        random.Random(f"{self._seed}/{number}/{name}").shuffle(order)  # noqa: S311
        begun_s = self._elapsed_s()
        records: dict[str, SummaryRecord] = {}
        for arm in order:
            result = case.arms[arm](number)
            if result is None:
                return False
            records[arm] = record_of(result.document, Path(result.summary))
        case.cost_s = self._elapsed_s() - begun_s
        case.blocks.append(Block(number=number, order=tuple(order), readings=records))
        case.stopped_by = self._asked(name, case.blocks) or self._drop_failed_arms(case)
        return True

    def _out_of_time(self, case: _Case) -> bool:
        """Return True when another block would end too late; the first one always runs."""
        if self._time_s is None or not case.blocks:
            return False
        return self._elapsed_s() + case.cost_s > self._time_s

    def _elapsed_s(self) -> float:
        """Return the time spent, that before the run was resumed included."""
        return time.monotonic() - self._begun_s + self._taken_over_s()

    def _drop_failed_arms(self, case: _Case) -> Reason | None:
        """Remove arms without a figure in the last blocks; the case fails when none is left."""
        last = case.blocks[-MOST_FAILURES:]
        if self._is_figure is None or len(last) < MOST_FAILURES:
            return None
        for arm in list(case.arms):
            if not any(self._is_figure(block.readings[arm]) for block in last):
                del case.arms[arm]
        return None if case.arms else "failed"


class NotTogether(UsageError):  # noqa: N818 - it is caught
    """The error for two runs to be resumed that are not the arms of the same pairs."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One trial of each of two arms, one right after the other."""

    number: int  # from 1
    first: ArmName
    a: SummaryRecord
    b: SummaryRecord

    def values(self, metric: str) -> tuple[float, float] | None:
        """Return the values of both arms; None when they have no ratio."""
        one, other = self.a.values.get(metric), self.b.values.get(metric)
        return (one, other) if one and other and min(one, other) > 0 else None


@dataclass(frozen=True, kw_only=True)
class PairLimits:
    """The limits that end pairs before they have decided."""

    max_pairs: int  # of each method
    time_s: float | None = None  # for all of them


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """All pairs, by method, in their order."""

    pairs: Mapping[str, tuple[Pair, ...]]
    stopped_by: Mapping[str, Reason]
    seed: int
    run_ids: Mapping[ArmName, str]
    interrupted: bool
    pair_s: Mapping[str, float]  # duration of the last pair


def new_seed() -> int:
    """Return a random seed."""
    return int.from_bytes(os.urandom(4), "big")


def arm_plan(plan: RunPlan, name: ArmName, workspace: Path, max_pairs: int) -> RunPlan:
    """Return the plan of an arm: its own workspace, its name as label, one trial a pair."""
    if plan.profiles:
        raise UsageError("--profile: pairs are not profiled; profile each arm by a run of its own")
    label = f"{plan.execution_label}/{name}" if plan.execution_label else name
    return replace(
        plan,
        workspace=workspace / "ab" / name,
        execution_label=label,
        num_trials=max_pairs,
        flags={**plan.flags, "execution_label": label},
    )


def run_pairs(
    plans: Mapping[ArmName, RunPlan],
    screen: Screen,
    decider: Decider,
    limits: PairLimits,
    *,
    metric: str = WALL_TIME,
    seed: int | None = None,
    interruption: Interruption | None = None,
    shown_by: PairRule | None = None,
    check_names: bool = False,
) -> PairResult:
    """Run pairs of both plans until each method is decided, or the limits are reached.

    The rule that `decider` makes decides by `metric`. With `shown_by`, a line about each pair takes
    the place of those about its trials; the interval in it is that rule's.

    Both arms are prepared before the first trial; raises PerfrunError when one cannot be. An
    interruption leaves the complete pairs. `interruption` belongs to a caller that handles the
    signals for more than these pairs, and `check_names` is that of a run.
    """
    adopt_orphans()
    proposed = new_seed() if seed is None else seed
    with taking_signals(interruption) as ours, ExitStack() as stack:
        with ours.allowed():
            arms: dict[ArmName, Rounds] = {}
            for name in ARMS:
                shown = ArmScreen(name, screen, in_pairs=shown_by is not None)
                # A resumed run has a seed already, which the other arm then takes, too.
                plan = plans[name]
                arms[name] = prepare(plan, shown, ours, stack, proposed, check_names=check_names)
                proposed = arms[name].seed
        if arms["a"].seed != arms["b"].seed:
            raise NotTogether("--resume: a and b were not run together; start anew without it")
        if arms["a"].methods != arms["b"].methods:
            raise UsageError(
                f"a and b have different methods: {', '.join(arms['a'].methods) or 'none'} and "
                f"{', '.join(arms['b'].methods) or 'none'}"
            )
        methods = arms["a"].methods
        decided = decider(len(methods))
        show = None
        if shown_by is not None:
            show = _shower(screen, methods, shared_rule(shown_by, len(methods)), limits, metric)
        return _run(arms, decided, limits, metric, show)


def _shower(
    screen: Screen, methods: Sequence[str], rule: PairRule, limits: PairLimits, metric: str
) -> Show:
    """Return a function that shows how the pairs of a method stand."""
    clock = PairClock(methods, limits.max_pairs)

    def show(method: str, blocks: Sequence[Block], reason: Reason | None) -> None:
        clock.ended(method, is_over=reason is not None)
        left_s = clock.left_s if limits.time_s is None else min(clock.left_s, limits.time_s)
        found = log_ratios([_pair(block) for block in blocks], metric)
        text = standing(found, rule, left_s)
        screen.pair_finished(len(blocks), limits.max_pairs, method, text)

    return show


def _run(
    arms: Mapping[ArmName, Rounds],
    decided: Decided,
    limits: PairLimits,
    metric: str,
    show: Show | None,
) -> PairResult:
    seed = arms["a"].seed
    cases: dict[str, dict[str, Trial]] = {
        method: {name: partial(arm.run_one, method) for name, arm in arms.items()}
        for method in arms["a"].methods
    }

    def asked(method: str, blocks: Sequence[Block]) -> Reason | None:
        reason = _verdict([_pair(block) for block in blocks], metric, decided)
        if show:
            show(method, blocks, reason)
        return reason

    done = Blocks(
        cases,
        asked,
        most=limits.max_pairs,
        time_s=limits.time_s,
        seed=seed,
        taken_over_s=lambda: sum(arm.spent_s for arm in arms.values()),
    ).run()
    for arm in arms.values():
        arm.finish(ended=not done.interrupted)
    return PairResult(
        pairs={
            name: tuple(_pair(block) for block in blocks) for name, blocks in done.blocks.items()
        },
        stopped_by=done.stopped_by,
        seed=seed,
        run_ids={name: arm.run_id for name, arm in arms.items()},
        interrupted=done.interrupted,
        pair_s=done.cost_s,
    )


def _pair(block: Block) -> Pair:
    first: ArmName = "a" if block.order[0] == "a" else "b"
    return Pair(number=block.number, first=first, a=block.readings["a"], b=block.readings["b"])


def _verdict(pairs: Sequence[Pair], metric: str, decided: Decided) -> Reason | None:
    last = pairs[-1]
    if last.values(metric) is None:
        if len(pairs) < MOST_FAILURES or any(p.values(metric) for p in pairs[-MOST_FAILURES:]):
            return None
        return "no_figure" if last.a.ran and last.b.ran else "failed"
    found = log_ratios(pairs, metric)
    return "decided" if decided(found, last.b.directions[metric]) else None


def log_ratios(pairs: Sequence[Pair], metric: str) -> tuple[float, ...]:
    """Return the logarithm of b over a for each pair that has both values."""
    values = [pair.values(metric) for pair in pairs]
    return tuple(math.log(both[1] / both[0]) for both in values if both)


class ArmScreen:
    """A screen that shows the arm with each trial.

    `in_pairs` a trial that ran has no line of its own: there is one about the pair.
    """

    def __init__(self, name: str, screen: Screen, *, in_pairs: bool = False) -> None:
        self._name, self._screen, self._in_pairs = name, screen, in_pairs
        self.prepare, self.note, self.problem = screen.prepare, screen.note, screen.problem
        self.is_live, self.outlook = screen.is_live, screen.outlook
        self.trial_ended, self.pair_finished = screen.trial_ended, screen.pair_finished
        self.stdout, self.stderr = screen.stdout, screen.stderr
        self.profile_started = screen.profile_started
        self.profile_finished = screen.profile_finished

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        del total  # unknown: pairs end when they have decided
        self._screen.trial_started(number, None, f"{self._name}: {method}", trial_id)

    def trial_finished(self, result: TrialResult) -> None:
        named = replace(result, name=f"{self._name}: {result.name}")
        if self._in_pairs and result.status.ran:
            self._screen.trial_ended(named)
        else:
            self._screen.trial_finished(named)


def decider(rule: PairRule) -> Decider:
    """Return the rule of `run_pairs`: it decides at interim analyses only, to keep its level."""
    interim = frozenset(interim_analyses(rule.max_pairs))

    def make(methods: int) -> Decided:
        shared = shared_rule(rule, methods)

        def decided(found: Sequence[float], direction: Direction) -> bool:
            if len(found) not in interim:
                return False
            return judge(found, direction, shared).verdict != "undecided"

        return decided

    return make


def shared_rule(rule: PairRule, methods: int) -> PairRule:
    """Return the rule corrected for a number of methods. Raises UsageError for too few pairs."""
    shared = replace(rule, methods=max(1, methods))
    if not can_decide(shared):
        enough = next(
            count
            for count in range(rule.max_pairs, 10_000)
            if can_decide(replace(shared, max_pairs=count))
        )
        raise UsageError(
            f"--max_pairs={rule.max_pairs}: cannot decide {methods} methods, whose chances of a "
            f"false alarm add up; give {enough} or more"
        )
    return shared


def comparisons(result: PairResult, rule: PairRule, metric: str) -> tuple[Comparison, ...]:
    """Judge each primary metric of each method, first the metric that decided.

    The rule is corrected for the number of methods, not of metrics: its error rate holds for each
    metric over all methods.
    """
    found = []
    rule = shared_rule(rule, len(result.pairs))
    for method, pairs in result.pairs.items():
        names = sorted(judged_metrics(one for pair in pairs for one in (pair.a, pair.b)))
        for name in (metric, *(name for name in names if name != metric)):
            found.append(_comparison(method, name, pairs, rule, result.stopped_by[method]))
    return tuple(found)


def _comparison(
    method: str, metric: str, pairs: Sequence[Pair], rule: PairRule, stopped_by: str
) -> Comparison:
    stated = [pair.b.directions[metric] for pair in pairs if metric in pair.b.directions]
    direction = stated[-1] if stated else direction_of(metric)
    found = judge(log_ratios(pairs, metric), direction, rule)
    arms = [[r.values[metric] for r in arm if metric in r.values] for arm in _arms(pairs)]
    delta = cliffs_delta(arms[1], arms[0]) if min(map(len, arms)) > 1 else None
    return Comparison(
        method=method,
        metric=metric,
        direction=direction,
        ratio=found.ratio,
        interval=found.interval,
        verdict=found.verdict,
        reason=_reason(pairs, found.pairs, stopped_by) if found.verdict == "undecided" else None,
        n_base=len(arms[0]),
        n_new=len(arms[1]),
        base_median=median(arms[0]) if arms[0] else None,
        new_median=median(arms[1]) if arms[1] else None,
        cliffs_delta=delta.estimate if delta else None,
        p_value=found.p_value,
        detectable_effect=None,
        margin=rule.min_effect,
    )


def _arms(pairs: Sequence[Pair]) -> tuple[list[SummaryRecord], list[SummaryRecord]]:
    return [pair.a for pair in pairs], [pair.b for pair in pairs]


def _reason(pairs: Sequence[Pair], with_ratio: int, stopped_by: str) -> str:
    """Return why nothing is decided: failures first, because they need mending."""
    for name, records in zip("ab", _arms(pairs), strict=True):
        failed = [record for record in records if not record.ran]
        if failed and with_ratio < len(pairs):
            return f"{name} {failed[-1].status.value} in {len(failed)} of {len(records)} trials"
    if with_ratio == 0:
        return "no pair has this metric"
    return {
        "max_pairs": "all pairs are spent",
        "time_budget": "the time is spent",
        "interrupted": "interrupted",
    }.get(stopped_by, "the interval leaves it open")
