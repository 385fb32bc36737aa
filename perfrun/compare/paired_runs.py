"""Randomised blocks of fresh processes: every side once in each, until a rule has seen enough.

The engine of `perfrun ab` (two sides, a case for each method) and `perfrun versus` (any number of
sides, a case for each phase and batch size). Slow drift of the machine falls on all sides of a
block alike, and the order that is drawn keeps any side from always coming after the same other.

Randomised pairs of fresh processes: side A and side B in turns, until a rule has seen enough.

For whoever has to know whether one thing is slower than another, as `perfrun ab`. Both sides go the
way of every run: own workspace, own journal, a summary on disk after each trial. The loop is that
of `perfrun.blocks`.

What pairs of trials say: numbers from their summaries, verdicts from `analysis.pairs`.
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
from typing import TYPE_CHECKING, Literal

from perfrun.analysis.directions import Direction
from perfrun.errors import UsageError
from perfrun.options.plan import RunPlan
from perfrun.run.interruption import Interruption, taking_signals
from perfrun.run.progress import Screen
from perfrun.run.rounds import Rounds
from perfrun.run.runner import prepare
from perfrun.summary.derived import judged_metrics
from perfrun.summary.document import TrialResult
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord, record_of
from perfrun.worker.procfs import adopt_orphans

if TYPE_CHECKING:
    from perfrun.analysis.compare import Comparison
    from perfrun.analysis.directions import Direction
    from perfrun.analysis.pairs import PairRule


Reason = Literal["decided", "max_pairs", "time_budget", "failed", "no_figure", "interrupted"]
MOST_FAILURES = 3  # blocks in a row without the figure that is asked for


@dataclass(frozen=True, kw_only=True)
class Block:
    """One trial of each side, run right after another."""

    number: int  # from 1
    order: tuple[str, ...]  # the sides as they were run
    readings: Mapping[str, SummaryRecord]  # by side


# Runs the trial of that number, or takes over what was run before; None when interrupted.
Trial = Callable[[int], TrialResult | None]
# Whether a case is over, and why; asked after each of its blocks.
Asked = Callable[[str, Sequence[Block]], Reason | None]


@dataclass(frozen=True, kw_only=True)
class BlocksResult:
    """All blocks, by case, in their order."""

    blocks: Mapping[str, tuple[Block, ...]]
    stopped_by: Mapping[str, Reason]
    interrupted: bool


@dataclass
class _Case:
    sides: dict[str, Trial]
    blocks: list[Block] = field(default_factory=list)
    stopped_by: Reason | None = None
    cost_s: float = 0.0  # of the last block


class Blocks:
    """The loop over blocks and cases."""

    def __init__(
        self,
        cases: Mapping[str, Mapping[str, Trial]],
        asked: Asked,
        *,
        most: int,
        time_s: float | None,
        seed: int,
        is_figure: Callable[[SummaryRecord], bool] | None = None,
        taken_over_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """With `is_figure`, a side that has had none so often leaves its case and the others go on.

        `most` blocks of each case; no block is begun that would end after `time_s`, but the first.
        `taken_over_s`: what those trials took that were run before and taken over so far.
        """
        self._cases = {name: _Case(dict(sides)) for name, sides in cases.items()}
        self._asked, self._most, self._time_s = asked, most, time_s
        self._seed, self._is_figure = seed, is_figure
        self._taken_over_s = taken_over_s
        self._begun_s = time.monotonic()

    def run(self) -> BlocksResult:
        """Run until every case is over. Interrupted, the whole blocks are given back."""
        interrupted = not all(self._round(number) for number in range(1, self._most + 1))
        left: Reason = "interrupted" if interrupted else "max_pairs"
        return BlocksResult(
            blocks={name: tuple(case.blocks) for name, case in self._cases.items()},
            stopped_by={name: case.stopped_by or left for name, case in self._cases.items()},
            interrupted=interrupted,
        )

    def _round(self, number: int) -> bool:
        """One block of each case that is still open; False when interrupted."""
        names = [name for name, case in self._cases.items() if case.stopped_by is None]
        random.Random(f"{self._seed}/{number}").shuffle(names)  # noqa: S311
        return all(self._block(name, number) for name in names)

    def _block(self, name: str, number: int) -> bool:
        case = self._cases[name]
        if self._out_of_time(case):
            case.stopped_by = "time_budget"
            return True
        order = list(case.sides)
        random.Random(f"{self._seed}/{number}/{name}").shuffle(order)  # noqa: S311
        begun_s = self._elapsed_s()
        readings: dict[str, SummaryRecord] = {}
        for side in order:
            result = case.sides[side](number)
            if result is None:
                return False
            readings[side] = record_of(result.document, Path(result.summary))
        case.cost_s = self._elapsed_s() - begun_s
        case.blocks.append(Block(number=number, order=tuple(order), readings=readings))
        case.stopped_by = self._asked(name, case.blocks) or self._without_the_lost(case)
        return True

    def _out_of_time(self, case: _Case) -> bool:
        """The first block of a case is run whatever the time."""
        if self._time_s is None or not case.blocks:
            return False
        return self._elapsed_s() + case.cost_s > self._time_s

    def _elapsed_s(self) -> float:
        """Before a run was resumed, too."""
        return time.monotonic() - self._begun_s + self._taken_over_s()

    def _without_the_lost(self, case: _Case) -> Reason | None:
        """Leave out sides that have no figure again and again; over when none is left."""
        last = case.blocks[-MOST_FAILURES:]
        if self._is_figure is None or len(last) < MOST_FAILURES:
            return None
        for side in list(case.sides):
            if not any(self._is_figure(block.readings[side]) for block in last):
                del case.sides[side]
        return None if case.sides else "failed"


Name = Literal["a", "b"]
SIDES: tuple[Name, Name] = ("a", "b")


class NotTogether(UsageError):  # noqa: N818 - it is caught
    """Two runs that are to be resumed are not the sides of the same pairs."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One trial of each side, run right after another."""

    number: int  # from 1
    first: Name
    a: SummaryRecord
    b: SummaryRecord

    def values(self, metric: str) -> tuple[float, float] | None:
        """The figures of both sides; None where a ratio of them says nothing."""
        one, other = self.a.values.get(metric), self.b.values.get(metric)
        return (one, other) if one and other and min(one, other) > 0 else None


