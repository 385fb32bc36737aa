"""Read series, trials and counts from the tables, within a transaction."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter, is_, itemgetter
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, Select, func, select

from perfrun.store.places import OWN
from perfrun.store.query import (
    BadFile,
    Checkouts,
    Columns,
    Counts,
    Origin,
    Origins,
    RowsToRead,
    Selector,
    Series,
    SeriesKey,
    lost_trials,
)
from perfrun.store.rows import read_rows
from perfrun.store.schema import (
    bad_files,
    contexts,
    files,
    measurements,
    metrics,
    places,
    subjects,
    trials,
)
from perfrun.summary.document import Status
from perfrun.summary.metrics import MetricValue, direction_of, unit_of
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import Subject
from perfrun.summary.trial_environment import batch_size_of, document_of

_Growing = tuple[list[Origin], list[float]]  # the same while they are read

_BY_TIME = attrgetter("timestamp", "execution_id")
_OF_ORIGIN = (
    trials.c.id,
    trials.c.subject_id,
    trials.c.context_id,
    trials.c.execution_id,
    trials.c.run_id,
    trials.c.timestamp,
    trials.c.status,
    trials.c.grade,
    trials.c.disturbed,
    trials.c.label,
)
_TIME = itemgetter(5, 3)  # and the execution_id, where trials began at the same time
_MOST_IDS = 5000  # subjects or trials listed in a query; beyond that, all are read
_MOST_LABELS = 1000  # that a mistyped one is compared with
Which = Literal["all", "primary", "derived"]  # of the metrics


def by_time(
    figures: Iterable[tuple[Any, ...]], ordered: Sequence[int]
) -> Iterable[tuple[Any, ...]]:
    """Return the figures in the order of their trials; mostly they are read in it."""
    if ordered == sorted(ordered):
        return figures
    places = {trial_id: place for place, trial_id in enumerate(ordered)}
    return sorted(figures, key=lambda figure: places.get(figure[0], -1))


def columns_of(
    figures: Iterable[tuple[Any, ...]], origins: Mapping[int, tuple[int, Origin]]
) -> Mapping[int, Mapping[int, Columns]]:
    """Return the columns of each subject's metrics. The figures of a trial must be adjacent."""
    found: dict[int, dict[int, _Growing]] = {}
    last = origin = None
    own: dict[int, _Growing] = {}
    for trial_id, metric_id, value in figures:
        if trial_id != last:
            last, origin = trial_id, None
            if trial_id in origins:
                subject, origin = origins[trial_id]
                own = found.setdefault(subject, defaultdict(_no_figures))
        if origin is not None:
            rows, values = own[metric_id]
            rows.append(origin)
            values.append(value)
    return found


def _no_figures() -> _Growing:
    return [], []


def series_of(
    columns: Mapping[int, Mapping[int, Columns]],
    about: Mapping[int, Any],
    stated: Mapping[int, Any],
) -> Iterator[Series]:
    """Yield the series. A metric is stored once for each stated unit, and joined to one series.

    Figures are in the order of time. Unit and direction are those that the latest trial states.
    """
    together: dict[tuple[int, str], list[tuple[Any, Columns]]] = {}
    for subject, of_metrics in columns.items():
        for metric_id, found in of_metrics.items():
            named = stated[metric_id]
            together.setdefault((subject, named.name), []).append((named, found))
    shared: dict[int, list[Origins]] = {}  # those of a subject that differ
    for key in sorted(together, key=lambda key: (about[key[0]].method, key[1], key[0])):
        parts = together[key]
        if len(parts) > 1:
            parts = sorted(parts, key=lambda part: _times_of(part[1][0])[-1])
        stating = [named for named, _ in parts if named.unit or named.direction]
        unit, direction = (stating[-1].unit, stating[-1].direction) if stating else ("", "")
        rows, values = _joined([found for _, found in parts])
        yield Series(
            key=_key(about[key[0]], key[1]),
            unit=unit_of(key[1], unit),
            direction=direction_of(key[1], direction),
            origins=_shared(shared.setdefault(key[0], []), rows),
            values=values,
            derived_from=parts[-1][0].derived_from,
        )


