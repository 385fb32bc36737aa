"""The questions that the server asks an index: totals and the newest trials, never all rows.

Each opens the index for itself and changes nothing in it, so another process may write, move or
remove it meanwhile. Each gives up after `ANSWER_S`.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, and_, func, or_, select

from perfrun.errors import StoreError
from perfrun.options.store_address import Address
from perfrun.page.history import MethodKey, relevance
from perfrun.page.material import Tally
from perfrun.store.database import Database
from perfrun.store.places import OWN
from perfrun.store.query import Checkouts, Origin, Selector, Series
from perfrun.store.reading import columns_of, read_roots, series_of
from perfrun.store.rows import read_rows
from perfrun.store.schema import contexts, files, measurements, metrics, subjects, trials
from perfrun.summary.document import Status
from perfrun.summary.metrics import direction_of
from perfrun.summary.series_identity import Subject, section

ANSWER_S = 120.0  # of a busy machine, too: the page of a million trials takes seconds
MOST_SUBJECTS = 1000  # of which the page shows the history: those with the newest trials
_MOST_TRIALS = 1000  # of a subject, the newest ones
_FEWEST_TRIALS = 50
_MOST_OF_ALL = 100_000  # trials of all subjects together, and figures likewise
_AT_ONCE = 500  # values of an IN list
_ID_DIGITS = 16
_RAN = tuple(status.value for status in Status if status.ran)
_OF_TRIAL = (
    trials.c.id,
    trials.c.context_id,
    trials.c.execution_id,
    trials.c.run_id,
    trials.c.timestamp,
    trials.c.status,
    trials.c.grade,
    trials.c.disturbed,
    trials.c.label,
    trials.c.hostname,
)
_OF_CONTEXT = {  # what the page shows of it
    "framework": ("name", "version"),
    "python": ("version",),
    "image": ("image_id",),
    "system": ("cpu_model", "accelerator_model", "accelerator_count"),
}
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Index:
    """The index that is served."""

    address: Address
    root: Path | None  # the workspace to which its own files are relative

    @contextmanager
    def asked(self) -> Iterator[Connection]:
        """Open it for one question. Raises StoreError."""
        if self.address.file is not None and not self.address.file.exists():
            raise self._gone()
        with (
            Database(self.address, reads_within_s=ANSWER_S) as database,
            database.reading() as connection,
        ):
            yield connection

    def _gone(self) -> StoreError:
        return StoreError(f"{self.address.shown}: is not there; `perfrun index` makes it")

    def stamp(self) -> str:
        """Return a text that is another one when the index has changed. Raises StoreError.

        Of a file it is what the system says of it, so nothing is opened.
        """
        if self.address.file is None:
            with self.asked() as connection:
                newest = select(func.max(trials.c.id), func.max(trials.c.timestamp))
                return repr(tuple(connection.execute(newest).one()))
        file = os.fspath(self.address.file)
        try:
            found = os.stat(file)  # noqa: PTH116 - and not a Path, once a second
        except OSError:
            raise self._gone() from None
        return f"{_state(found)} {_log_state(f'{file}-wal')}"


def _state(found: os.stat_result) -> str:
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}"


def _log_state(file: str) -> str:
    """Return the state of SQLite's log; an empty one, which readers make, is as good as none."""
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return ""
    return _state(found) if found.st_size else ""


@dataclass(frozen=True, kw_only=True)
class Total:
    """The trials of one subject."""

    subject: Any  # the row of its table
    tallies: tuple[Tally, ...]

    @property
    def last(self) -> float:
        """The time at which its newest trial began."""
        return max(one.last for one in self.tallies)

    @property
    def trials(self) -> int:
        """The number of its trials."""
        return sum(one.trials for one in self.tallies)

    @property
    def failed(self) -> int:
        """The number of trials that did not run to the end."""
        return sum(one.trials for one in self.tallies if one.status not in _RAN)


def totals(connection: Connection, since: float = 0.0) -> tuple[Total, ...]:
    """Return the totals of all subjects with trials since a time, by name."""
    columns = (trials.c.subject_id, trials.c.hostname, trials.c.status)
    query = select(*columns, func.count(), func.max(trials.c.timestamp)).group_by(*columns)
    if since:
        query = query.where(trials.c.timestamp >= since)
    about = {row.id: row for row in connection.execute(select(subjects))}
    counted: dict[int, list[Tally]] = {}
    for subject_id, *counts in connection.execute(query):
        tally = Tally(key_of_subject(about[subject_id]), *counts)
        counted.setdefault(subject_id, []).append(tally)
    found = [Total(subject=about[i], tallies=tuple(own)) for i, own in counted.items()]
    return tuple(sorted(found, key=lambda one: (one.subject.method, one.subject.id)))


