"""The order of trials: rounds over methods, re-runs of disturbed trials, the stop rule.

A schedule reads neither disk nor clock. Its caller passes the results of trials and the time left,
so that a resumed run continues as the first one would have. Rounds are shuffled with a recorded
seed when a method gets more than one trial; a single round keeps the order of the command line, as
in PerfZero.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfrun.dataclass import dataclass, field
from perfrun.options.parsers import FEWEST_TRIALS, OVERRUN, Repetition
from perfrun.summary.estimates import TrialObservation, used_values

if TYPE_CHECKING:
    from perfrun.analysis.precision import MethodProgress, PrecisionTarget

MOST_FAILURES = 3  # with a precision: a method is not run again after so many


@dataclass(frozen=True, kw_only=True)
class Step:
    """One trial to run."""

    method: str  # key of the method
    trial_id: int  # from 1
    round: int  # from 1
    rerun_of: int | None = None  # the disturbed trial that this one replaces


@dataclass
class _Method:
    """State of one method."""

    seen: dict[int, TrialObservation] = field(default_factory=dict)  # by trial id
    reruns: int = 0
    planned: int = 0  # the largest trial id so far
    owed: list[int] = field(default_factory=list)  # disturbed trials to be run again
    stopped_by: str | None = None

    @property
    def own_trials(self) -> int:
        """Number of planned trials that are not re-runs."""
        return self.planned - self.reruns

    @property
    def cost_s(self) -> float:
        """Median duration of its trials."""
        costs = sorted(seen.cost_s for seen in self.seen.values())
        return costs[len(costs) // 2] if costs else 0.0


class Schedule:
    """Plans rounds of trials until no method needs more."""

    def __init__(
        self, methods: Sequence[str], num_trials: int, rules: Repetition, seed: int
    ) -> None:
        self._methods = {name: _Method() for name in methods}
        self._num_trials, self._rules = num_trials, rules
        self._round = 0
        self.seed = seed if rules.precision is not None or num_trials > 1 else None

    @property
    def total(self) -> int | None:
        """Number of trials of the run; None when a precision decides about it."""
        if self._rules.precision is not None:
            return None
        return sum(self._num_trials + m.reruns + len(m.owed) for m in self._methods.values())

    def left_s(self, time_left_s: float | None = None) -> float | None:
        """Return the time that the trials to come will probably take; None before the first one.

        `time_left_s` is the rest of the budget, which they cannot exceed by much.
        """
        known = [method.cost_s for method in self._methods.values() if method.seen]
        if not known:
            return None
        usual_s = sum(known) / len(known)
        left_s = sum(
            self._to_come(method) * (method.cost_s if method.seen else usual_s)
            for method in self._methods.values()
        )
        return left_s if time_left_s is None else min(left_s, max(0.0, time_left_s))

    def values(self, name: str) -> tuple[float, ...]:
        """Return the values of a method's trials that count so far."""
        return used_values(tuple(self._methods[name].seen.values()))

    def _to_come(self, method: _Method) -> int:
        """Return the number of trials that a method will probably still get."""
        if method.stopped_by is not None:
            return 0
        not_seen = max(0, method.planned - len(method.seen))  # of the round that goes on
        if self._rules.precision is None:
            own = max(self._num_trials - method.own_trials, 0)
            return not_seen + own + len(method.owed)
        pilot = max(FEWEST_TRIALS, self._num_trials)
        missing = max(0, pilot - len(method.seen))
        if missing or len(used_values(tuple(method.seen.values()))) < FEWEST_TRIALS:
            return max(missing, not_seen)
        from perfrun.analysis import precision  # loaded already, by the decision that came before

        return max(not_seen, precision.trials_to_come(*self._progress(method)))

    def note(self, step: Step, seen: TrialObservation) -> None:
        """Take in the result of a trial."""
        method = self._methods[step.method]
        method.seen[step.trial_id] = seen
        if seen.disturbed and method.reruns + len(method.owed) < self._rules.max_reruns:
            method.owed.append(step.trial_id)

    def replay(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Take over a round that was planned before the run was interrupted."""
        known = tuple(step for step in steps if step.method in self._methods)
        for step in known:
            self._give_out(step)
            self._round = max(self._round, step.round)
        return known

    def next_round(self, time_left_s: float | None = None) -> tuple[Step, ...]:
        """Plan the next round; an empty one means that the run is over."""
        self._round += 1
        owed = [
            (name, trial_id) for name, method in self._methods.items() for trial_id in method.owed
        ]
        steps = [self._step(name) for name in self._wanting(time_left_s)]
        for name, trial_id in owed:
            if not self._out_of_time(self._methods[name], time_left_s):
                steps.append(self._step(name, rerun_of=trial_id))
        if self.seed is not None:
            # A text as seed is the same on every machine and Python, unlike a tuple's hash.
            random.Random(f"{self.seed}/{self._round}").shuffle(steps)  # noqa: S311
        return tuple(steps)

    def fits(self, step: Step, time_left_s: float | None) -> bool:
        """Return True when there is time for a planned trial; a method's first one always fits."""
        method = self._methods[step.method]
        if not method.seen or not self._out_of_time(method, time_left_s):
            return True
        method.stopped_by = "time_budget"
        return False

    def stopped_by(self) -> Mapping[str, str | None]:
        """Return the reason why each method got no more trials; None if it still needed some."""
        return {name: method.stopped_by for name, method in self._methods.items()}

    def _step(self, name: str, rerun_of: int | None = None) -> Step:
        step = Step(
            method=name,
            trial_id=self._methods[name].planned + 1,
            round=self._round,
            rerun_of=rerun_of,
        )
        self._give_out(step)
        return step

    def _give_out(self, step: Step) -> None:
        method = self._methods[step.method]
        method.planned = max(method.planned, step.trial_id)
        if step.rerun_of is not None:
            method.reruns += 1
            if step.rerun_of in method.owed:
                method.owed.remove(step.rerun_of)

    def _wanting(self, time_left_s: float | None) -> Sequence[str]:
        """Return the methods that get a trial of their own in the next round."""
        if self._rules.precision is not None:
            return self._by_precision(time_left_s)
        for method in self._methods.values():
            if method.own_trials >= self._num_trials:
                method.stopped_by = "trials"
        return [name for name, method in self._methods.items() if not method.stopped_by]

    def _by_precision(self, time_left_s: float | None) -> Sequence[str]:
        for method in self._methods.values():
            if method.stopped_by is None:
                method.stopped_by = self._without_statistics(method)
        open_methods = {n: m for n, m in self._methods.items() if m.stopped_by is None}
        pilot = max(FEWEST_TRIALS, self._num_trials)
        if not any(m.own_trials >= pilot for m in open_methods.values()):
            return self._pilot(open_methods, time_left_s)
        return self._steered(open_methods, time_left_s)

    def _without_statistics(self, method: _Method) -> str | None:
        """Return the reason to stop a method that always fails or reports no figure, if it does."""
        if sum(not seen.ran for seen in method.seen.values()) >= MOST_FAILURES:
            return "failed"
        ran = any(seen.ran for seen in method.seen.values())
        has_value = any(seen.value is not None for seen in method.seen.values())
        had_its_number = method.own_trials >= self._num_trials
        return "no_figure" if ran and not has_value and had_its_number else None

    def _pilot(
        self, open_methods: Mapping[str, _Method], time_left_s: float | None
    ) -> Sequence[str]:
        """Return every method that never ran, and the others while there is time."""
        for method in open_methods.values():
            if method.seen and self._out_of_time(method, time_left_s):
                method.stopped_by = "time_budget"
        return [name for name, method in open_methods.items() if method.stopped_by is None]

    def _steered(
        self, open_methods: Mapping[str, _Method], time_left_s: float | None
    ) -> Sequence[str]:
        from perfrun.analysis import precision  # numpy, scipy: not for the pilot

        wanting = {}
        target = self._target()
        for name, method in open_methods.items():
            progress, _ = self._progress(method)
            method.stopped_by = precision.verdict(progress, target)
            if method.stopped_by is None:
                wanting[name] = progress
        chosen = precision.next_round(wanting, target, time_left_s, OVERRUN)
        if not chosen:
            for name in wanting:
                self._methods[name].stopped_by = "time_budget"
        return chosen

    def _target(self) -> PrecisionTarget:
        from perfrun.analysis.precision import PrecisionTarget

        assert self._rules.precision is not None
        return PrecisionTarget(
            precision=self._rules.precision,
            max_trials=self._rules.max_trials,
            min_trials=max(FEWEST_TRIALS, self._num_trials),
        )

    def _progress(self, method: _Method) -> tuple[MethodProgress, PrecisionTarget]:
        from perfrun.analysis.precision import MethodProgress

        progress = MethodProgress(
            values=used_values(tuple(method.seen.values())),
            trials=method.own_trials,
            cost_s=method.cost_s,
        )
        return progress, self._target()

    def _out_of_time(self, method: _Method, time_left_s: float | None) -> bool:
        if time_left_s is None:
            return False
        return time_left_s <= 0 or method.cost_s * (1 - OVERRUN) > time_left_s
