"""Histories as the page draws them: a point for each run or night, in the order of time.

A method's series before and after a new driver or an edited benchmark are one history here, with a
cut between them: `detect` must not compare what lies on both sides, and a reader wants to see it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Any, NamedTuple, Protocol

from perfrun.changes.beginnings import source_text
from perfrun.changes.observations import night_of
from perfrun.page.document import Cut
from perfrun.page.packed import Packed, packed, packed_times, packed_whole
from perfrun.store.query import Series
from perfrun.summary.counted_trials import counted_places
from perfrun.summary.document import Status
from perfrun.summary.metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary.series_identity import Subject, section, text

_MOST_CUTS = 40  # of a history
_MOST_NOISE = 60  # observations that noise is estimated from
_FEWEST_NOISE, _ENOUGH_NOISE = 4, 10
DISTURBED, FAILED = 1, 2  # bits of a point's flags
RunKey = str | int  # a run's id, or the night of trials without one


class _Dated(Protocol):
    """What both of the protocols below ask of a trial."""

    @property
    def execution_id(self) -> str:
        """The id of the trial."""

    @property
    def run_id(self) -> str:
        """The id of its run; '' in PerfZero's."""

    @property
    def timestamp(self) -> float:
        """Its begin, in seconds since the epoch."""

    @property
    def disturbed(self) -> bool:
        """True when the machine was disturbed."""


class Trial(_Dated, Protocol):
    """The facts of a trial that the page needs; a summary's record has them, and more."""

    @property
    def subject(self) -> Subject:
        """The subject that was measured."""

    @property
    def status(self) -> Status:
        """Its outcome."""

    @property
    def ran(self) -> bool:
        """True when the method ended by itself."""

    @property
    def grade(self) -> str:
        """Its grade; '' when it was not judged."""

    @property
    def hostname(self) -> str:
        """The host on which it ran."""

    @property
    def context(self) -> Mapping[str, Any]:
        """Its framework, Python, image and machine, as the index keeps them."""


class Row(_Dated, Protocol):
    """The facts of a trial that a history needs."""

    @property
    def commits(self) -> Mapping[str, str]:
        """The commits of its checkouts, by their folders."""


class MethodKey(NamedTuple):
    """A row of the page: a method, without what may change within its history."""

    method: str
    environment: str
    hardware: str
    settings: str


