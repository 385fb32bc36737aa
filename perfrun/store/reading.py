"""Ask the tables, within a transaction that sees one state of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, func, select

from perfrun.analysis.directions import Direction, direction_of, unit_of
from perfrun.store.query import (
    BadFile,
    Counts,
    Point,
    Selector,
    Series,
    SeriesKey,
    Trial,
    Value,
)
from perfrun.store.schema import bad_files, contexts, files, measurements, metrics, subjects, trials

_STATED: Mapping[str, Direction] = {"lower": "lower", "higher": "higher", "none": "none"}
_BY_TIME = attrgetter("timestamp", "execution_id")
_direction_of, _unit_of = lru_cache(4096)(direction_of), lru_cache(4096)(unit_of)
_MOST_IDS = 5000  # subjects named in a query; with more, all are read and sorted out here


@dataclass(kw_only=True)
class Loaded:
    """Trials as read, before they are made into values."""

    rows: dict[int, Any]  # by id
    subjects: dict[int, Any]
    paths: dict[int, str]
    commits: dict[int, Mapping[str, str]] = field(default_factory=dict)  # by context


def read_series(
    connection: Connection,
    root: Path | None,
    *,
    method: str | None,
    metric: str | None,
    since: float | None,
    until: float | None,
) -> Iterator[Series]:
    """All series whose method and metric fit the patterns, each by time."""
    selector = Selector(methods=(method,) if method else (), since=since, until=until)
    loaded = _load(connection, selector, root)
    names = [row for row in connection.execute(select(metrics)) if _fits(row.name, metric)]
    stated = {row.id: row for row in names}
    figures: dict[tuple[int, int], list[Point]] = {}
    # What the points of a trial share is looked up once.
    shared: dict[int, tuple[int, Any, Any]] = {
        row.id: (
            row.subject_id,
            (row.execution_id, row.run_id, row.timestamp),
            (
                row.status,
                row.grade,
                row.disturbed,
                loaded.commits[row.context_id],
                row.label,
                loaded.paths.get(row.id, ""),
            ),
        )
        for row in loaded.rows.values()
    }
    rows = _figures(connection, loaded, selector, list(stated))
    for trial_id, metric_id, value in _by_time(rows, loaded):
        of_trial = shared.get(trial_id)
        if of_trial is not None:
            about, head, tail = of_trial
            figures.setdefault((about, metric_id), []).append(Point._make((*head, value, *tail)))
    yield from _made(figures, loaded, stated)


def _by_time(figures: Sequence[Any], loaded: Loaded) -> Sequence[Any]:
    """The figures in the order of their trials, which mostly is that in which they are read."""
    ordered = [row.id for row in sorted(loaded.rows.values(), key=_BY_TIME)]
    if ordered == sorted(ordered):
        return figures
    places = {trial_id: place for place, trial_id in enumerate(ordered)}
    return sorted(figures, key=lambda figure: places.get(figure[0], -1))


def _made(
    figures: Mapping[tuple[int, int], list[Point]], loaded: Loaded, stated: Mapping[int, Any]
) -> Iterator[Series]:
    """Bring together what is one series: a metric is stored once for each unit that was stated.

    The points are by time. What the latest trial states counts.
    """
    together: dict[tuple[int, str], list[tuple[Point, Any, list[Point]]]] = {}
    for (about, metric_id), points in figures.items():
        named = stated[metric_id]
        together.setdefault((about, named.name), []).append((points[-1], named, points))
    for key in sorted(together, key=lambda key: (loaded.subjects[key[0]].method, key[1], key[0])):
        parts = sorted(together[key], key=lambda part: _BY_TIME(part[0]))
        said = [named for _, named, _ in parts if named.unit or named.direction]
        unit, direction = (said[-1].unit, said[-1].direction) if said else ("", "")
        points = [point for _, _, own in parts for point in own]
        yield Series(
            key=_key(loaded.subjects[key[0]], key[1]),
            unit=unit or _unit_of(key[1]),
            direction=_direction(key[1], direction),
            points=tuple(points if len(parts) == 1 else sorted(points, key=_BY_TIME)),
        )


def read_trials(connection: Connection, root: Path | None, selector: Selector) -> Iterator[Trial]:
    """The trials that a selector chooses, by time."""
    loaded = _load(connection, selector, root)
    stated = {row.id: row for row in connection.execute(select(metrics))}
    values: dict[int, dict[str, Value]] = {}
    for trial_id, metric_id, value in _figures(connection, loaded, selector, list(stated)):
        if trial_id in loaded.rows:
            named = stated[metric_id]
            values.setdefault(trial_id, {})[named.name] = Value(
                value=value,
                unit=named.unit or _unit_of(named.name),
                direction=_direction(named.name, named.direction),
            )
    documents = _documents(connection, {row.context_id for row in loaded.rows.values()})
    ordered = sorted(loaded.rows.values(), key=lambda row: (row.timestamp, row.execution_id))
    for row in ordered:
        about = loaded.subjects[row.subject_id]
        yield Trial(
            execution_id=row.execution_id,
            run_id=row.run_id,
            trial_id=row.trial_id,
            timestamp=row.timestamp,
            method=about.method,
            environment=about.environment,
            hardware=about.hardware,
            driver=about.driver,
            source=about.source,
            settings=about.settings,
            status=row.status,
            grade=row.grade,
            disturbed=row.disturbed,
            label=row.label,
            hostname=row.hostname,
            commits=loaded.commits[row.context_id],
            context=documents[row.context_id],
            extras=json.loads(row.extras) if row.extras else {},
            values=values.get(row.id, {}),
            summary_path=loaded.paths.get(row.id, ""),
        )


def read_bad_files(connection: Connection, root: Path | None) -> tuple[BadFile, ...]:
    """The summaries that could not be read when they were last looked at."""
    rows = connection.execute(select(bad_files).order_by(bad_files.c.path))
    return tuple(BadFile(path=_path(root, row), reason=row.reason) for row in rows)


def read_urls(connection: Connection) -> dict[str, str]:
    """Where the checkouts came from, by their folder; of several places, one."""
    found: dict[str, str] = {}
    for row in connection.execute(select(contexts.c.urls).distinct()):
        found.update(json.loads(row.urls))
    return found


def read_counts(connection: Connection) -> Counts:
    """How much there is."""
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


def _load(connection: Connection, selector: Selector, root: Path | None) -> Loaded:
    about = {
        row.id: row
        for row in connection.execute(select(subjects))
        if not selector.methods or any(_fits(row.method, one) for one in selector.methods)
    }
    commits = {
        row.id: json.loads(row.commits)
        for row in connection.execute(select(contexts.c.id, contexts.c.commits))
    }
    chosen = None
    if selector.commits:
        chosen = {i for i, found in commits.items() if _has_commit(found, selector.commits)}
    paths = _paths(connection, root)
    below = [f"{folder.resolve()}/" for folder in selector.folders]
    rows = {
        row.id: row
        for row in connection.execute(_where(select(trials), selector, about))
        if row.subject_id in about
        and (chosen is None or row.context_id in chosen)
        and (not below or paths.get(row.id, "").startswith(tuple(below)))
    }
    return Loaded(rows=rows, subjects=about, paths=paths, commits=commits)


def _where(query: Select[Any], selector: Selector, about: Mapping[int, Any]) -> Select[Any]:
    if selector.methods and len(about) <= _MOST_IDS:
        query = query.where(trials.c.subject_id.in_(list(about)))
    for column, wanted in (
        (trials.c.label, selector.labels),
        (trials.c.run_id, selector.run_ids),
        (trials.c.execution_id, selector.execution_ids),
    ):
        if wanted:
            query = query.where(column.in_(wanted))
    if selector.since is not None:
        query = query.where(trials.c.timestamp >= selector.since)
    if selector.until is not None:
        query = query.where(trials.c.timestamp < selector.until)
    return query


def _figures(
    connection: Connection, loaded: Loaded, selector: Selector, metric_ids: Sequence[int]
) -> Sequence[Any]:
    """Trial, metric and value, by the number of the trial."""
    columns = (measurements.c.trial_id, measurements.c.metric_id, measurements.c.value)
    query = select(*columns).order_by(measurements.c.trial_id)  # the order of the table's key
    if selector != Selector():
        query = _where(query.join(trials), selector, loaded.subjects)
    if len(metric_ids) <= _MOST_IDS:
        query = query.where(measurements.c.metric_id.in_(metric_ids))
    return connection.execute(query).all()


def _paths(connection: Connection, root: Path | None) -> dict[int, str]:
    """One path of each trial; of copies, one that is still there."""
    rows = connection.execute(
        select(files.c.trial_id, files.c.host, files.c.path).order_by(
            files.c.gone.desc(), files.c.path.desc()
        )
    )
    start = "" if root is None else f"{root}/"
    return {row[0]: row[2] if row[1] else f"{start}{row[2]}" for row in rows}


def _path(root: Path | None, row: Any) -> str:
    return str(row.path) if row.host or root is None else f"{root}/{row.path}"


def _documents(connection: Connection, ids: set[int]) -> dict[int, Mapping[str, Any]]:
    query = select(contexts.c.id, contexts.c.document)
    return {row.id: json.loads(row.document) for row in connection.execute(query) if row.id in ids}


def _has_commit(found: Mapping[str, str], wanted: Sequence[str]) -> bool:
    return any(commit.startswith(one.lower()) for commit in found.values() for one in wanted)


def _fits(name: str, pattern: str | None) -> bool:
    if not pattern:
        return True
    return name == pattern or ("*" in pattern and fnmatchcase(name, pattern))


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


def _direction(metric: str, stated: str) -> Direction:
    return _STATED.get(stated) or _direction_of(metric)