def _joined(parts: Sequence[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    times = [time for rows, _ in parts for time in _times_of(rows)]
    order = sorted(range(len(times)), key=times.__getitem__)
    values = [value for _, own in parts for value in own]
    in_order = [values[place] for place in order]
    first, *others = [rows for rows, _ in parts]
    if isinstance(first, RowsToRead):  # all of them are, and none is read for this
        whole = first.joined([one for one in others if isinstance(one, RowsToRead)])
        return whole.taken(order), in_order
    rows = [origin for rows, _ in parts for origin in rows]
    return [rows[place] for place in order], in_order


def _times_of(rows: Sequence[Origin]) -> Sequence[Any]:
    """Return what orders the trials of a subject by time."""
    return rows.ranks if isinstance(rows, RowsToRead) else list(map(_BY_TIME, rows))


def _shared(known: list[Origins], rows: Sequence[Origin]) -> Origins:
    """Return one object for equal trials, since most metrics of a method have the same trials."""
    for one in known:
        if len(one.rows) == len(rows) and _are_same(one.rows, rows):
            return one
    known.append(Origins(rows))
    return known[-1]


def _are_same(some: Sequence[Origin], others: Sequence[Origin]) -> bool:
    if isinstance(some, RowsToRead):
        return some.is_same(others)
    return not isinstance(others, RowsToRead) and all(map(is_, some, others))


def _key(about: Any, metric: str) -> SeriesKey:
    return SeriesKey(
        method=about.method,
        metric=metric,
        environment=about.environment,
        hardware=about.hardware,
        driver=about.driver,
        source=about.source,
        settings=about.settings,
    )


def read_series(
    connection: Connection,
    root: Path | None,
    selector: Selector,
    *,
    metric: str | None,
    which: Which,
    left_out: Collection[int] = (),
) -> Iterator[Series]:
    """Yield the series of the selected methods and times whose metric fits, each by time.

    `left_out` are the ids of trials that do not count.
    """
    about, commits = _subjects(connection, selector), _commits(connection)
    known = list(connection.execute(select(metrics)))
    names = [row for row in known if _fits(row.name, metric) and _is_of(row, which)]
    if not names:
        return
    # By time; all figures of a trial share one origin.
    origins: dict[int, tuple[int, Origin]] = {}
    rows = sorted(read_rows(connection, _where(select(*_OF_ORIGIN), selector, about)), key=_TIME)
    paths = _paths(connection, root, [row[0] for row in rows], whole=selector == Selector())
    for row in rows:
        if row[1] in about and row[0] not in left_out:
            origins[row[0]] = (row[1], _origin(row, commits, paths))
    stated = {row.id: row for row in names}
    figures = _figures(
        connection, about, selector, list(stated) if len(names) < len(known) else None
    )
    columns = columns_of(by_time(figures, list(origins)), origins)
    yield from series_of(columns, about, stated)


def _origin(
    row: tuple[Any, ...], commits: Mapping[int, Mapping[str, str]], paths: Mapping[int, str]
) -> Origin:
    number, _, context, execution, run, timestamp, status, grade, disturbed, label = row
    return Origin(
        execution_id=execution,
        run_id=run,
        timestamp=timestamp,
        status=status,
        grade=grade,
        disturbed=bool(disturbed),  # SQLite returns numbers
        commits=commits[context],
        label=label,
        summary_path=paths.get(number, ""),
    )


def read_series_of_columns(
    connection: Connection,
    at: Path,
    later: Callable[[], AbstractContextManager[Connection]],
    root: Path | None,
    *,
    metric: str | None,
    which: Which,
) -> Iterator[Series]:
    """Yield what `read_series` does of all methods and times, with the columns that lie at a path.

    `later` opens a transaction, in which the texts of trials are read once they are looked at.
    """
    from perfrun.store.columns import read_columns, series_columns  # numpy

    commits = _commits(connection)
    named = [row for row in connection.execute(select(metrics)) if _fits(row.name, metric)]
    stated = {row.id: row for row in named if _is_of(row, which)}

    def read(ids: Sequence[int]) -> dict[int, Origin]:
        with later() as own:
            paths = _paths(own, root, ids)
            query = select(*_OF_ORIGIN)
            found = {}
            for part in _slices(ids):
                for row in read_rows(own, query.where(trials.c.id.in_(part))):
                    found[row[0]] = _origin(row, commits, paths)
        if len(found) < len(ids):
            raise lost_trials()
        return found

    def names(ids: Sequence[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for part in _slices(ids):
            query = select(trials.c.id, trials.c.execution_id).where(trials.c.id.in_(part))
            found.update(read_rows(connection, query))
        return found

    columns = series_columns(read_columns(connection, at), list(stated), commits, read, names)
    yield from series_of(columns, _subjects(connection, Selector()), stated)


def read_trials(
    connection: Connection, root: Path | None, selector: Selector
) -> Iterator[SummaryRecord]:
    """Yield the selected trials by time, without opening their summaries."""
    about = _subjects(connection, selector)
    rows = _selected_trials(connection, selector, about)
    paths = _paths(connection, root, list(rows), whole=selector == Selector())
    if selector.folders:
        below = tuple(f"{folder.resolve()}/" for folder in selector.folders)
        rows = {i: row for i, row in rows.items() if paths.get(i, "").startswith(below)}
    stated = {row.id: row for row in connection.execute(select(metrics))}
    values: dict[int, dict[str, MetricValue]] = {}
    for trial_id, metric_id, value in _figures(connection, about, selector, None):
        if trial_id in rows:
            named = stated[metric_id]
            values.setdefault(trial_id, {})[named.name] = MetricValue(
                name=named.name,
                value=value,
                stated_unit=named.unit,
                stated_direction=named.direction,
                derived_from=named.derived_from,
            )
    found = _contexts(connection, {row.context_id for row in rows.values()})
    named_subjects = {number: _subject(row) for number, row in about.items()}
    ordered = sorted(rows.values(), key=lambda row: (row.timestamp, row.execution_id))
    for row in ordered:
        of = found[row.context_id]
        path = paths.get(row.id, "")
        yield SummaryRecord(
            path=Path(path),
            uid=row.uid,
            subject=named_subjects[row.subject_id],
            execution_id=row.execution_id,
            run_id=row.run_id,
            trial_id=row.trial_id,
            timestamp=row.timestamp,
            status=Status(row.status),
            reason=None,
            grade=row.grade,
            disturbed=row.disturbed,
            label=row.label,
            hostname=row.hostname,
            batch_size=row.batch_size or of.batch_size,
            metrics=values.get(row.id, {}),
            extras=json.loads(row.extras) if row.extras else {},
            commits=of.commits,
            urls=of.urls,
            context=of.context,
            document=of.document,
        )


def read_subjects(connection: Connection) -> dict[int, Subject]:
    """Return all subjects by their ids."""
    return {number: _subject(row) for number, row in _subjects(connection, Selector()).items()}


def read_newest(connection: Connection, until: float) -> tuple[str, str] | None:
    """Return the run id and the execution id of the newest trial before a time; None without."""
    query = (
        select(trials.c.run_id, trials.c.execution_id)
        .where(trials.c.timestamp < until)
        .order_by(trials.c.timestamp.desc(), trials.c.execution_id.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else (row.run_id, row.execution_id)


def read_labels(connection: Connection) -> list[str]:
    """Return the labels of the newest trials, the newest first, as far as a mistake needs them."""
    query = (
        select(trials.c.label)
        .where(trials.c.label != "")
        .group_by(trials.c.label)
        .order_by(func.max(trials.c.timestamp).desc())
        .limit(_MOST_LABELS)
    )
    return [row.label for row in connection.execute(query)]


def read_bad_files(connection: Connection, root: Path | None) -> tuple[BadFile, ...]:
    """Return the summaries that could not be read at the last attempt."""
    starts = _starts(connection, root)
    rows = connection.execute(select(bad_files).order_by(bad_files.c.path))
    return tuple(BadFile(path=starts.get(r.place, "") + r.path, reason=r.reason) for r in rows)


def read_roots(connection: Connection) -> dict[str, str]:
    """Return the path at which each workspace was seen last."""
    return {row.name: row.root for row in connection.execute(select(places))}


def read_urls(connection: Connection) -> dict[str, str]:
    """Return the repositories of checkouts by folder; one of them where there are several."""
    found: dict[str, str] = {}
    for row in connection.execute(select(contexts.c.urls).distinct()):
        found.update(json.loads(row.urls))
    return found


def read_nodes(connection: Connection) -> list[str]:
    """Return the host names of all trials, each once."""
    rows = connection.execute(select(trials.c.hostname).distinct().order_by(trials.c.hostname))
    return [row.hostname for row in rows if row.hostname]


def read_trials_of_nodes(
    connection: Connection, nodes: Collection[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield id, host name and time of the trials of these nodes."""
    columns = (trials.c.id, trials.c.hostname, trials.c.timestamp)
    query = select(*columns).where(trials.c.hostname.in_(nodes))
    yield from read_rows(connection, query)


def read_counts(connection: Connection) -> Counts:
    """Return the numbers of trials, methods, subjects and files that have gone."""
    used = {row[0] for row in connection.execute(select(trials.c.subject_id).distinct())}
    named = list(connection.execute(select(subjects.c.id, subjects.c.method)))
    return Counts(
        trials=_count(connection, select(trials.c.id)),
        methods=len({row.method for row in named if row.id in used}),
        subjects=len(used),
        gone=_count(connection, select(files.c.path).where(files.c.gone)),
    )


def _count(connection: Connection, query: Select[Any]) -> int:
    return int(connection.execute(select(func.count()).select_from(query.subquery())).scalar_one())


def _selected_trials(
    connection: Connection, selector: Selector, about: Mapping[int, Any]
) -> dict[int, Any]:
    """Return rows of trials by id; `selector.folders` is left to the caller."""
    chosen = None
    if selector.commits:
        commits = _commits(connection).items()
        chosen = {i for i, found in commits if _has_commit(found, selector.commits)}
    return {
        row.id: row
        for row in connection.execute(_where(select(trials), selector, about))
        if row.subject_id in about and (chosen is None or row.context_id in chosen)
    }


def _subjects(connection: Connection, selector: Selector) -> dict[int, Any]:
    named = frozenset(selector.subjects)
    return {
        row.id: row
        for row in connection.execute(select(subjects))
        if (not selector.methods or any(_fits(row.method, one) for one in selector.methods))
        and (not named or row.id in named)
    }


def _commits(connection: Connection) -> dict[int, Mapping[str, str]]:
    """Return commits by context; trials of a context share one object."""
    columns = (contexts.c.id, contexts.c.commits, contexts.c.document)
    rows = read_rows(connection, select(*columns))
    return {number: Checkouts.of(commits, document) for number, commits, document in rows}


def _where(query: Select[Any], selector: Selector, about: Mapping[int, Any]) -> Select[Any]:
    if (selector.methods or selector.subjects) and len(about) <= _MOST_IDS:
        query = query.where(trials.c.subject_id.in_(list(about)))
    for column, wanted in (
        (trials.c.label, selector.labels),
        (trials.c.run_id, selector.run_ids),
        (trials.c.execution_id, selector.execution_ids),
    ):
        if wanted:
            query = query.where(column.in_(wanted))
    if selector.numbers:
        query = query.where(trials.c.id.in_(selector.numbers))
    if selector.since is not None:
        query = query.where(trials.c.timestamp >= selector.since)
    if selector.until is not None:
        query = query.where(trials.c.timestamp < selector.until)
    return query


def _figures(
    connection: Connection,
    about: Mapping[int, Any],
    selector: Selector,
    metric_ids: Sequence[int] | None,
) -> Iterator[tuple[Any, ...]]:
    """Yield trial, metric and value in the order of trial ids, of all metrics or of these."""
    columns = (measurements.c.trial_id, measurements.c.metric_id, measurements.c.value)
    query = select(*columns).order_by(measurements.c.trial_id)  # the order of the table's key
    if selector != Selector():
        query = _where(query.join(trials), selector, about)
    if metric_ids is not None:
        query = query.where(measurements.c.metric_id.in_(metric_ids))
    return read_rows(connection, query)


def _slices(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[at : at + _MOST_IDS] for at in range(0, len(ids), _MOST_IDS))


def _paths(
    connection: Connection, root: Path | None, ids: Sequence[int], *, whole: bool = False
) -> dict[int, str]:
    """Return one path of each trial, at least of `ids`; of copies, one that still exists.

    All paths are read where they are nearly all of the index, which takes less time.
    """
    query = select(files.c.trial_id, files.c.place, files.c.path)
    query = query.order_by(files.c.gone.desc(), files.c.path.desc())
    parts = [query] if whole else [query.where(files.c.trial_id.in_(own)) for own in _slices(ids)]
    starts = _starts(connection, root)
    found: dict[int, str] = {}
    for part in parts:
        rows = read_rows(connection, part)
        found.update({trial: starts.get(place, "") + path for trial, place, path in rows})
    return found


def _starts(connection: Connection, root: Path | None) -> dict[str, str]:
    """Return the prefix for the paths of each place that has relative ones."""
    found = {name: f"{start}/" for name, start in read_roots(connection).items()}
    return {**found, OWN: "" if root is None else f"{root}/"}


@dataclass(frozen=True, kw_only=True)
class _Context:
    """The values that the trials of a run share, made once for all of them."""

    context: Mapping[str, Any]
    commits: Mapping[str, str]
    urls: Mapping[str, str]
    document: Mapping[str, Any]
    batch_size: str | None


def _contexts(connection: Connection, ids: set[int]) -> dict[int, _Context]:
    found = {}
    for row in connection.execute(select(contexts)):
        if row.id in ids:
            context, commits = json.loads(row.document), json.loads(row.commits)
            document = document_of(context, commits)
            found[row.id] = _Context(
                context=context,
                commits=commits,
                urls=json.loads(row.urls),
                document=document,
                batch_size=batch_size_of(document),
            )
    return found


def _subject(row: Any) -> Subject:
    return Subject(
        method=row.method,
        environment=row.environment,
        hardware=row.hardware,
        driver=row.driver,
        source=row.source,
        settings=row.settings,
    )


def _has_commit(found: Mapping[str, str], wanted: Sequence[str]) -> bool:
    return any(commit.startswith(one.lower()) for commit in found.values() for one in wanted)


def _is_of(row: Any, which: Which) -> bool:
    return which == "all" or (row.derived_from == "") == (which == "primary")


def _fits(name: str, pattern: str | None) -> bool:
    if not pattern:
        return True
    return name == pattern or ("*" in pattern and fnmatchcase(name, pattern))