class Facts(NamedTuple):
    """The facts of a trial whose changes are marked as cuts."""

    driver: str
    source: str
    framework: str
    python: str
    image: str


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Facts about all selected trials that their series do not have."""

    begins: Mapping[RunKey, float]  # of each run: the same for all its methods
    facts: Mapping[str, Facts]  # by execution id
    failed: Mapping[MethodKey, Mapping[RunKey, float]]  # runs of a method without a figure


def run_key(run_id: str, timestamp: float) -> RunKey:
    """Return what the trials of one point share."""
    return run_id or night_of(timestamp)


def key_of_record(record: Trial) -> MethodKey:
    """Return the row of the page that a trial belongs to."""
    own = record.subject
    return MethodKey(own.method, own.environment, own.hardware, own.settings)


def key_of_series(series: Series) -> MethodKey:
    """Return the row of the page that a series belongs to."""
    own = series.key
    return MethodKey(own.method, own.environment, own.hardware, own.settings)


def trials_of(records: Iterable[Trial], known_begins: Mapping[RunKey, float]) -> Trials:
    """Gather what the histories need of the trials, and when their runs began, as far as known."""
    begins = dict(known_begins)
    facts: dict[str, Facts] = {}
    known: dict[tuple[int, str, str], Facts] = {}
    ran: dict[MethodKey, set[RunKey]] = {}
    failed: dict[MethodKey, dict[RunKey, float]] = {}
    for record in records:
        key, run = key_of_record(record), run_key(record.run_id, record.timestamp)
        begins[run] = min(record.timestamp, begins.get(run, record.timestamp))
        if record.ran:
            ran.setdefault(key, set()).add(run)
        else:
            failed.setdefault(key, {})[run] = record.timestamp
        # Trials of one context share its object where an index gave them.
        place = (id(record.context), record.subject.driver, record.subject.source)
        if place not in known:
            known[place] = _facts(record)
        facts[record.execution_id] = known[place]
    alone = {
        key: {run: time for run, time in runs.items() if run not in ran.get(key, ())}
        for key, runs in failed.items()
    }
    return Trials(begins=begins, facts=facts, failed=alone)


def _facts(record: Trial) -> Facts:
    context = record.context
    framework = section(context, "framework")
    name = text(framework.get("name"))
    image = section(context, "image")
    return Facts(
        driver=record.subject.driver,
        source=record.subject.source,
        framework="" if name in ("", "none") else f"{name} {text(framework.get('version'))}",
        python=text(section(context, "python").get("version")),
        image=text(image.get("image_id"))[:19],
    )


class Calendar:
    """The points of the histories whose metrics have the same trials."""

    def __init__(
        self,
        parts: Sequence[Sequence[Row]],
        trials: Trials,
        failed: Mapping[RunKey, float],
        since: float,
        commits: Commits,
    ) -> None:
        self._rows = [row for part in parts for row in part]
        groups: dict[RunKey, list[int]] = {}
        for place, row in enumerate(self._rows):
            groups.setdefault(run_key(row.run_id, row.timestamp), []).append(place)
        begun = {
            run: trials.begins.get(run, self._rows[own[0]].timestamp) for run, own in groups.items()
        }
        begun |= {run: trials.begins.get(run, time) for run, time in failed.items()}
        order = sorted((time, str(run), run) for run, time in begun.items() if time >= since)
        self.times = [time for time, _, _ in order]
        self.members: list[Sequence[int]] = []
        self.flags: list[int] = []
        for _, _, run in order:
            counted, flag = self._counted(groups.get(run, []))
            self.members.append(counted)
            self.flags.append(flag)
        self.single = all(len(own) == 1 for own in self.members)
        self.commits = [self._commit(own, commits) for own in self.members]
        self.cuts = self._cuts(trials.facts)

    def _counted(self, own: Sequence[int]) -> tuple[Sequence[int], int]:
        """Return the trials that count in a point, by the rule of all commands, and its flags."""
        if not own:
            return own, FAILED
        counted, is_disturbed = counted_places(self._rows, own)
        return counted, DISTURBED if is_disturbed else 0

    def _commit(self, own: Sequence[int], commits: Commits) -> int | None:
        return commits.place(self._rows[own[-1]].commits) if own else None

    def _cuts(self, facts: Mapping[str, Facts]) -> tuple[Cut, ...]:
        cuts: list[Cut] = []
        last: Facts | None = None
        for at, own in enumerate(self.members):
            found = facts.get(self._rows[own[-1]].execution_id) if own else None
            if found is None:
                continue
            if last is not None and found is not last and found != last:
                cuts.append(Cut(at=at, text=_cut_text(last, found)))
            last = found
        return tuple(cuts[-_MOST_CUTS:])

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The point of each trial, by its execution id; of one that does not count, too."""
        return {
            self._rows[place].execution_id: at
            for at, own in enumerate(self.members)
            for place in own
        }

    @cached_property
    def time(self) -> Packed:
        """The times of all points."""
        return packed_times(self.times)

    @cached_property
    def commit(self) -> Packed | None:
        """The commits of all points; None where none is known."""
        known = any(one is not None for one in self.commits)
        return packed_whole(self.commits) if known else None

    def medians(self, values: Sequence[float]) -> list[float | None]:
        """Return the value of each point, given those of the trials."""
        if self.single:
            return [values[own[0]] for own in self.members]
        return [median([values[at] for at in own]) if own else None for own in self.members]

    def intervals(self, values: Sequence[float]) -> tuple[Packed, Packed] | None:
        """Return the 95 % intervals of the medians; None where each point is one trial."""
        if max(map(len, self.members), default=0) < 2:
            return None
        from numpy import errstate

        from perfrun.analysis.stats import median_interval

        lows: list[float | None] = []
        highs: list[float | None] = []
        with errstate(over="ignore", invalid="ignore"):  # a trial may report 1e307
            for own in self.members:
                found = median_interval([values[at] for at in own]) if len(own) > 1 else None
                is_known = found is not None and isfinite(found.low) and isfinite(found.high)
                lows.append(found.low if found and is_known else None)
                highs.append(found.high if found and is_known else None)
        return packed(lows), packed(highs)


