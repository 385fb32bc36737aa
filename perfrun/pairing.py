"""Randomised pairs of fresh processes: side A and side B in turns, until a rule has seen enough.

The engine of `perfrun ab`, for whoever has to know whether one thing is slower than another. Both
sides go the way of every run: own workspace, own journal, a summary on disk after each trial.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from perfrun.analysis.directions import Direction
from perfrun.document import TrialResult
from perfrun.errors import UsageError
from perfrun.interruption import Interruption
from perfrun.plan import RunPlan
from perfrun.readings import WALL_TIME, Reading, reading_of
from perfrun.rounds import Rounds, Screen
from perfrun.runner import prepare
from perfrun.worker.procfs import adopt_orphans

Name = Literal["a", "b"]
Reason = Literal["decided", "max_pairs", "time_budget", "failed", "no_figure", "interrupted"]
SIDES: tuple[Name, Name] = ("a", "b")
MOST_FAILURES = 3  # pairs in a row of which no figure came


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One trial of each side, run right after another."""

    number: int  # from 1
    first: Name
    a: Reading
    b: Reading

    def values(self, metric: str) -> tuple[float, float] | None:
        """The figures of both sides; None where a ratio of them says nothing."""
        one, other = self.a.values.get(metric), self.b.values.get(metric)
        return (one, other) if one and other and min(one, other) > 0 else None


# Whether pairs have decided, given the ratios' logarithms and the direction; asked after each pair.
Decided = Callable[[Sequence[float], Direction], bool]
# Makes that for so many methods; may raise UsageError.
Decider = Callable[[int], Decided]


@dataclass(frozen=True, kw_only=True)
class Limits:
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


@dataclass
class _Method:
    pairs: list[Pair] = field(default_factory=list)
    without_figure: int = 0  # the last so many pairs had none
    stopped_by: Reason | None = None
    cost_s: float = 0.0  # of the last pair


def side_plan(plan: RunPlan, name: Name, workspace: Path, max_pairs: int) -> RunPlan:
    """Make a plan one side of pairs: a workspace of its own, its name as label, a trial a pair."""
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
    limits: Limits,
    *,
    metric: str = WALL_TIME,
    seed: int | None = None,
) -> PairResult:
    """Run pairs of both plans until each method is decided, or the limits are reached.

    What `decider` makes is asked about `metric`. Raises PerfrunError for what stops it before the
    first trial: both sides are in place before. Interrupted, it gives back the whole pairs.
    """
    adopt_orphans()
    interruption = Interruption()
    interruption.install()
    proposed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    with ExitStack() as stack:
        with interruption.allowed():
            sides: dict[Name, Rounds] = {}
            for name in SIDES:
                shown = SideScreen(name, screen)
                # A run that goes on has its seed, which then is that of the other side as well.
                sides[name] = prepare(plans[name], shown, interruption, stack, proposed)
                proposed = sides[name].seed
        if sides["a"].seed != sides["b"].seed:
            raise UsageError("--resume: a and b were not run together; start anew without it")
        if sides["a"].methods != sides["b"].methods:
            raise UsageError(
                f"a and b have different methods: {', '.join(sides['a'].methods) or 'none'} and "
                f"{', '.join(sides['b'].methods) or 'none'}"
            )
        decided = decider(len(sides["a"].methods))
        return _Pairs(sides, decided, limits, metric).run()


class _Pairs:
    """The loop over pairs and methods."""

    def __init__(
        self, sides: Mapping[Name, Rounds], decided: Decided, limits: Limits, metric: str
    ) -> None:
        self._sides, self._decided, self._limits = sides, decided, limits
        self._metric = metric
        self._seed = sides["a"].seed
        self._methods = {name: _Method() for name in sides["a"].methods}
        self._begun_s = time.monotonic()

    def run(self) -> PairResult:
        interrupted = not all(
            self._round(number) for number in range(1, self._limits.max_pairs + 1)
        )
        for method in self._methods.values():
            if method.stopped_by is None:
                method.stopped_by = "interrupted" if interrupted else "max_pairs"
        for side in self._sides.values():
            side.finish(ended=not interrupted)
        return PairResult(
            pairs={name: tuple(method.pairs) for name, method in self._methods.items()},
            stopped_by={name: m.stopped_by for name, m in self._methods.items() if m.stopped_by},
            seed=self._seed,
            run_ids={name: side.run_id for name, side in self._sides.items()},
            interrupted=interrupted,
        )

    def _round(self, number: int) -> bool:
        """One pair of each method that is still open; False when interrupted."""
        names = [name for name, method in self._methods.items() if method.stopped_by is None]
        random.Random(f"{self._seed}/{number}").shuffle(names)  # noqa: S311
        return all(self._pair(name, number) for name in names)

    def _pair(self, name: str, number: int) -> bool:
        method = self._methods[name]
        if self._out_of_time(method):
            method.stopped_by = "time_budget"
            return True
        first: Name = random.Random(f"{self._seed}/{number}/{name}").choice(SIDES)  # noqa: S311
        begun_s = time.monotonic()
        readings: dict[Name, Reading] = {}
        for side in (first, "b" if first == "a" else "a"):
            result = self._sides[side].run_one(name, number)
            if result is None:
                return False
            readings[side] = reading_of(Path(result.summary), result.document)
        method.cost_s = time.monotonic() - begun_s
        method.pairs.append(Pair(number=number, first=first, a=readings["a"], b=readings["b"]))
        method.stopped_by = self._verdict(method)
        return True

    def _out_of_time(self, method: _Method) -> bool:
        """The first pair of a method is run whatever the time."""
        if self._limits.time_s is None or not method.pairs:
            return False
        return time.monotonic() - self._begun_s + method.cost_s > self._limits.time_s

    def _verdict(self, method: _Method) -> Reason | None:
        last = method.pairs[-1]
        if last.values(self._metric) is None:
            method.without_figure += 1
            if method.without_figure < MOST_FAILURES:
                return None
            return "no_figure" if last.a.ran and last.b.ran else "failed"
        method.without_figure = 0
        found = log_ratios(method.pairs, self._metric)
        return "decided" if self._decided(found, last.b.directions[self._metric]) else None


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

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        del total  # nobody knows: pairs end when they have decided
        self._screen.trial_started(number, None, f"{self._name}: {method}", trial_id)

    def trial_finished(self, result: TrialResult) -> None:
        self._screen.trial_finished(replace(result, name=f"{self._name}: {result.name}"))
