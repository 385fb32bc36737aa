"""The search of `perfrun bisect`: run the pairs of revisions that `analysis.bisecting` asks for."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfrun.analysis.bisecting import Ask, End, SearchRule, next_move
from perfrun.analysis.culprits import RevisionPair
from perfrun.analysis.search_cost import expected_trials, noise_of
from perfrun.changes.package_versions import PackageVersion, installed
from perfrun.changes.search_log import MeasuredPair, SearchLog, search_lock
from perfrun.compare.paired_runs import ArmScreen
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.options.plan import RunPlan
from perfrun.reports.figures import percent, time_left
from perfrun.run.interruption import Interruption, taking_signals
from perfrun.run.progress import Screen
from perfrun.run.rounds import Rounds
from perfrun.run.runner import prepare
from perfrun.summary.document import TrialResult
from perfrun.summary.record import SummaryRecord, record_of
from perfrun.untrusted import remove_tree
from perfrun.worker.procfs import adopt_orphans
from perfrun.workspace.cache import share_cache

ENVIRONMENTS = "environments"  # folder of a search with the environments of its packages
_MANY = 1_000_000  # trials of a run whose number of trials is not known beforehand
_TRIES = 2  # without a value in a row; after these a revision is skipped
_TRIES_OF_ENDS = 3  # for good and bad, without which there is no search


class RevisionArm:
    """One arm of the pairs: runs trials of a revision in its own workspace.

    Each change of revision begins a new run. Two arms hold both checkouts of a pair at once.
    """

    def __init__(
        self, workspace: Path, name: str, screen: Screen, interruption: Interruption, seed: int
    ) -> None:
        self._workspace = workspace / name
        self._screen = ArmScreen(name, screen)
        self._interruption, self._seed = interruption, seed
        self._plan: RunPlan | None = None
        self._rounds: Rounds | None = None
        self._stack = ExitStack()
        self._number = 0

    def trial(self, plan: RunPlan) -> TrialResult | None:
        """Run one trial of the plan's only method; return None when it is interrupted.

        Raises PerfrunError when the plan cannot be run at all.
        """
        if self._rounds is None or plan is not self._plan:
            self.leave()
            self._rounds = self._enter(plan)
            self._plan, self._number = plan, 0
        self._number += 1
        return self._rounds.run_one(self._rounds.methods[0], self._number)

    def leave(self, *, ended: bool = True) -> None:
        """Release the locks and containers of the revision."""
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.finish(ended=ended)
        self._stack.close()

    def _enter(self, plan: RunPlan) -> Rounds:
        # Both arms share it with the workspace of the search, so that a commit is fetched once.
        share_cache(self._workspace, self._workspace.parents[2])
        own = replace(plan, workspace=self._workspace, num_trials=_MANY, resume=False)
        with self._interruption.allowed(), ExitStack() as stack:
            rounds = prepare(own, self._screen, self._interruption, stack, self._seed)
            if len(rounds.methods) != 1:
                raise UsageError(
                    "--benchmark_methods: one method is searched for at a time, not "
                    + (", ".join(rounds.methods) or "none")
                )
            self._stack = stack.pop_all()
        return rounds


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One item of the ordered list."""

    name: str  # commit hash, image or interpreter
    plan: RunPlan
    author: str | None = None  # of a commit
    date: str | None = None
    subject: str | None = None
    repository: str | None = None  # the name of its checkout
    commits: Mapping[str, str] = field(default_factory=dict)  # of each repository that moves
    parents: tuple[str, ...] = ()
    pull_request: str | None = None  # that it merges or is: `#12`
    branch: str | None = None  # that a merge brings in
    package: PackageVersion | None = None  # to be installed; `plan` has the base's interpreter


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """The end of a search, or of this call."""

    end: End | None  # None when the search was interrupted
    out_of_time: bool = False


def search(
    revisions: Sequence[Revision],
    metric: str,
    rule: SearchRule,
    log: SearchLog,
    screen: Screen,
    time_s: float | None,
) -> SearchState:
    """Search until there is an answer. Each pair is logged as soon as it is measured.

    Raises PerfrunError when good or bad cannot be run.
    """
    adopt_orphans()
    with taking_signals() as interruption, ExitStack() as stack:
        if not stack.enter_context(search_lock(log)).try_own():
            raise UsageError(f"--resume: another perfrun runs the search {log.folder.name}")
        if not log.path.exists():  # removed after it was read and before it was locked
            raise UsageError(f"--resume: the search {log.folder.name} was removed just now")
        work = _Search(revisions, metric, rule, log, screen, interruption)
        try:
            found = work.run(time_s)
        except Interrupted:
            found = SearchState(end=None)
        finally:
            work.leave()
        if found.end is not None:
            log.end(found.end.status)
            if found.end.status != "undecided":  # it will not go on, and they are large
                remove_tree(log.folder / ENVIRONMENTS)
    return found


class _Failed(Exception):  # noqa: N818 - caught in this module
    """A trial that gave no value of the metric."""

    def __init__(self, revision: int, why: str, *, for_good: bool, trials: int) -> None:
        super().__init__(why)
        self.revision, self.for_good, self.trials = revision, for_good, trials