def _cut_text(before: Facts, after: Facts) -> str:
    texts = []
    for name, old, new in zip(Facts._fields, before, after, strict=True):
        if old == new:
            continue
        if name == "source":
            texts.append(f"benchmark {source_text(old, '')} -> {source_text(new, '')}")
        elif name == "framework" and old.partition(" ")[0] == new.partition(" ")[0]:
            texts.append(f"{old} -> {new.partition(' ')[2]}")
        else:
            texts.append(f"{name} {old or 'none'} -> {new or 'none'}")
    return "; ".join(texts)


class Commits:
    """The commits of the points, each with its place in the page."""

    def __init__(self, series: Iterable[Series]) -> None:
        """Choose for each trial the checkout that says most: the one with the most commits."""
        found: dict[str, set[str]] = {}
        seen: set[int] = set()
        for one in {id(one.origins): one.origins for one in series}.values():
            for commits in one.commits:
                if id(commits) not in seen:
                    seen.add(id(commits))
                    for name, commit in commits.items():
                        found.setdefault(name, set()).add(commit)
        self._names = sorted(found, key=lambda name: (-len(found[name]), name))
        self.places: dict[tuple[str, str], int] = {}  # folder of the checkout, commit
        self._of: dict[int, tuple[Mapping[str, str], int | None]] = {}

    def place(self, commits: Mapping[str, str]) -> int | None:
        """Return the place of a trial's commit; None without any."""
        known = self._of.get(id(commits))
        if known is None:
            name = next((name for name in self._names if name in commits), None)
            number = None
            if name is not None:
                number = self.places.setdefault((name, commits[name]), len(self.places))
            known = self._of[id(commits)] = (commits, number)
        return known[1]


def hardware_key(hardware: str) -> str:
    """Return a key for a kind of machine that has room in a table."""
    return hashlib.sha256(hardware.encode("utf-8", "replace")).hexdigest()[:6] if hardware else ""


def relevance(metric: str, direction: str) -> int:
    """Return the rank of a metric: the lowest stands for its method (as in a night's report)."""
    first = (WALL_TIME, THROUGHPUT)
    if metric in first:
        return first.index(metric)
    return 4 if metric == PEAK_RSS else 2 if direction != "none" else 3


def noise_of(
    values: Sequence[float | None], flags: Sequence[int], changes: Sequence[int]
) -> float | None:
    """Return the relative noise of the points between two changes of level.

    Those since the last change count if they are enough, else the longest time without one. The
    disturbed ones are left out, unless most are: then that is the normal state of this machine.
    """
    from numpy import errstate

    from perfrun.analysis.stats import relative_noise

    known = [
        (at, value, bool(flag & DISTURBED))
        for at, (value, flag) in enumerate(zip(values, flags, strict=True))
        if value is not None
    ]
    quiet = [one for one in known if not one[2]]
    counted = quiet if 2 * len(quiet) >= len(known) else known
    ends = sorted({0, *changes, len(values)})
    levels = [
        [value for at, value, _ in counted if begin <= at < end] for begin, end in pairwise(ends)
    ]
    if not levels:
        return None
    chosen = levels[-1] if len(levels[-1]) >= _ENOUGH_NOISE else max(levels, key=len)
    if len(chosen) < _FEWEST_NOISE:
        return None
    with errstate(all="ignore"):
        found = relative_noise(chosen[-_MOST_NOISE:])
    return found if found is not None and isfinite(found) else None
