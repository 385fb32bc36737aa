"""Submissions for `perfrun prune`: which are over, and which of these nothing needs any more.

A trial that came from a submission runs the copy of the code that lies in it, so a submission stays
as long as one of its trials. What has not been collected is never removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfrun.errors import PerfrunError
from perfrun.nightly.retention import SUBMISSION, PairSet, Policy, pairs_to_be_removed
from perfrun.shards.collect import is_collected
from perfrun.shards.places import Attempt, ShardPlace
from perfrun.shards.plan import Plan
from perfrun.shards.plan_file import plan_files, read_plan
from perfrun.shards.status import ShardStatus, statuses
from perfrun.summary.record import SummaryRecord


def old_submissions(
    workspace: Path,
    trials: Sequence[SummaryRecord],
    going: Collection[SummaryRecord],
    policy: Policy,
    *,
    now: float,
) -> tuple[PairSet, ...]:
    """Choose the submissions to be removed, oldest first; `going` are the trials that are.

    The number of trials that each series keeps says nothing of submissions: these go with theirs.
    """
    gone = {trial.path.parent for trial in going}
    needed = {trial.label for trial in trials if trial.path.parent not in gone}
    own = replace(policy, keep_per_series=None)
    if own.keeps_all_ended and not policy.keeps_all_ended:
        own = replace(own, older_than_s=0.0)
    return pairs_to_be_removed(list(_sets(workspace, needed)), trials, own, now=now)


def _sets(workspace: Path, needed: Collection[str]) -> Iterator[PairSet]:
    for path in plan_files(workspace):
        folder = path.parent
        if folder.name in needed or folder.is_symlink():
            continue
        try:
            plan = read_plan(path)
        except PerfrunError:
            continue
        found = statuses(plan)
        if _is_in_use(plan, found):
            continue
        is_over = all(one.state.has_result for one in found)
        yield PairSet(
            kind=SUBMISSION,
            methods=(plan.suite,),
            newest=max([plan.created, *map(_last, found)]),
            folders=(folder,),
            trials=0,  # they are in the workspace
            unfinished=None if is_over else path,
            held_by=(path,) if is_over else (),
        )


def _is_in_use(plan: Plan, found: Sequence[ShardStatus]) -> bool:
    """Return True while a process works on a shard, or a result has not been collected."""
    return any(
        any(not is_collected(attempt) for attempt in _results(plan, one))
        or ShardPlace(plan, one.shard.index).is_held()
        for one in found
    )


def _results(plan: Plan, status: ShardStatus) -> tuple[Attempt, ...]:
    """Return the attempt that counts; before one does, those that would count when they are found.

    A process may have been killed between the end of an attempt and its result.
    """
    if status.state.has_result and status.last is not None:
        return (status.last,)
    return ShardPlace(plan, status.shard.index).unpublished()


def _last(status: ShardStatus) -> float:
    """Return when something happened to a shard last; 0 for nothing."""
    times = [0.0]
    for one in status.attempts:
        times += [one.begun.begun] if one.begun else []
        times += [one.ended.ended] if one.ended else []
    return max(times)