# Whether pairs have decided, given the ratios' logarithms and the direction; asked after each pair.
Decided = Callable[[Sequence[float], Direction], bool]
# Makes that for so many methods; may raise UsageError.
Decider = Callable[[int], Decided]


@dataclass(frozen=True, kw_only=True)
class PairLimits:
    """When pairs end whatever they say."""

    max_pairs: int  # of each method
    time_s: float | None = None  # for all of them


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """All pairs, by method, in their order."""

    pairs: Mapping[str, tuple[Pair, ...]]
    stopped_by: Mapping[str, Reason]
    seed: int
    run_ids: Mapping[Name, str]
    interrupted: bool


def side_plan(plan: RunPlan, name: Name, workspace: Path, max_pairs: int) -> RunPlan:
    """Make a plan one side of pairs: a workspace of its own, its name as label, a trial a pair."""
    if plan.profiles:
        raise UsageError("--profile: pairs are not profiled; profile each side by a run of its own")
    label = f"{plan.execution_label}/{name}" if plan.execution_label else name
    return replace(
        plan,
        workspace=workspace / "ab" / name,
        execution_label=label,
        num_trials=max_pairs,
        flags={**plan.flags, "execution_label": label},
    )


def run_pairs(
    plans: Mapping[Name, RunPlan],
    screen: Screen,
    decider: Decider,
    limits: PairLimits,
    *,
    metric: str = WALL_TIME,
    seed: int | None = None,
    interruption: Interruption | None = None,
) -> PairResult:
    """Run pairs of both plans until each method is decided, or the limits are reached.

    What `decider` makes is asked about `metric`. Raises PerfrunError for what stops it before the
    first trial: both sides are in place before. Interrupted, it gives back the whole pairs.
    `interruption` is that of a caller that has taken over the signals for more than these pairs.
    """
    adopt_orphans()
    proposed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    with taking_signals(interruption) as ours, ExitStack() as stack:
        with ours.allowed():
            sides: dict[Name, Rounds] = {}
            for name in SIDES:
                shown = SideScreen(name, screen)
                # A run that goes on has its seed, which then is that of the other side as well.
                sides[name] = prepare(plans[name], shown, ours, stack, proposed)
                proposed = sides[name].seed
        if sides["a"].seed != sides["b"].seed:
            raise NotTogether("--resume: a and b were not run together; start anew without it")
        if sides["a"].methods != sides["b"].methods:
            raise UsageError(
                f"a and b have different methods: {', '.join(sides['a'].methods) or 'none'} and "
                f"{', '.join(sides['b'].methods) or 'none'}"
            )
        decided = decider(len(sides["a"].methods))
        return _run(sides, decided, limits, metric)


def _run(
    sides: Mapping[Name, Rounds], decided: Decided, limits: PairLimits, metric: str
) -> PairResult:
    seed = sides["a"].seed
    cases: dict[str, dict[str, Trial]] = {
        method: {name: partial(side.run_one, method) for name, side in sides.items()}
        for method in sides["a"].methods
    }

    def asked(_: str, blocks: Sequence[Block]) -> Reason | None:
        return _verdict([_pair(block) for block in blocks], metric, decided)

    done = Blocks(
        cases,
        asked,
        most=limits.max_pairs,
        time_s=limits.time_s,
        seed=seed,
        taken_over_s=lambda: sum(side.spent_s for side in sides.values()),
    ).run()
    for side in sides.values():
        side.finish(ended=not done.interrupted)
    return PairResult(
        pairs={
            name: tuple(_pair(block) for block in blocks) for name, blocks in done.blocks.items()
        },
        stopped_by=done.stopped_by,
        seed=seed,
        run_ids={name: side.run_id for name, side in sides.items()},
        interrupted=done.interrupted,
    )