def key_of_subject(row: Any) -> MethodKey:
    """Return the row of the page that a subject belongs to."""
    return MethodKey(row.method, row.environment, row.hardware, row.settings)


def _subject(row: Any) -> Subject:
    return Subject(
        method=row.method,
        environment=row.environment,
        hardware=row.hardware,
        driver=row.driver,
        source=row.source,
        settings=row.settings,
    )


def span(connection: Connection) -> tuple[float, float] | None:
    """Return when the oldest and the newest trial with figures began; None without any."""
    begun = trials.c.timestamp
    query = select(func.min(begun), func.max(begun)).where(trials.c.status.in_(_RAN))
    oldest, newest = connection.execute(query).one()
    return None if newest is None else (oldest, newest)


class SeenTrial(NamedTuple):
    """A trial as far as the page needs it; there are many, so it is small."""

    origin: Origin
    subject: Subject
    hostname: str
    context: Mapping[str, Any]

    @property
    def execution_id(self) -> str:
        """The id of the trial."""
        return self.origin.execution_id

    @property
    def run_id(self) -> str:
        """The id of its run."""
        return self.origin.run_id

    @property
    def timestamp(self) -> float:
        """Its begin, in seconds since the epoch."""
        return self.origin.timestamp

    @property
    def status(self) -> Status:
        """Its outcome."""
        return Status(self.origin.status)

    @property
    def ran(self) -> bool:
        """True when the method ended by itself."""
        return self.origin.status in _RAN

    @property
    def grade(self) -> str:
        """Its grade."""
        return self.origin.grade

    @property
    def disturbed(self) -> bool:
        """True when the machine was disturbed."""
        return self.origin.disturbed


@dataclass(frozen=True, kw_only=True)
class Newest:
    """The newest trials of subjects, and the series of their primary metrics."""

    trials: Sequence[SeenTrial]  # since a time, the oldest first
    series: Sequence[Series]
    most_trials: int  # of a subject
    left_out: int  # metrics


