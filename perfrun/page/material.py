"""The results that a page is made of: all of an index, or those that words of the user choose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perfrun.errors import UsageError
from perfrun.page.history import MethodKey, Row, RunKey, Trial, key_of_record
from perfrun.store.query import (
    Checkouts,
    Origin,
    Origins,
    RowsToRead,
    Series,
    SeriesKey,
    lost_trials,
)
from perfrun.store.trial_facts import TrialFacts
from perfrun.summary.metrics import MetricValue, direction_of, unit_of
from perfrun.summary.record import SummaryRecord

if TYPE_CHECKING:
    from perfrun.store.index import Store

_DAY_S = 86400.0


class Tally(NamedTuple):
    """The number of trials of a method on a host that ended alike."""

    key: MethodKey
    hostname: str
    status: str
    trials: int
    last: float  # when the newest of them began, in seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class Material:
    """Trials and their series."""

    workspace: Path
    selection: str  # in words
    trials: Sequence[Trial]  # by time, failed ones included; those of records have details
    series: Sequence[Series]
    tallies: Sequence[Tally] = ()  # of all trials, where `trials` are the newest only
    urls: Mapping[str, str]  # folder of a checkout to its repository
    clones: Mapping[str, Path]  # the same to a full clone, as the user says
    begins: Mapping[RunKey, float] = field(default_factory=dict)  # of runs with further trials
    scans: Path | None = None  # the file for what searches have said of the series
    # The facts of the trials of series that have no more than their numbers, and what reads the
    # whole trials that details are made of; None where the trials are whole or have no details.
    facts: Mapping[int, TrialFacts] = field(default_factory=dict)
    whole: Callable[[Sequence[int]], Mapping[int, SummaryRecord]] | None = None

    def rows(self, series: Series) -> Sequence[Row]:
        """Return the trials of a series, in its order."""
        rows = series.origins.rows
        if not isinstance(rows, RowsToRead):
            return rows
        try:
            return [self.facts[number] for number in rows.numbers]
        except KeyError:
            raise lost_trials() from None

    def records(self, trials: Sequence[Trial]) -> Sequence[SummaryRecord | None]:
        """Return the whole of some trials; None for one that has no details."""
        if self.whole is None:
            return [one if isinstance(one, SummaryRecord) else None for one in trials]
        numbers = [one.number for one in trials if isinstance(one, TrialFacts)]
        found = self.whole(numbers)
        return [found.get(number) for number in numbers]


def tallies_of(trials: Iterable[Trial]) -> Iterator[Tally]:
    """Count trials."""
    counts: Counter[tuple[MethodKey, str, str]] = Counter()
    last: dict[tuple[MethodKey, str, str], float] = {}
    for one in trials:
        alike = (key_of_record(one), one.hostname, one.status.value)
        counts[alike] += 1
        last[alike] = max(one.timestamp, last.get(alike, 0.0))
    for alike, count in counts.items():
        yield Tally(*alike, count, last[alike])


def urls_of(records: Iterable[SummaryRecord | TrialFacts]) -> dict[str, str]:
    """Return the repositories of the checkouts by folder; the newest trial's where they differ."""
    found: dict[str, str] = {}
    for record in records:
        found.update(record.urls)
    return found


def series_of_records(records: Sequence[SummaryRecord]) -> tuple[Series, ...]:
    """Return the series of trials that were read one by one, as an index would return them."""
    origins: dict[str, Origin] = {}
    known: dict[tuple[int, int], Checkouts] = {}  # trials of an index share those of their run
    columns: dict[SeriesKey, tuple[list[Origin], list[MetricValue]]] = {}
    for record in sorted(records, key=lambda one: (one.timestamp, one.execution_id)):
        own = record.subject
        what = (id(record.context), id(record.commits))
        if what not in known:
            known[what] = _commits(record)
        origin = origins.setdefault(record.uid, _origin(record, known[what]))
        for name, metric in record.metrics.items():
            key = SeriesKey(
                method=own.method,
                metric=name,
                environment=own.environment,
                hardware=own.hardware,
                driver=own.driver,
                source=own.source,
                settings=own.settings,
            )
            rows, values = columns.setdefault(key, ([], []))
            rows.append(origin)
            values.append(metric)
    shared: dict[tuple[int, ...], Origins] = {}  # the metrics of a method have the same trials
    found = []
    for key, (rows, metrics) in columns.items():
        last = metrics[-1]
        of_rows = shared.setdefault(tuple(map(id, rows)), Origins(rows))
        found.append(
            Series(
                key=key,
                unit=unit_of(key.metric, last.stated_unit),
                direction=direction_of(key.metric, last.stated_direction),
                origins=of_rows,
                values=[metric.value for metric in metrics],
                derived_from=last.derived_from,
            )
        )
    return tuple(found)


def _commits(record: SummaryRecord) -> Checkouts:
    texts = [json.dumps(part, sort_keys=True) for part in (record.commits, record.context)]
    return Checkouts.of(*texts)


def _origin(record: SummaryRecord, commits: Checkouts) -> Origin:
    return Origin(
        execution_id=record.execution_id,
        run_id=record.run_id,
        timestamp=record.timestamp,
        status=record.status.value,
        grade=record.grade,
        disturbed=record.disturbed,
        commits=commits,
        label=record.label,
        summary_path=str(record.path) if record.path.name else "",
    )


def different(records: Iterable[SummaryRecord]) -> tuple[SummaryRecord, ...]:
    """Return the records by time, each trial once: words may choose the same ones."""
    by_uid = {record.uid: record for record in records}
    return tuple(sorted(by_uid.values(), key=lambda one: (one.timestamp, one.execution_id)))


def stored(
    store: Store, workspace: Path, clones: Mapping[str, Path], *, since: float, nights: int
) -> tuple[Material, float]:
    """Return the results of an index, and the time from which on they are to be drawn.

    The series are whole, since changes are searched in all of a history. Of the trials there are
    those from `since` on and of so many days before the newest, 0 for all. Raises UsageError where
    there is none.
    """
    series = tuple(store.series(clones=clones))
    times = [time for own in _different(series) if (known := own.times) for time in _span(known)]
    newest = max(times, default=0.0)
    begin = max(since, newest - nights * _DAY_S if nights and newest else 0.0)
    facts = store.facts()
    trials = [one for one in facts if one.timestamp >= begin]
    if not trials:
        when = f" since {datetime.fromtimestamp(begin):%Y-%m-%d}" if begin else ""
        raise UsageError(
            f"{store.address.shown} holds no results{when}; a run adds some: "
            "perfrun --benchmark_methods=..."
        )
    oldest = min(times, default=begin)
    material = Material(
        workspace=workspace,
        selection=selection_of(store.address.shown, begin, oldest),
        trials=trials,
        series=series,
        urls=urls_of(trials),
        clones=clones,
        scans=store.scans_beside,
        facts={one.number: one for one in facts},
        whole=store.whole,
    )
    return material, begin


def selection_of(index: str, begin: float, oldest: float) -> str:
    """Return in words which results of an index are drawn."""
    span = f", from {datetime.fromtimestamp(begin):%Y-%m-%d} on" if begin > oldest else ""
    return f"all results of {index}{span}"


def _different(series: Sequence[Series]) -> Iterable[Origins]:
    return {id(one.origins): one.origins for one in series}.values()


def _span(times: Sequence[float]) -> tuple[float, float]:
    return min(times), max(times)