class _Search:
    def __init__(
        self,
        revisions: Sequence[Revision],
        metric: str,
        rule: SearchRule,
        log: SearchLog,
        screen: Screen,
        interruption: Interruption,
    ) -> None:
        self._revisions, self._metric, self._rule = revisions, metric, rule
        self._log, self._screen, self._interruption = log, screen, interruption
        self._arms = {
            name: RevisionArm(log.folder, name, screen, interruption, log.seed)
            for name in ("a", "b")
        }
        self._plans: dict[int, RunPlan] = {}  # of revisions that were installed
        self._failures: Counter[int] = Counter()  # in a row, by revision
        self._asked: tuple[int, int] | None = None
        self._is_told = False
        self._begun_s = 0.0  # when the last pair began

    def run(self, time_s: float | None) -> SearchState:
        # The time that was spent before the search was resumed counts.
        until_s = None if time_s is None else time.monotonic() + time_s - self._log.spent_s

        while True:
            pairs = [
                RevisionPair(a=m.a, b=m.b, log_ratio=math.log(m.values[1] / m.values[0]))
                for m in self._log.pairs
            ]
            broken = self._log.broken.keys()
            move = next_move(len(self._revisions), pairs, broken, self._rule)
            late = until_s is not None and time.monotonic() > until_s
            if late and isinstance(move, Ask):
                rule = replace(self._rule, max_pairs=0)
                move = next_move(len(self._revisions), pairs, broken, rule)
            if not isinstance(move, Ask):
                return SearchState(end=move, out_of_time=late)
            self._tell_cost(move)
            try:
                if not self._pair(move):
                    return SearchState(end=None)
            except _Failed as failure:
                self._note_failure(failure)

    def _tell_cost(self, move: Ask) -> None:
        """Say once what the search will cost, when good and bad have been seen to differ."""
        if self._is_told or move.why == "verify" or not self._log.trials:
            return
        self._is_told = True
        bad = len(self._revisions) - 1
        ends = [
            math.log(m.values[1] / m.values[0]) for m in self._log.pairs if (m.a, m.b) == (0, bad)
        ]
        noise = noise_of(ends)
        if noise is None:
            return
        most = 2 * self._rule.max_pairs
        trials = min(expected_trials(bad - len(self._log.broken), noise), most)
        left = max(trials - self._log.trials, 0)
        trial_s = self._log.spent_s / self._log.trials
        self._screen.note(
            f"a trial's noise is {percent(noise)} of the change: about {left} more trials, "
            f"{time_left(left * trial_s)}"
        )

    def leave(self) -> None:
        for arm in self._arms.values():
            arm.leave()

    def _pair(self, move: Ask) -> bool:
        """Run one pair; return False when it is interrupted."""
        if (move.a, move.b) != self._asked:
            self._asked = (move.a, move.b)
            names = [shown_name(self._revisions[index]) for index in self._asked]
            self._screen.note(f"{move.why}: {names[1]} against {names[0]}")
        done = len(self._log.pairs)
        order = ["a", "b"]
        self._begun_s = time.monotonic()
        random.Random(f"{self._log.seed}/{done}/{self._log.trials}").shuffle(order)  # noqa: S311
        records: dict[str, SummaryRecord] = {}
        for name in order:
            record = self._trial(name, move.a if name == "a" else move.b, len(records))
            if record is None:
                return False
            records[name] = record
        a, b = records["a"], records["b"]
        self._log.pair(
            MeasuredPair(
                a=move.a,
                b=move.b,
                values=(a.values[self._metric], b.values[self._metric]),
                summaries=(str(a.path), str(b.path)),
            ),
            time.monotonic() - self._begun_s,
        )
        return True

    def _trial(self, arm: str, index: int, before: int) -> SummaryRecord | None:
        plan = self._plan(index, before)
        try:
            result = self._arms[arm].trial(plan)
        except Interrupted:
            raise
        except PerfrunError as error:
            raise _Failed(index, str(error), for_good=True, trials=before) from None
        if result is None:
            return None
        record = record_of(result.document, Path(result.summary))
        value = record.values.get(self._metric)
        if value is None or value <= 0:
            why = _why_not(record, self._metric)
            raise _Failed(index, why, for_good=False, trials=before + 1)
        self._failures[index] = 0
        return record

    def _plan(self, index: int, before: int) -> RunPlan:
        """Return the plan of a revision; install its package first."""
        revision = self._revisions[index]
        if revision.package is None:
            return revision.plan
        if index not in self._plans:
            folder = self._log.folder / ENVIRONMENTS / str(index)
            try:
                with self._interruption.allowed():
                    python = installed(revision.package, folder, self._screen.note)
            except Interrupted:
                raise
            except PerfrunError as error:  # perhaps only for now: the network
                raise _Failed(index, str(error), for_good=False, trials=before) from None
            flags = {**revision.plan.flags, "python": python}
            self._plans[index] = replace(revision.plan, python=python, flags=flags)
        return self._plans[index]

    def _note_failure(self, failure: _Failed) -> None:
        index = failure.revision
        self._log.failed(failure.trials, time.monotonic() - self._begun_s, index)
        self._failures[index] += 1
        is_end = index in (0, len(self._revisions) - 1)
        allowed = _TRIES_OF_ENDS if is_end else _TRIES
        if not failure.for_good and self._failures[index] < allowed:
            return
        name = shown_name(self._revisions[index])
        if is_end:
            side = "--good" if index == 0 else "--bad"
            raise UsageError(f"{side} ({name}) does not run: {failure}")
        self._log.skip(index, str(failure))
        self._screen.note(f"{name} is skipped: {failure}")


def shown_name(revision: Revision) -> str:
    """Return the name as messages show it: the hash of a commit is shortened."""
    if revision.subject is None:
        return revision.name
    short = revision.name[:12]
    return f"{revision.repository} {short}" if len(revision.commits) > 1 else short


def _why_not(record: SummaryRecord, metric: str) -> str:
    if record.ran:
        there = ", ".join(sorted(record.values)) or "none"
        return f"no positive {metric} in {record.path}; its metrics are: {there}"
    reason = f" ({record.reason})" if record.reason else ""
    return f"{record.status.value}{reason}, {record.path}"