def newest_of(connection: Connection, chosen: Sequence[Total], since: float) -> Newest:
    """Return the newest trials of the subjects.

    The more subjects there are, the fewer trials and metrics are read of each.
    """
    stated = {row.id: row for row in connection.execute(select(metrics))}
    share = _MOST_OF_ALL // max(1, len(chosen))
    most_trials = min(_MOST_TRIALS, max(_FEWEST_TRIALS, share))
    contexts_of = _Contexts(connection, has_environments=True)
    seen: list[SeenTrial] = []
    series: list[Series] = []
    left_out = 0
    for one in chosen:
        about = one.subject
        rows = _newest_rows(connection, about.id, most_trials)
        known = [m for m in known_metrics(connection, about.id) if not m.derived_from]
        known.sort(key=lambda m: (relevance(m.name, direction_of(m.name, m.direction)), m.name))
        most_metrics = max(1, share // max(len(rows), 1))
        left_out += max(0, len(known) - most_metrics)
        named = {metric.name for metric in known[:most_metrics]}
        wanted = [number for number, row in stated.items() if row.name in named]
        contexts_of.add(rows)
        origins = {row.id: (about.id, _origin(row, contexts_of.commits, "")) for row in rows}
        subject = _subject(about)
        for row in rows:
            if row.timestamp >= since:
                small = contexts_of.small[row.context_id]
                seen.append(SeenTrial(origins[row.id][1], subject, row.hostname, small))
        figures = _figures(connection, origins, wanted)
        series += series_of(columns_of(figures, origins), {about.id: about}, stated)
    seen.sort(key=lambda one: (one.timestamp, one.execution_id))
    return Newest(trials=seen, series=series, most_trials=most_trials, left_out=left_out)


class _Contexts:
    """The commits and the environments of trials; those of a run share one object."""

    def __init__(self, connection: Connection, *, has_environments: bool) -> None:
        self._connection = connection
        self._columns = [contexts.c.id, contexts.c.commits]
        if has_environments:
            self._columns.append(contexts.c.document)
        self._known: dict[str, Mapping[str, Any]] = {}
        self.commits: dict[int, Mapping[str, str]] = {}
        self.small: dict[int, Mapping[str, Any]] = {}  # the parts that the page shows

    def add(self, rows: Sequence[Any]) -> None:
        """Read the contexts of trials."""
        for part in _parts(sorted({row.context_id for row in rows} - self.commits.keys())):
            query = select(*self._columns).where(contexts.c.id.in_(part))
            for number, commits, *documents in self._connection.execute(query):
                self.commits[number] = json.loads(commits)
                for document in documents:  # changes are looked for in what it also says
                    self.commits[number] = Checkouts.of(commits, document)
                    small = _small(json.loads(document))
                    self.small[number] = self._known.setdefault(json.dumps(small), small)


def _small(context: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        name: {key: value for key in keys if (value := section(context, name).get(key))}
        for name, keys in _OF_CONTEXT.items()
    }


def newest_trials(connection: Connection, key: MethodKey) -> Selector:
    """Return the selection of a method's trials that are read when it is opened: the newest."""
    named = connection.execute(select(subjects).where(subjects.c.method == key.method))
    own = [row.id for row in named if key_of_subject(row) == key]
    begins = (
        (row.timestamp, number)
        for number in own
        for row in _newest_rows(connection, number, _MOST_TRIALS)
    )
    chosen = heapq.nlargest(_MOST_TRIALS, begins)
    if not chosen:
        return Selector(subjects=tuple(own), since=math.inf)
    return Selector(subjects=tuple(sorted({number for _, number in chosen})), since=chosen[-1][0])


def whereabouts(
    connection: Connection, index: Index, begun: Mapping[str, float]
) -> Mapping[str, tuple[str, str]]:
    """Return uid and path of trials, given the begin of each by its execution id."""
    found: dict[str, tuple[str, str]] = {}
    for part in _parts(sorted(set(begun.values()))):
        query = select(trials.c.id, trials.c.uid, trials.c.execution_id)
        rows = connection.execute(query.where(trials.c.timestamp.in_(part)))
        own = {row.id: row for row in rows if row.execution_id in begun}
        paths = paths_of(connection, starts_of(connection, index), list(own))
        found |= {own[i].execution_id: (own[i].uid, path) for i, path in paths.items()}
    return found


def _newest_rows(
    connection: Connection, subject_id: int, most: int, before: float | None = None
) -> Sequence[Any]:
    """Return the newest trials of a subject, the oldest of them first."""
    query = select(*_OF_TRIAL).where(trials.c.subject_id == subject_id)
    if before is not None:
        query = query.where(trials.c.timestamp < before)
    order = (trials.c.timestamp.desc(), trials.c.execution_id.desc())
    return connection.execute(query.order_by(*order).limit(most)).all()[::-1]


def _origin(row: Any, commits: Mapping[int, Mapping[str, str]], path: str) -> Origin:
    return Origin(
        execution_id=row.execution_id,
        run_id=row.run_id,
        timestamp=row.timestamp,
        status=row.status,
        grade=row.grade,
        disturbed=bool(row.disturbed),
        commits=commits[row.context_id],
        label=row.label,
        summary_path=path,
    )


def _figures(
    connection: Connection, ordered: Iterable[int], wanted: Sequence[int]
) -> Iterator[tuple[int, int, float]]:
    """Yield trial, metric and value of these trials, in their order."""
    numbers = list(ordered)
    found: dict[int, list[tuple[int, int, float]]] = {}
    for part in _parts(numbers):
        columns = (measurements.c.trial_id, measurements.c.metric_id, measurements.c.value)
        query = select(*columns).where(measurements.c.trial_id.in_(part))
        if len(wanted) <= _AT_ONCE:
            query = query.where(measurements.c.metric_id.in_(wanted))
        for trial_id, metric_id, value in read_rows(connection, query):
            found.setdefault(trial_id, []).append((trial_id, metric_id, value))
    known = frozenset(wanted)
    for number in numbers:
        yield from (figure for figure in found.get(number, ()) if figure[1] in known)


def _parts(numbers: Sequence[T]) -> Iterator[Sequence[T]]:
    return (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE))


def starts_of(connection: Connection, index: Index) -> Mapping[str, str]:
    """Return what stands before the paths of each place."""
    starts = {name: f"{root}/" for name, root in read_roots(connection).items()}
    return {**starts, OWN: "" if index.root is None else f"{index.root}/"}


def paths_of(
    connection: Connection, starts: Mapping[str, str], numbers: Sequence[int]
) -> Mapping[int, str]:
    """Return one path for each trial that has one; of copies, one that is still there."""
    found = {}
    for part in _parts(numbers):
        query = select(files.c.trial_id, files.c.place, files.c.path)
        query = query.where(files.c.trial_id.in_(part))
        for number, place, path in connection.execute(query.order_by(files.c.gone.desc())):
            found[number] = starts.get(place, "") + path
    return found


# Series


def series_id(digest: str, metric: str) -> str:
    """Return the id of a series, which is the same in every index that has it."""
    return f"{digest[:_ID_DIGITS]}-{_named(metric)}"


def _named(metric: str) -> str:
    return hashlib.sha256(metric.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_DIGITS]


