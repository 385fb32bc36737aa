"""Choose the results to be removed: by age, by nights, by trials of a series. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfrun.changes.observations import night_of
from perfrun.errors import UsageError
from perfrun.summary.record import SummaryRecord

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(d|w|h)")
SUBMISSION = "submission"  # kind of a set
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The results to keep. A trial is removed only when every part that is given allows it."""

    keep_nights: int | None = None  # the last nights that have trials
    keep_per_series: int | None = None  # the newest trials of each series
    older_than_s: float | None = None
    # What was interrupted and has no newer trial counts as ended: it is not resumed any more.
    unfinished_older_than_s: float | None = None

    @property
    def is_empty(self) -> bool:
        """True when no part is given, so that nothing is removed."""
        return self == Policy()

    @property
    def keeps_all_ended(self) -> bool:
        """True when no part is given that removes ended runs."""
        return (self.keep_nights, self.keep_per_series, self.older_than_s) == (None, None, None)

    def counts_as_ended(self, newest: float, now: float) -> bool:
        """Return True when something interrupted counts as ended, by its newest trial."""
        age = self.unfinished_older_than_s
        return age is not None and now - newest > age


@dataclass(frozen=True, kw_only=True)
class PairSet:
    """Trials that were run against each other, and have a meaning only together."""

    kind: str  # of each kind and methods, the newest sets are counted
    methods: tuple[str, ...]
    newest: float  # seconds since the epoch
    folders: tuple[Path, ...]
    trials: int
    unfinished: Path | None = None  # the log from which an interrupted one can be resumed
    held_by: tuple[Path, ...] = ()  # further logs and locks; while one is held, it is in use


def parse_age(text: str, flag: str) -> float:
    """Parse `90d`, `12w` or `48h` into seconds. Raises UsageError."""
    found = _AGE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{flag}={text}: write 90d, 12w or 48h")
    return float(found[1]) * _SECONDS[found[2]]


def to_be_removed(
    trials: Sequence[SummaryRecord],
    policy: Policy,
    *,
    now: float,
    neighbours: Collection[str] = (),
    unfinished: Collection[str] = (),
    named: Collection[str] = (),
) -> tuple[SummaryRecord, ...]:
    """Choose the trials to be removed, oldest first.

    `neighbours` are the execution ids on both sides of a change of level: these trials stay, and
    the other trials of the method in their runs. `unfinished` are ids of runs that may continue.
    `named` are the uids of trials that a baseline names.
    """
    if policy.keeps_all_ended:
        return ()
    near = {(trial.method, trial.run_id) for trial in trials if trial.execution_id in neighbours}
    late = _late(trials, policy)
    return tuple(
        trial
        for trial in sorted(trials, key=lambda trial: (trial.timestamp, trial.execution_id))
        if trial.path.parent not in late
        and (policy.older_than_s is None or now - trial.timestamp > policy.older_than_s)
        and trial.uid not in named
        and trial.execution_id not in neighbours
        and not (trial.run_id and (trial.method, trial.run_id) in near)
        and not (trial.run_id and trial.run_id in unfinished)
    )


def pairs_to_be_removed(
    sets: Sequence[PairSet], trials: Sequence[SummaryRecord], policy: Policy, *, now: float
) -> tuple[PairSet, ...]:
    """Choose the sets of pairs to be removed, oldest first.

    Nights are counted by `trials` or, where there are none, by the sets. An interrupted set does
    not count among the newest of its methods, because it has no answer.
    """
    times = [trial.timestamp for trial in trials] or [one.newest for one in sets]
    nights = sorted({night_of(time) for time in times}, reverse=True)[: policy.keep_nights]
    groups: dict[Hashable, list[PairSet]] = defaultdict(list)
    for one in sorted(sets, key=lambda one: (one.newest, one.folders), reverse=True):
        if one.unfinished is None:
            groups[one.kind, one.methods].append(one)
    newest = {one.folders for own in groups.values() for one in own[: policy.keep_per_series or 0]}
    return tuple(
        one
        for one in sorted(sets, key=lambda one: (one.newest, one.folders))
        if one.folders not in newest
        and (
            policy.counts_as_ended(one.newest, now)
            if one.unfinished
            else not policy.keeps_all_ended
        )
        and (policy.older_than_s is None or now - one.newest > policy.older_than_s)
        and (policy.keep_nights is None or night_of(one.newest) < nights[-1])
    )


def _late(trials: Sequence[SummaryRecord], policy: Policy) -> set[Path]:
    """Return the folders of the last nights, and of the newest trials of each series."""
    late: set[Path] = set()
    if policy.keep_nights is not None:
        nights = sorted({night_of(trial.timestamp) for trial in trials}, reverse=True)
        last = set(nights[: policy.keep_nights])
        late |= {trial.path.parent for trial in trials if night_of(trial.timestamp) in last}
    if policy.keep_per_series is not None:
        series: dict[Hashable, list[SummaryRecord]] = defaultdict(list)
        for trial in trials:
            series[trial.subject].append(trial)
        for own in series.values():
            own.sort(key=lambda trial: (trial.timestamp, trial.execution_id), reverse=True)
            late |= {trial.path.parent for trial in own[: policy.keep_per_series]}
    return late
