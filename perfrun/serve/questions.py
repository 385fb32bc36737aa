"""The questions that the server asks an index: totals and the newest trials, never all rows.

Each opens the index for itself and changes nothing in it, so another process may write, move or
remove it meanwhile. Each gives up after `ANSWER_S`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from perfrun.errors import StoreError
from perfrun.options.store_address import Address
from perfrun.store.database import Database
from perfrun.store.places import OWN
from perfrun.store.query import Origin, Series
from perfrun.store.reading import columns_of, read_roots, read_rows, series_of
from perfrun.store.schema import contexts, files, measurements, metrics, subjects, trials
from perfrun.summary.document import Status
from perfrun.summary.metrics import WALL_TIME

ANSWER_S = 120.0  # of a busy machine, too: the page of a million trials takes seconds
SHOWN_POINTS = 365  # of a series on the page, the newest ones
MOST_SUBJECTS = 1000  # of which the page shows the history: those with the newest trials
_MOST_TRIALS = 1000  # of a subject, the newest ones
_FEWEST_TRIALS = 50
_MOST_METRICS = 8  # of a subject
_MOST_OF_ALL = 100_000  # trials of all subjects together, and figures likewise
_AT_ONCE = 500  # values of an IN list
_ID_DIGITS = 16
_RAN = tuple(status.value for status in Status if status.ran)
Metrics = Mapping[int, Any]  # rows of the table by id


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
    by_status: Mapping[str, int]
    last: float  # when the newest trial began

    @property
    def trials(self) -> int:
        """The number of its trials."""
        return sum(self.by_status.values())

    @property
    def failed(self) -> int:
        """The number of trials that did not run to the end."""
        return sum(n for status, n in self.by_status.items() if status not in _RAN)


def totals(connection: Connection) -> tuple[Total, ...]:
    """Return the totals of all subjects with trials, by name."""
    counted: dict[int, dict[str, int]] = {}
    last: dict[int, float] = {}
    columns = (trials.c.subject_id, trials.c.status)
    query = select(*columns, func.count(), func.max(trials.c.timestamp)).group_by(*columns)
    for subject_id, status, count, newest in connection.execute(query):
        counted.setdefault(subject_id, {})[status] = count
        last[subject_id] = max(newest, last.get(subject_id, 0.0))
    named = connection.execute(select(subjects))
    found = [
        Total(subject=row, by_status=counted[row.id], last=last[row.id])
        for row in named
        if row.id in counted
    ]
    return tuple(sorted(found, key=lambda one: (one.subject.method, one.subject.id)))


@dataclass(frozen=True, kw_only=True)
class Newest:
    """The newest trials of a subject, and the series of their primary metrics."""

    hostname: str
    status: str
    grade: str
    series: tuple[Series, ...]  # the main one first


def newest_of(connection: Connection, chosen: Sequence[Total]) -> Mapping[int, Newest]:
    """Return the newest trials of each of the subjects, by the subject's id.

    The more subjects there are, the fewer trials and metrics are read of each.
    """
    stated = {row.id: row for row in connection.execute(select(metrics))}
    share = _MOST_OF_ALL // max(1, len(chosen))
    most_trials = min(_MOST_TRIALS, max(_FEWEST_TRIALS, share))
    most_metrics = min(_MOST_METRICS, max(1, share // SHOWN_POINTS))
    commits: dict[int, Mapping[str, str]] = {}
    found = {}
    for one in chosen:
        known = known_metrics(connection, one.subject.id)
        primary = [metric.name for metric in known if not metric.derived_from]
        named = sorted(primary, key=lambda name: name != WALL_TIME)[:most_metrics]
        wanted = [number for number, row in stated.items() if row.name in named]
        rows = _newest_rows(connection, one.subject.id, most_trials)
        _add_commits(connection, commits, rows)
        origins = {row.id: (row.subject_id, _origin(row, commits, "")) for row in rows}
        figures = _figures(connection, origins, wanted)
        about = {one.subject.id: one.subject}
        series = series_of(columns_of(figures, origins), about, stated)
        found[one.subject.id] = Newest(
            hostname=rows[-1].hostname,
            status=rows[-1].status,
            grade=rows[-1].grade,
            series=tuple(sorted(series, key=lambda one: named.index(one.key.metric))),
        )
    return found


def _newest_rows(
    connection: Connection, subject_id: int, most: int, before: float | None = None
) -> Sequence[Any]:
    """Return the newest trials of a subject, the oldest of them first."""
    query = select(trials).where(trials.c.subject_id == subject_id)
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


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE))


def _add_commits(
    connection: Connection, known: dict[int, Mapping[str, str]], rows: Sequence[Any]
) -> None:
    """Add the commits of trials; those of a run share one object, and are read once."""
    for part in _parts(sorted({row.context_id for row in rows} - known.keys())):
        query = select(contexts.c.id, contexts.c.commits).where(contexts.c.id.in_(part))
        known.update((number, json.loads(commits)) for number, commits in connection.execute(query))


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
    commits: dict[int, Mapping[str, str]] = {}
    for about in same:
        rows = _newest_rows(connection, about.id, most, before)
        _add_commits(connection, commits, rows)
        paths = paths_of(connection, starts, [row.id for row in rows])
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
