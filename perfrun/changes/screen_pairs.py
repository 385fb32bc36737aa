"""Spend a night's time for confirmations on its suspects, by pairs, in the order of evidence.

Each pair goes to the suspect of which it promises most evidence per second. A suspect is confirmed
when its pairs prove a change in its direction; dropped when they speak against it; and goes on the
next night, with the pairs that it has, when the time is spent first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfrun.analysis.directions import Direction
from perfrun.analysis.screening import Pot, log_growth
from perfrun.changes.confirm import Recorded, Suspect, arms_of, new_differences
from perfrun.changes.detect import differences_between
from perfrun.changes.suspects import (
    FORGOTTEN_DAYS,
    KEPT_DAYS,
    MOST_NIGHTS,
    MOST_PAIRS,
    SeriesName,
    SuspectSeries,
    SuspectState,
    merged,
    read_state,
    write_state,
)
from perfrun.compare.paired_runs import (
    ArmName,
    Decided,
    PairLimits,
    PairResult,
    log_ratios,
    run_pairs,
)
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.locks import FileLock
from perfrun.options.plan import RunPlan
from perfrun.run.interruption import Interruption
from perfrun.run.progress import Screen
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import is_number, section

CHUNK = 2  # pairs of a suspect before the order is looked at again
_DAY_S = 86400.0
_UNKNOWN_S = 60.0  # the duration of a pair where no summary says
_MOST_DIFFERENCES = 100  # between the recorded trials and those of the pairs
_MOST_RATIO = 50.0  # logarithm; what a trial reports can be absurd


@dataclass(frozen=True, kw_only=True)
class Arms:
    """What the pairs of a suspect are run with."""

    recorded: Recorded
    plans: Mapping[ArmName, RunPlan]
    pair_s: float  # duration of one, as far as is known


class SuspectPairs:
    """The suspects of a night and their pairs, in memory and on disk.

    Those of methods that are not of this night, such as another suite's, are left as they are.
    """

    def __init__(
        self,
        workspace: Path,
        night: str,
        day: int,
        methods: Collection[str],
        budget_s: float,
        screen: Screen,
        interruption: Interruption,
        *,
        deadline: float | None = None,
    ) -> None:
        """`budget_s` is for the whole night, also for one that was killed and goes on."""
        self._workspace, self._night, self._day = workspace, night, day
        self._screen, self._interruption, self._deadline = screen, interruption, deadline
        self.problems: list[str] = []  # with the file
        state = read_state(workspace, self.problems.append)
        now = time.time()
        pot = Pot() if state.allowed is None else Pot(allowed=state.allowed)
        self._pot = pot.after((now - state.at) / _DAY_S if state.at else 0.0)
        self._at = now
        self._spent_s = state.spent_s.get(night, 0.0)
        before = [(label, spent_s) for label, spent_s in state.spent_s.items() if label != night]
        self._spent_before = before[-(MOST_NIGHTS - 1) :]
        self._budget_s = budget_s
        open_ = [one for one in state.open if day - one.seen_day <= FORGOTTEN_DAYS]
        for one in state.open:
            if day - one.seen_day > FORGOTTEN_DAYS:
                self._given_back(one)
        confirmed = [one for one in state.confirmed if day - one.told_day <= KEPT_DAYS]
        self.open: dict[SeriesName, SuspectSeries] = {
            one.series: one for one in open_ if one.method in methods
        }
        self.confirmed = [one for one in confirmed if one.method in methods]
        self._others = SuspectState(
            open=tuple(one for one in open_ if one.method not in methods),
            confirmed=tuple(one for one in confirmed if one.method not in methods),
        )
        self._arms: dict[SeriesName, Arms] = {}

    def run(self, suspects: Sequence[SuspectSeries]) -> None:
        """Run the pairs of tonight's suspects. Raises UsageError, OSError and Interrupted.

        Of those that are none tonight, the ones whose pairs are for them go on, too.
        """
        with FileLock(self._workspace / ".locks" / "confirming") as lock:
            if not lock.try_own():
                text = f"another perfrun is confirming changes in {self._workspace}: let it end"
                raise UsageError(text)
            # A night that was killed may have proved some and confirmed none of them.
            proven = [one for one in self.open.values() if one.is_proven]
            for one in proven:
                self._confirm(one)
            told = {one.series for one in proven}
            tonight = {one.series: self._merged(one) for one in suspects if one.series not in told}
            self.open.update(tonight)
            going = [
                name for name, one in self.open.items() if one.log_pairs > 1 or name in tonight
            ]
            for name in going:  # what prevented its pairs in an earlier night may be over
                self.open[name] = replace(self.open[name], why_not=None)
            self._save()
            while best := self._next(going):
                self._interruption.check()
                self._ask(best, going)
                self._interruption.check()
            self._save()

    def _merged(self, one: SuspectSeries) -> SuspectSeries:
        """Return the suspect of tonight; one that it takes the place of gives its error back."""
        known = self.open.get(one.series)
        found = merged(known, one)
        if known is not None and found is one:
            self._given_back(known)
        return found

    def _next(self, names: Sequence[SeriesName]) -> SuspectSeries | None:
        """Return the suspect that a pair promises most of; None when nothing is left to do."""
        if self._left_s() <= 0:
            return None
        waiting = [self.open[name] for name in names if name in self.open]
        for one in waiting:
            if one.why_not is None and one.series not in self._arms:
                self._prepare(one)
        able = [self.open[one.series] for one in waiting]
        able = [one for one in able if one.goes_on]
        return max(able, key=self._promise, default=None)

    def _promise(self, one: SuspectSeries) -> float:
        pair_s = self._arms[one.series].pair_s
        return one.chance * log_growth(one.shift, one.noise) / pair_s

    def _left_s(self) -> float:
        left_s = self._budget_s - self._spent_s
        if self._deadline is not None:
            left_s = min(left_s, self._deadline - time.time())
        return left_s

    def _prepare(self, one: SuspectSeries) -> None:
        """Find out whether, and with what, the two sides can be run again."""
        try:
            recorded, plans = arms_of(Suspect.of(one), self._workspace, MOST_PAIRS)
        except PerfrunError as error:
            self.open[one.series] = replace(one, why_not=str(error))
            return
        spent = [
            section(section(record.document, "perfrun"), "usage").get("elapsed_s")
            for record in recorded.values()
        ]
        known = [float(s) for s in spent if is_number(s) and s > 0]
        pair_s = sum(known) if len(known) == len(spent) else _UNKNOWN_S
        self._arms[one.series] = Arms(recorded=recorded, plans=plans, pair_s=pair_s)

    def _ask(self, one: SuspectSeries, names: Sequence[SeriesName]) -> None:
        """Run some pairs of a suspect, and save each."""
        known = self._asked(self._with_alpha(one))
        self.open[one.series] = known
        self._save()
        arms = self._arms[one.series]
        others = any(
            name != one.series and name in self.open and self.open[name].goes_on for name in names
        )
        begun, before_s = time.monotonic(), self._spent_s

        def decided(found: Sequence[float], _direction: Direction) -> bool:
            now = replace(known, pairs=(*known.pairs, *map(_bounded, found)))
            self.open[one.series] = now
            self._spent_s = before_s + time.monotonic() - begun
            self._save()
            return now.is_proven or not now.goes_on or (others and len(found) >= CHUNK)

        def decider(_methods: int) -> Decided:
            return decided

        most = MOST_PAIRS - len(known.pairs)
        # Each call is a run of its own, of no more trials than it may have.
        plans = {name: replace(plan, num_trials=most) for name, plan in arms.plans.items()}
        limits = PairLimits(max_pairs=most, time_s=self._left_s())
        self._screen.note(f"suspect: {one.metric} of {one.method}, {len(known.pairs)} pairs so far")
        with self._interruption.until(self._deadline):
            try:
                result = run_pairs(
                    plans,
                    self._screen,
                    decider,
                    limits,
                    metric=one.metric,
                    interruption=self._interruption,
                )
            except Interrupted:
                self._interruption.check()
                self._budget_s = 0.0  # the deadline came
                return
            except PerfrunError as error:
                text = f"cannot be run again: {error}"
                self.open[one.series] = replace(self.open[one.series], why_not=text)
                return
        self._spent_s = before_s + time.monotonic() - begun
        if result.interrupted:
            self._budget_s = 0.0
        self._take(result, one, names)

    def _asked(self, one: SuspectSeries) -> SuspectSeries:
        """Note that a suspect has pairs tonight."""
        if one.asked_in == self._night:
            return one
        return replace(one, nights=one.nights + 1, asked_in=self._night)

    def _with_alpha(self, one: SuspectSeries) -> SuspectSeries:
        """Give a suspect its share of the allowed error, before its first pair.

        One that has given it back, and goes on, gets another share for the pairs from here on.
        """
        if one.alpha > 0:
            return one
        alpha, self._pot = self._pot.spent(one.odds)
        asked_odds = one.asked_odds if one.pairs else one.odds
        return replace(one, alpha=alpha, counted_from=len(one.pairs), asked_odds=asked_odds)

    def _given_back(self, one: SuspectSeries) -> SuspectSeries:
        """Put back what a suspect no longer needs of its share of the allowed error."""
        if one.alpha > 0:
            self._pot = self._pot.returned(one.alpha, one.evidence)
        return replace(one, alpha=0.0)

    def _take(self, result: PairResult, asked: SuspectSeries, names: Sequence[SeriesName]) -> None:
        """Take what the pairs say of this suspect, and of other metrics of the same trials."""
        pairs = [pair for own in result.pairs.values() for pair in own]
        sides = (asked.method, asked.before_summary, asked.after_summary)
        recorded = self._arms[asked.series].recorded
        reasons = set(result.stopped_by.values())
        by_arm: dict[ArmName, list[SummaryRecord]] = {
            "a": [pair.a for pair in pairs],
            "b": [pair.b for pair in pairs],
        }
        unlike = new_differences(recorded, by_arm) if pairs else ()
        for name in names:
            one = self.open.get(name)
            if one is None or sides != (one.method, one.before_summary, one.after_summary):
                continue
            if name != asked.series:
                more = tuple(map(_bounded, log_ratios(pairs, one.metric)))
                one = self._asked(self._with_alpha(one)) if more else self._with_alpha(one)
                one = replace(one, pairs=(*one.pairs, *more)[:MOST_PAIRS])
            elif reasons & {"failed", "no_figure"}:
                one = replace(one, why_not="its trials no longer give this figure")
            known = dict.fromkeys((*one.not_reconstructed, *unlike))
            one = replace(one, not_reconstructed=tuple(known)[:_MOST_DIFFERENCES])
            if one.is_proven:
                self._confirm(one)
            elif one.why_not is None and one.evidence < 0 and not one.goes_on:
                self.open[name] = self._given_back(one)  # refuted, until the nights say more
            else:
                self.open[name] = one
        self._save()

    def _confirm(self, one: SuspectSeries) -> None:
        found = differences_between(one.before_summary, one.after_summary)
        told = replace(one, told_day=self._day, told_in=self._night, differences=tuple(found or ()))
        self.confirmed.append(told)
        self.open.pop(one.series, None)

    def _save(self) -> None:
        state = SuspectState(
            open=(*self.open.values(), *self._others.open),
            confirmed=(*self._others.confirmed, *self.confirmed),
            allowed=self._pot.allowed,
            at=self._at,
            spent_s=dict([*self._spent_before, (self._night, self._spent_s)]),
        )
        write_state(self._workspace, state)


def _bounded(ratio: float) -> float:
    return max(-_MOST_RATIO, min(_MOST_RATIO, ratio)) if math.isfinite(ratio) else 0.0