def _pair(block: Block) -> Pair:
    first: Name = "a" if block.order[0] == "a" else "b"
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
    """The logarithms of b over a, of the pairs that have both."""
    values = [pair.values(metric) for pair in pairs]
    return tuple(math.log(both[1] / both[0]) for both in values if both)


class SideScreen:
    """Says of which side a trial is."""

    def __init__(self, name: str, screen: Screen) -> None:
        self._name, self._screen = name, screen
        self.prepare, self.note = screen.prepare, screen.note
        self.stdout, self.stderr = screen.stdout, screen.stderr
        self.profile_started = screen.profile_started
        self.profile_finished = screen.profile_finished

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        del total  # nobody knows: pairs end when they have decided
        self._screen.trial_started(number, None, f"{self._name}: {method}", trial_id)

    def trial_finished(self, result: TrialResult) -> None:
        self._screen.trial_finished(replace(result, name=f"{self._name}: {result.name}"))


def decider(rule: PairRule) -> Decider:
    """What `run_pairs` asks after each pair: answers at the rule's looks, which keeps its level."""
    from perfrun.analysis import pairs  # numpy

    looks = frozenset(pairs.interim_analyses(rule.max_pairs))

    def make(methods: int) -> Decided:
        shared = shared_rule(rule, methods)

        def decided(found: Sequence[float], direction: Direction) -> bool:
            if len(found) not in looks:
                return False
            return pairs.judge(found, direction, shared).verdict != "undecided"

        return decided

    return make


def shared_rule(rule: PairRule, methods: int) -> PairRule:
    """The rule of methods that are decided together. Raises UsageError for too few pairs."""
    from perfrun.analysis import pairs

    shared = replace(rule, methods=max(1, methods))
    if not pairs.can_decide(shared):
        enough = next(
            count
            for count in range(rule.max_pairs, 10_000)
            if pairs.can_decide(replace(shared, max_pairs=count))
        )
        raise UsageError(
            f"--max_pairs={rule.max_pairs}: cannot decide {methods} methods, whose chances of a "
            f"false alarm add up; give {enough} or more"
        )
    return shared


def comparisons(result: PairResult, rule: PairRule, metric: str) -> tuple[Comparison, ...]:
    """Judge each primary metric of each method, and the one that decided, which comes first."""
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
    from perfrun.analysis.compare import Comparison
    from perfrun.analysis.directions import direction_of
    from perfrun.analysis.pairs import judge
    from perfrun.analysis.stats import median
    from perfrun.analysis.two_samples import cliffs_delta

    stated = [pair.b.directions[metric] for pair in pairs if metric in pair.b.directions]
    direction = stated[-1] if stated else direction_of(metric)
    found = judge(log_ratios(pairs, metric), direction, rule)
    sides = [[r.values[metric] for r in side if metric in r.values] for side in _sides(pairs)]
    delta = cliffs_delta(sides[1], sides[0]) if min(map(len, sides)) > 1 else None
    return Comparison(
        method=method,
        metric=metric,
        direction=direction,
        ratio=found.ratio,
        interval=found.interval,
        verdict=found.verdict,
        reason=_reason(pairs, found.pairs, stopped_by) if found.verdict == "undecided" else None,
        n_base=len(sides[0]),
        n_new=len(sides[1]),
        base_median=median(sides[0]) if sides[0] else None,
        new_median=median(sides[1]) if sides[1] else None,
        cliffs_delta=delta.estimate if delta else None,
        p_value=found.p_value,
        detectable_effect=None,
        margin=rule.min_effect,
    )


def _sides(pairs: Sequence[Pair]) -> tuple[list[SummaryRecord], list[SummaryRecord]]:
    return [pair.a for pair in pairs], [pair.b for pair in pairs]


def _reason(pairs: Sequence[Pair], with_ratio: int, stopped_by: str) -> str:
    """Why nothing is decided: failures first, since they are what there is to mend."""
    for name, readings in zip("ab", _sides(pairs), strict=True):
        failed = [reading for reading in readings if not reading.ran]
        if failed and with_ratio < len(pairs):
            return f"{name} {failed[-1].status.value} in {len(failed)} of {len(readings)} trials"
    if with_ratio == 0:
        return "no pair has this metric"
    return {
        "max_pairs": "all pairs are spent",
        "time_budget": "the time is spent",
        "interrupted": "interrupted",
    }.get(stopped_by, "the interval leaves it open")
