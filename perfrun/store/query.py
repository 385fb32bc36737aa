"""The values that an index is queried by, and those that it returns."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from perfrun.analysis.directions import Direction
from perfrun.errors import StoreError
from perfrun.summary.trial_environment import digest_of


def lost_trials() -> StoreError:
    """Return the error of trials that went while series were read."""
    return StoreError("has lost trials while they were read: run the same command again")


@dataclass(frozen=True, kw_only=True)
class SeriesKey:
    """The properties that all points of a series share."""

    method: str
    metric: str
    environment: str
    hardware: str
    driver: str
    source: str
    settings: str


class Checkouts(dict[str, str]):
    """Folder of each checkout to its commit, as a context of the index has them.

    Trials with an equal `digest` ran the same on record: commits, image, packages, flags, machine.
    It is '' where the record does not say what ran.
    """

    digest = ""

    @classmethod
    def of(cls, commits: str, document: str) -> Checkouts:
        """Return those of a context, whose commits and environment are JSON with sorted keys."""
        found = cls(json.loads(commits))
        found.digest = digest_of(document, commits)
        return found


class Point(NamedTuple):
    """One trial's figure. Only trials that ran to the end have figures.

    It is a tuple because there may be many, and a frozen dataclass takes three times as long.
    """

    execution_id: str
    run_id: str  # '' in PerfZero's
    timestamp: float  # seconds since the epoch
    value: float  # always finite
    status: str  # passed or out_of_bounds
    grade: str  # '' when not judged
    disturbed: bool
    commits: Mapping[str, str]  # folder of the checkout to commit
    label: str
    summary_path: str


class Origin(NamedTuple):
    """The trial that points come from, with the fields of `Point` that they share."""

    execution_id: str
    run_id: str
    timestamp: float
    status: str
    grade: str
    disturbed: bool
    commits: Mapping[str, str]
    label: str
    summary_path: str


Columns = tuple[Sequence[Origin], list[float]]  # the trials of a series, and the figure of each


class Facts(Protocol):
    """The parts of `Origin` that decide which trials count."""

    @property
    def run_id(self) -> str: ...
    @property
    def timestamp(self) -> float: ...
    @property
    def status(self) -> str: ...
    @property
    def disturbed(self) -> bool: ...


class RowsToRead(Sequence[Origin]):
    """Trials whose numbers are known and whose texts are not read yet."""

    @property
    @abstractmethod
    def commits(self) -> Sequence[Mapping[str, str]]:
        """The commits of each."""

    @property
    @abstractmethod
    def facts(self) -> Sequence[Facts]:
        """What decides which of them count, of each."""

    @property
    @abstractmethod
    def times(self) -> Sequence[float]:
        """The seconds since the epoch at which each began."""

    @property
    @abstractmethod
    def numbers(self) -> Sequence[int]:
        """The numbers of the trials in the index."""

    @property
    @abstractmethod
    def quiet_single_runs(self) -> bool:
        """True where each is a run of its own and none was disturbed."""

    @property
    @abstractmethod
    def ranks(self) -> Sequence[int]:
        """Numbers that order the trials of a subject by time, of each."""

    @abstractmethod
    def joined(self, others: Sequence[RowsToRead]) -> RowsToRead:
        """Return them with others of the same index behind them."""

    @abstractmethod
    def taken(self, order: Sequence[int]) -> RowsToRead:
        """Return them in another order."""

    @abstractmethod
    def read_ahead(self, several: Iterable[tuple[RowsToRead, int]]) -> None:
        """Read single trials of the same index, given where they stand, at once."""

    @abstractmethod
    def is_same(self, other: Sequence[Origin]) -> bool:
        """Return True for just the same trials in the same order."""


class Origins:
    """The trials of series in order: one object for all metrics of the same trials.

    Results that follow from the trials alone are computed once for all metrics, so this is compared
    and cached by identity.
    """

    def __init__(self, rows: Sequence[Origin]) -> None:
        # Those of a large index have their texts read when one of them is looked at.
        self.rows = rows if isinstance(rows, RowsToRead) else tuple(rows)

    @property
    def commits(self) -> Sequence[Mapping[str, str]]:
        """The commits of each trial; trials of a run share one object."""
        if isinstance(self.rows, RowsToRead):
            return self.rows.commits
        return [row.commits for row in self.rows]

    @property
    def digests(self) -> Sequence[str]:
        """The digest of what each trial ran; '' where that is not known."""
        return [getattr(commits, "digest", "") for commits in self.commits]

    @property
    def facts(self) -> Sequence[Facts]:
        """What decides which trials count, of each."""
        return self.rows.facts if isinstance(self.rows, RowsToRead) else self.rows

    @property
    def times(self) -> Sequence[float]:
        """The seconds since the epoch at which each trial began."""
        if isinstance(self.rows, RowsToRead):
            return self.rows.times
        return [row.timestamp for row in self.rows]

    def taken(self, order: Sequence[int]) -> Origins:
        """Return the trials in another order."""
        if isinstance(self.rows, RowsToRead):
            return Origins(self.rows.taken(order))
        return Origins([self.rows[place] for place in order])


@dataclass(frozen=True, kw_only=True)
class Series:
    """The history of one metric of one method on one machine in one environment.

    It is stored in columns: callers that read all figures of a store use `values` and `origins`.
    """

    key: SeriesKey
    unit: str  # '' when unknown
    direction: Direction  # which way is better
    origins: Origins  # by git ancestry where it is known, else by time
    values: Sequence[float]  # one for each of the origins
    derived_from: str = ""  # the metric that it is derived from; '' for a primary one

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The points one by one, in the order of their origins."""
        pairs = zip(self.origins.rows, self.values, strict=True)
        return tuple([point_of(origin, value) for origin, value in pairs])


def point_of(origin: Origin, value: float) -> Point:
    """Return a point of that trial."""
    return Point._make((*origin[:3], value, *origin[3:]))


@dataclass(frozen=True, kw_only=True)
class Selector:
    """A selection of trials: all given parts must hold. Methods may be patterns (`*`)."""

    methods: tuple[str, ...] = ()
    subjects: tuple[int, ...] = ()  # their ids in the index that is asked
    numbers: tuple[int, ...] = ()  # of trials, the same
    labels: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    execution_ids: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()  # of any checkout; the first digits are enough
    folders: tuple[Path, ...] = ()  # the summary lies below one of them
    since: float | None = None  # seconds since the epoch, inclusive
    until: float | None = None  # exclusive


@dataclass(frozen=True, kw_only=True)
class BadFile:
    """A summary that could not be read."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The numbers of trials, methods, series and missing files of an index."""

    trials: int
    methods: int
    subjects: int  # series, not counting metrics separately
    gone: int  # files that no longer exist, of a store that keeps their trials
