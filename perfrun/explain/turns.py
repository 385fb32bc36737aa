"""Trials and profiles of two versions in turns, the order of the versions drawn anew each time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from perfrun.analysis.attribution import FEWEST_TURNS
from perfrun.compare.paired_runs import ARMS, MOST_FAILURES, ArmName, ArmScreen, Pair, new_seed
from perfrun.errors import PerfrunError, UsageError
from perfrun.explain.profile_rows import NoRows, Reading, reading_of, unlike
from perfrun.options.plan import RunPlan
from perfrun.run.interruption import Interruption, taking_signals
from perfrun.run.progress import Screen
from perfrun.run.rounds import Rounds
from perfrun.run.runner import import_paths, prepare
from perfrun.summary.document import Status, TrialResult
from perfrun.summary.record import SummaryRecord, record_of
from perfrun.summary.series_identity import objects, section, text
from perfrun.worker.procfs import adopt_orphans

# Given a summary of a method, returns the kinds of profile that suit it.
Choose = Callable[[SummaryRecord], Sequence[str]]


class ExplainFailed(PerfrunError):  # noqa: N818 - it is an answer
    """Raised when a side has no figures to be explained."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What was recorded; each list has an element for each complete turn."""

    method: str
    pairs: tuple[Pair, ...]  # trials without a profiler
    # By kind. A turn in which a profile failed has none, so a kind can have fewer than `pairs`;
    # both sides of a kind have those of the same turns.
    readings: Mapping[str, Mapping[ArmName, tuple[Reading, ...]]]
    lost: Mapping[str, str]  # by kind: how many turns it lacks, and why the last of them
    folders: Mapping[str, Mapping[ArmName, str]]  # of the last profile of each kind
    roots: Mapping[ArmName, tuple[str, ...]]  # folders from which code was imported
    left_out: Mapping[str, str]  # kinds without rows, and why
    seed: int
    stopped_by: str  # turns, time_budget, failed or interrupted
    failure: str | None  # with failed: why


@dataclass
class _Kind:
    by_turn: dict[int, Mapping[ArmName, Reading]] = field(default_factory=dict)
    folders: Mapping[ArmName, str] = field(default_factory=dict)
    failed: int = 0  # the last turn in which it failed, and why
    why: str = ""
    in_a_row: int = 0

    @property
    def is_over(self) -> bool:
        """True when it has failed too often to be tried again."""
        return self.in_a_row >= MOST_FAILURES

    def lost(self, turns: int) -> str | None:
        """Return how many of the complete turns it lacks, and why; None if it lacks none."""
        lacks = turns - len(self.by_turn)
        if lacks <= 0:
            return None
        return f"{lacks} of {turns} turns lack such profiles; turn {self.failed}: {self.why}"


class _QuietProfiles(ArmScreen):
    """A screen on which profiles have no tables of their own."""

    def __init__(self, name: str, screen: Screen) -> None:
        super().__init__(name, screen, in_pairs=True)
        self.profile_finished = self._ignore
        self.profile_started = self._started

    def _ignore(self, result: TrialResult) -> None:
        """Take in a profile, which the table of the explanation shows."""

    def _started(self, method: str, kind: str) -> None:
        """Take in that a profile begins: a line for each would be many."""


def run_turns(
    plans: Mapping[ArmName, RunPlan],
    choose: Choose,
    turns: int,
    metric: str,
    screen: Screen,
    *,
    seed: int | None = None,
    time_s: float | None = None,
    interruption: Interruption | None = None,
) -> Turns:
    """Run the turns. An interruption leaves the complete ones. Raises PerfrunError."""
    adopt_orphans()
    proposed = new_seed() if seed is None else seed
    with taking_signals(interruption) as ours, ExitStack() as stack:
        with ours.allowed():
            arms: dict[ArmName, Rounds] = {}
            for name in ARMS:
                shown = _QuietProfiles(name, screen)
                arms[name] = prepare(plans[name], shown, ours, stack, proposed, check_names=True)
        methods = {name: arm.methods for name, arm in arms.items()}
        if len(methods["a"]) != 1 or methods["a"] != methods["b"]:
            every = sorted({method for own in methods.values() for method in own})
            raise UsageError(
                "perfrun explain: one method is explained at a time, the same on both sides, "
                f"not {', '.join(every) or 'none'}"
            )
        work = _Turns(arms, methods["a"][0], choose, metric, screen, proposed)
        stopped_by = work.run(turns, time_s, ours)
        roots: dict[ArmName, tuple[str, ...]] = {
            name: (str(plan.site_packages.resolve()), *import_paths(plan).first)
            for name, plan in plans.items()
        }
        return work.result(roots, stopped_by)


