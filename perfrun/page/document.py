"""The data of the page as values, and as the document that the page's script reads.

The document holds texts that others wrote: each is one line without what is no text, without
secrets, and of bounded length; the page shows it as text only. Numbers are finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from perfrun.page.packed import Packed
from perfrun.shown import line

SCHEMA = 1
MOST_TEXT = 500  # characters of a text
_LARGEST = 1e307
Column = Packed | None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A host on which trials ran."""

    name: str
    cpu: str
    accelerators: str
    trials: int
    last: float  # seconds since the epoch, of its newest trial


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The commit that `perfrun bisect` found."""

    commit: str
    repository: str  # the name of its checkout where several moved, else ''
    subject: str
    author: str
    ratio: float | None  # against the commit before it
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class ChangeShown:
    """A change of level, with its confirmation and its culprit where they are known."""

    method: int | None  # place in `Page.methods`
    series: int | None
    metric: str
    direction: str  # worse or better
    ratio: float
    low: float
    high: float
    night: str  # the first one at the new level
    alarm_night: str
    at: int | None  # place of the first point at the new level
    status: str  # candidate, confirmed or not_reproduced
    pairs: int
    text: str  # of the confirmation
    commits: tuple[str, ...]
    culprit: Culprit | None
    environment: tuple[str, ...]
    machine_suspect: bool
    is_recent: bool


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A moment at which the environment of a history changed."""

    at: int  # the first point after it
    text: str


@dataclass(frozen=True, kw_only=True)
class SeriesShown:
    """The history of a metric, a point for each run or night, in the order of time."""

    method: int
    metric: str
    unit: str
    direction: str  # lower, higher or none
    derived: bool
    n: int
    time: Packed
    value: Packed
    low: Column
    high: Column
    flags: str | None  # bit 0: disturbed, bit 1: failed, without a value
    cuts: tuple[Cut, ...]
    commit: Column  # places in `Page.commits`
    baseline: float | None
    noise: float | None  # relative, of the observations at the present level


@dataclass(frozen=True, kw_only=True)
class MethodShown:
    """A row of the table of methods: a method in one environment, on one kind of machine."""

    name: str
    environment: str
    hardware: str  # a short key
    hardware_text: str
    settings: str
    main: int | None  # the series that stands for the method
    series: tuple[int, ...]
    state: str  # outcome of its newest trial
    trials: int
    failed: int
    last: float
    against_last_night: float | None
    against_baseline: float | None
    noise: float | None
    grade: str
    detail: int | None


@dataclass(frozen=True, kw_only=True)
class CommitShown:
    """A commit that trials ran at."""

    id: str
    subject: str
    repository: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A quantity during a trial."""

    name: str
    unit: str
    t: Packed  # seconds
    y: Packed


@dataclass(frozen=True, kw_only=True)
class Detail:
    """The newest trial of a method, and the last failures."""

    method: int
    execution_id: str
    timestamp: float
    ended: str
    grade: str
    doubts: tuple[str, ...]
    samples: Column
    samples_every: int
    steady_from: int | None
    samples_unit: str
    warmup: Column
    steady: str
    phases: tuple[Mapping[str, Any], ...]
    timeline: tuple[Timeline, ...]
    memory: tuple[Mapping[str, Any], ...]
    environment: tuple[tuple[str, str], ...]
    differences: tuple[tuple[str, str, str], ...]  # from the last good run
    failures: tuple[Mapping[str, Any], ...]
    profiles: tuple[str, ...]  # relative to the workspace
    command: str
    log_tail: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PairsShown:
    """Paired trials of two builds."""

    series: int | None
    method: str
    metric: str
    title: str
    base: Packed
    new: Packed
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that the page shows."""

    title: str
    selection: str
    made: float  # seconds since the epoch
    newest: float | None
    machines: tuple[Machine, ...] = ()
    outcomes: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    changes: tuple[ChangeShown, ...] = ()
    methods: tuple[MethodShown, ...] = ()
    series: tuple[SeriesShown, ...] = ()
    commits: tuple[CommitShown, ...] = ()
    details: tuple[Detail, ...] = ()
    pairs: tuple[PairsShown, ...] = ()
    versus: tuple[Mapping[str, Any], ...] = ()
    fleet: tuple[Mapping[str, Any], ...] = ()  # the newest submissions (perfrun.page.fleet)
    left_out: tuple[str, ...] = ()


class _Packs:
    """Columns that several series share are in the document once."""

    def __init__(self) -> None:
        self._places: dict[Packed, int] = {}
        self._seen: set[Packed] = set()

    def count(self, column: Packed) -> None:
        if column in self._seen:
            self._places.setdefault(column, len(self._places))
        self._seen.add(column)

    def of(self, column: Packed) -> int | dict[str, Any]:
        place = self._places.get(column)
        return _values(column) if place is None else place

    def shared(self) -> list[dict[str, Any]]:
        return [_values(column) for column in self._places]


def document_of(page: Page, version: str) -> dict[str, Any]:
    """Return the document of a page, with all texts cleaned."""
    packs = _Packs()
    for one in page.series:
        for column in (one.time, one.value, one.low, one.high, one.commit):
            if column is not None:
                packs.count(column)
    whole: dict[str, Any] = {"schema": SCHEMA, "perfrun": version}
    whole |= {name: _clean(getattr(page, name), packs) for name in _names(page)}
    return {**whole, "shared": packs.shared()}


def _names(one: Any) -> list[str]:
    return [field.name for field in fields(one)]


def _values(column: Packed) -> dict[str, Any]:
    return {"min": column.min, "step": column.step, "n": column.n, "b64": column.b64}


def _clean(value: Any, packs: _Packs) -> Any:
    if isinstance(value, str):
        return line(value, MOST_TEXT)
    if isinstance(value, Packed):
        return packs.of(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        return {line(str(name), MOST_TEXT): _clean(one, packs) for name, one in value.items()}
    if isinstance(value, SeriesShown):  # its flags are base64, longer than any text
        cleaned = {n: _clean(getattr(value, n), packs) for n in _names(value) if n != "flags"}
        return {**cleaned, "flags": value.flags}
    if is_dataclass(value):
        return {name: _clean(getattr(value, name), packs) for name in _names(value)}
    return [_clean(one, packs) for one in value]


def _number(value: float) -> float | int | None:
    """Return a number with the figures that a page shows; None for one that JSON cannot hold."""
    if isinstance(value, int):
        return value if abs(value) < 2**53 else None
    if not math.isfinite(value) or abs(value) > _LARGEST:
        return None
    return float(f"{value:.10g}")


def without_series(page: Page, gone: Sequence[int]) -> Page:
    """Return the page without these series; what refers to others is renumbered."""
    lost = set(gone)
    kept = [at for at in range(len(page.series)) if at not in lost]
    new = {at: place for place, at in enumerate(kept)}
    return replace(
        page,
        series=tuple(page.series[at] for at in kept),
        methods=tuple(
            replace(
                one,
                main=None if one.main is None else new.get(one.main),
                series=tuple(new[at] for at in one.series if at in new),
            )
            for one in page.methods
        ),
        changes=tuple(
            replace(one, series=None if one.series is None else new.get(one.series))
            for one in page.changes
        ),
        pairs=tuple(
            replace(one, series=None if one.series is None else new.get(one.series))
            for one in page.pairs
        ),
    )
