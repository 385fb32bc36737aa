"""What is asked of an index, and the values that come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from perfrun.analysis.directions import Direction


@dataclass(frozen=True, kw_only=True)
class SeriesKey:
    """What all points of a series share. Another hardware, driver, source: another series."""

    method: str
    metric: str
    environment: str
    hardware: str
    driver: str
    source: str
    settings: str


class Point(NamedTuple):
    """One trial's figure. Only trials that came to their end have figures.

    A tuple: there may be a million of them, and a frozen dataclass takes three times as long.
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


@dataclass(frozen=True, kw_only=True)
class Series:
    """The history of one metric of one method on one machine in one environment."""

    key: SeriesKey
    unit: str  # '' when unknown
    direction: Direction  # which way is better
    points: tuple[Point, ...]  # by git ancestry where it is known, else by time


@dataclass(frozen=True, kw_only=True)
class Value:
    """One figure of a trial."""

    value: float
    unit: str
    direction: Direction


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial, one that failed too, with all that is known of it without opening its summary."""

    execution_id: str
    run_id: str
    trial_id: int
    timestamp: float
    method: str
    environment: str
    hardware: str
    driver: str
    source: str
    settings: str
    status: str
    grade: str
    disturbed: bool
    label: str
    hostname: str
    commits: Mapping[str, str]
    context: Mapping[str, Any]  # versions, image, machine, flags, code: `extraction.context`
    extras: Mapping[str, Any]
    values: Mapping[str, Value]  # by metric; empty for a trial that failed
    summary_path: str


@dataclass(frozen=True, kw_only=True)
class Selector:
    """Which trials: each part that is given must hold. Names of methods may be patterns (`*`)."""

    methods: tuple[str, ...] = ()
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
    """How much an index holds."""

    trials: int
    methods: int
    subjects: int  # series, leaving metrics aside
    gone: int  # files that are not there any more, of a store that keeps what they said