def find_series(
    connection: Connection, index: Index, wanted: str, most: int, before: float | None
) -> tuple[Series | None, tuple[Series, ...]]:
    """Return the series with that id, and all of the same method and metric; None without it.

    They have the trials that began before a time, at most so many of the newest of each subject.
    """
    digest, _, name = wanted.partition("-")
    first = subjects.c.digest >= digest, subjects.c.digest < f"{digest}g"
    row = connection.execute(select(subjects).where(*first).limit(1)).first()
    stated = {one.id: one for one in connection.execute(select(metrics))}
    own = [number for number, one in stated.items() if _named(one.name) == name]
    if row is None or not own:
        return None, ()
    same = connection.execute(select(subjects).where(subjects.c.method == row.method)).all()
    starts = starts_of(connection, index)
    found: list[Series] = []
    chosen = None
    contexts_of = _Contexts(connection, has_environments=False)
    for about in same:
        rows = _newest_rows(connection, about.id, most, before)
        contexts_of.add(rows)
        commits, paths = contexts_of.commits, paths_of(connection, starts, [row.id for row in rows])
        origins = {r.id: (about.id, _origin(r, commits, paths.get(r.id, ""))) for r in rows}
        columns = columns_of(_figures(connection, origins, own), origins)
        for series in series_of(columns, {about.id: about}, stated):
            found.append(series)
            chosen = series if about.id == row.id else chosen
    return chosen, tuple(sorted(found, key=lambda one: one.origins.rows[0].timestamp))


# Methods


@dataclass(frozen=True, kw_only=True)
class KnownMetric:
    """A metric that the newest trial of a subject with figures has."""

    name: str
    unit: str
    direction: str
    derived_from: str


def known_metrics(connection: Connection, subject_id: int) -> tuple[KnownMetric, ...]:
    """Return the metrics of the newest trial of a subject that ran to the end."""
    newest = (
        select(trials.c.id)
        .where(trials.c.subject_id == subject_id, trials.c.status.in_(_RAN))
        .order_by(trials.c.timestamp.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = select(metrics).join(measurements, measurements.c.metric_id == metrics.c.id)
    rows = connection.execute(query.where(measurements.c.trial_id == newest))
    found = [
        KnownMetric(
            name=row.name, unit=row.unit, direction=row.direction, derived_from=row.derived_from
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda one: one.name))


# Trials


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The trials that are asked for: all that is given must hold."""

    method: str | None = None
    status: str | None = None
    run_id: str | None = None
    label: str | None = None
    since: float | None = None
    until: float | None = None  # exclusive


@dataclass(frozen=True, kw_only=True)
class Place:
    """The last trial of a page: the next page has those after it, older ones."""

    timestamp: float
    number: int


def page_of_trials(
    connection: Connection, index: Index, selection: Selection, most: int, after: Place | None
) -> tuple[Sequence[tuple[Any, str, str]], Place | None]:
    """Return row, method and path of trials, newest first, and where the next page begins."""
    query = select(trials)
    named = {row.id: row.method for row in connection.execute(select(subjects))}
    if selection.method is not None:
        own = [number for number, method in named.items() if method == selection.method]
        query = query.where(trials.c.subject_id.in_(own))
    for column, wanted in (
        (trials.c.status, selection.status),
        (trials.c.run_id, selection.run_id),
        (trials.c.label, selection.label),
    ):
        query = query if wanted is None else query.where(column == wanted)
    if selection.since is not None:
        query = query.where(trials.c.timestamp >= selection.since)
    if selection.until is not None:
        query = query.where(trials.c.timestamp < selection.until)
    if after is not None:
        same = and_(trials.c.timestamp == after.timestamp, trials.c.id < after.number)
        query = query.where(trials.c.timestamp <= after.timestamp)
        query = query.where(or_(trials.c.timestamp < after.timestamp, same))
    order = (trials.c.timestamp.desc(), trials.c.id.desc())
    rows = connection.execute(query.order_by(*order).limit(most + 1)).all()
    shown = rows[:most]
    paths = paths_of(connection, starts_of(connection, index), [row.id for row in shown])
    end = shown[-1] if len(rows) > most else None
    place = None if end is None else Place(timestamp=end.timestamp, number=end.id)
    return [(row, named[row.subject_id], paths.get(row.id, "")) for row in shown], place


def summaries_of(connection: Connection, index: Index, uid: str) -> Sequence[str]:
    """Return the paths at which the summary of a trial may lie; empty for an unknown trial."""
    starts = starts_of(connection, index)
    query = select(files.c.place, files.c.path).join(trials).where(trials.c.uid == uid)
    found = connection.execute(query.order_by(files.c.gone).limit(10))
    return [starts.get(place, "") + path for place, path in found]