class _Turns:
    def __init__(
        self,
        arms: Mapping[ArmName, Rounds],
        method: str,
        choose: Choose,
        metric: str,
        screen: Screen,
        seed: int,
    ) -> None:
        self._arms, self._method, self._choose = arms, method, choose
        self._metric, self._screen, self._seed = metric, screen, seed
        self._pairs: list[Pair] = []
        self._kinds: dict[str, _Kind] | None = None  # known after the first trial
        self._left_out: dict[str, str] = {}
        self._failure: str | None = None

    def run(self, turns: int, time_s: float | None, interruption: Interruption) -> str:
        """Run so many turns; return why they ended."""
        begun_s = last_s = time.monotonic()
        longest_s, failures, stopped_by = 0.0, 0, "turns"
        for number in range(1, turns + 1):
            spent_s = time.monotonic() - begun_s
            if number > 1 and time_s is not None and spent_s + longest_s > time_s:
                stopped_by = "time_budget"
                break
            pair = self._pair(number)
            if pair is None:
                stopped_by = "interrupted"
                break
            if pair.values(self._metric) is None:
                failures += 1
                if failures == MOST_FAILURES:
                    if not self._pairs:
                        raise ExplainFailed(_why_not(pair, self._metric))
                    self._failure, stopped_by = _why_not(pair, self._metric), "failed"
                    break
                continue
            failures = 0
            if not self._profiles(number, pair) or interruption.asked:
                stopped_by = "interrupted"
                break
            self._pairs.append(pair)
            longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
            self._screen.note(f"turn {number} of {turns}: {', '.join(self._kinds or ())}")
        for arm in self._arms.values():
            arm.finish(ended=True)
        return stopped_by

    def result(self, roots: Mapping[ArmName, tuple[str, ...]], stopped_by: str) -> Turns:
        complete = {pair.number for pair in self._pairs}
        kinds = self._kinds or {}
        return Turns(
            method=self._method,
            pairs=tuple(self._pairs),
            readings={
                name: {
                    arm: tuple(own[arm] for turn, own in kind.by_turn.items() if turn in complete)
                    for arm in ARMS
                }
                for name, kind in kinds.items()
            },
            lost={name: said for name, kind in kinds.items() if (said := kind.lost(len(complete)))},
            folders={name: kind.folders for name, kind in kinds.items()},
            roots=roots,
            left_out=self._left_out,
            seed=self._seed,
            stopped_by=stopped_by,
            failure=self._failure,
        )

    def _order(self, number: int, what: str) -> list[ArmName]:
        order = list(ARMS)
        random.Random(f"{self._seed}/{number}/{what}").shuffle(order)  # noqa: S311
        return order

    def _pair(self, number: int) -> Pair | None:
        """Run a trial of each side without a profiler; None when it is interrupted."""
        order = self._order(number, "trial")
        records: dict[ArmName, SummaryRecord] = {}
        for name in order:
            result = self._arms[name].run_one(self._method, number)
            if result is None:
                return None
            records[name] = record_of(result.document, Path(result.summary))
        return Pair(number=number, first=order[0], a=records["a"], b=records["b"])

    def _profiles(self, number: int, pair: Pair) -> bool:
        """Run the profile trials of a turn; False when they are interrupted."""
        if self._kinds is None:
            self._kinds = {kind: _Kind() for kind in self._choose(pair.a)}
        for name, kind in list(self._kinds.items()):
            if kind.is_over:
                continue
            found: dict[ArmName, Reading] = {}
            folders: dict[ArmName, str] = {}
            for arm in self._order(number, name):
                result = self._arms[arm].profile_one(self._method, number, name)
                if result is not None and result.status is Status.INTERRUPTED:
                    return False
                try:
                    if result is None:
                        raise NoRows("its folder cannot be written")
                    found[arm] = reading_of(name, result)
                    folders[arm] = str(Path(result.summary).parent / "profile")
                except NoRows as error:
                    self._failed(name, kind, number, f"{arm}: {error}")
                    break
            else:
                earlier = [own["a"] for own in kind.by_turn.values()][:1]
                if why := unlike([*earlier, *found.values()]):
                    self._leave_out(name, f"turn {number}: {why}")
                    continue
                kind.by_turn[number], kind.folders = found, folders
                kind.in_a_row = 0
        return True

    def _failed(self, name: str, kind: _Kind, turn: int, why: str) -> None:
        """Leave a kind out that fails at once, or too often; else only this turn of it."""
        kind.failed, kind.why, kind.in_a_row = turn, why, kind.in_a_row + 1
        if not kind.by_turn or (kind.is_over and len(kind.by_turn) < FEWEST_TURNS):
            self._leave_out(name, why)
        else:
            more = "; it is not tried again" if kind.is_over else ""
            self._screen.problem(f"profile {name}, turn {turn}: {why}{more}")

    def _leave_out(self, kind: str, why: str) -> None:
        assert self._kinds is not None
        del self._kinds[kind]
        self._left_out[kind] = why
        self._screen.problem(f"profile {kind}: {why}; it is left out")


def _why_not(pair: Pair, metric: str) -> str:
    for name, record in (("base", pair.a), ("new", pair.b)):
        if not record.ran:
            outcome = section(section(record.document, "perfrun"), "outcome")
            reason = text(outcome.get("reason")) or record.status.value
            return f"the trials of {name} fail: {reason}; {record.path}"
    return f"no pair of trials has a value of {metric} on both sides; {pair.a.path}"


def frameworks_of(record: SummaryRecord) -> tuple[str, ...]:
    """Return the names of the frameworks that a trial had loaded."""
    own = section(record.document, "perfrun")
    return tuple(text(one.get("name")) for one in objects(own.get("frameworks")))
