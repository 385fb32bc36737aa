"""Write records to the tables, within a transaction of the only writer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, select, update
from sqlalchemy.exc import DBAPIError

from perfrun.store.places import FileKey, is_absolute
from perfrun.store.schema import (
    bad_files,
    contexts,
    files,
    measurements,
    metrics,
    places,
    renew_state,
    subjects,
    trials,
)
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import text

Row = tuple[str, ...]  # the columns of a table after its id and digest
_MOST_VALUES = 500  # in an IN list; SQLite takes 32766 parameters


@dataclass(frozen=True, kw_only=True)
class TrialRows:
    """A record as rows of the tables: smaller than a summary, since a batch has up to 500."""

    path: str
    uid: str
    subject: Row
    context: Row
    trial: Mapping[str, Any]  # the columns of its own
    figures: Sequence[tuple[Row, float]]  # row of the metric, and value


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The files that were read, those that could not be read, and those that have gone."""

    good: Mapping[FileKey, tuple[str, TrialRows]] = field(default_factory=dict)  # with its stamp
    bad: Mapping[FileKey, tuple[str, str]] = field(default_factory=dict)  # stamp and reason
    gone: Sequence[FileKey] = ()


def rows_of(record: SummaryRecord) -> TrialRows:
    """Return a record as rows."""
    context = (record.context, record.commits, record.urls)
    return TrialRows(
        path=str(record.path),
        uid=record.uid,
        subject=tuple(vars(record.subject).values()),
        context=tuple([json.dumps(part, sort_keys=True) for part in context]),
        trial={
            "uid": record.uid,
            "execution_id": record.execution_id,
            "run_id": record.run_id,
            "trial_id": record.trial_id,
            "timestamp": record.timestamp,
            "status": record.status.value,
            "grade": record.grade,
            "disturbed": record.disturbed,
            "label": record.label,
            "hostname": record.hostname,
            "extras": json.dumps(record.extras, sort_keys=True) if record.extras else "",
            "batch_size": text(record.batch_size),
        },
        figures=[
            ((one.name, one.stated_unit, one.stated_direction, one.derived_from), one.value)
            for one in record.metrics.values()
        ],
    )


def write_batch(connection: Connection, batch: Batch, *, keep_gone: bool) -> None:
    """Bring the tables up to date. Call it with the writers' lock held.

    With `keep_gone` the trial of a file stays when the file has gone or gone bad.
    """
    before = _trials_of(connection, [*batch.good, *batch.bad, *batch.gone])
    _delete_files(connection, bad_files, [*batch.good, *batch.bad, *batch.gone])
    ids = _write_trials(connection, [one for _, one in batch.good.values()])
    _delete_files(connection, files, list(batch.good))
    rows = [
        {
            "place": key.place,
            "path": key.path,
            "stamp": stamp,
            "trial_id": ids[one.uid],
            "gone": False,
        }
        for key, (stamp, one) in batch.good.items()
    ]
    _insert(connection, files, rows)
    rows = [
        {"place": key.place, "path": key.path, "stamp": stamp, "reason": reason}
        for key, (stamp, reason) in batch.bad.items()
    ]
    _insert(connection, bad_files, rows)
    lost = [*batch.bad, *batch.gone]
    _delete_renamed(connection, batch, ids)
    if keep_gone:
        for place, paths in by_place(lost):
            connection.execute(update(files).where(of_files(files, place, paths)).values(gone=True))
    else:
        _delete_files(connection, files, lost)
    _delete_orphans(connection, set(before.values()) - set(ids.values()))


def _write_trials(connection: Connection, read: Sequence[TrialRows]) -> dict[str, int]:
    """Write trials with their figures; return their ids by uid. Of copies, the last one counts."""
    by_uid = {one.uid: one for one in read}
    subject_ids = ids_of(connection, subjects, [one.subject for one in by_uid.values()])
    context_ids = ids_of(connection, contexts, [one.context for one in by_uid.values()])
    named = [metric for one in by_uid.values() for metric, _ in one.figures]
    metric_ids = ids_of(connection, metrics, named)
    known = _known(connection, trials, trials.c.uid, list(by_uid))
    fresh = _next_id(connection, trials)
    ids = dict(known)
    for uid in by_uid:
        if uid not in ids:
            ids[uid] = fresh
            fresh += 1
    rows: dict[str, dict[str, Any]] = {
        uid: {
            "id": ids[uid],
            "subject_id": subject_ids[one.subject],
            "context_id": context_ids[one.context],
            **one.trial,
        }
        for uid, one in by_uid.items()
    }
    figures = {
        uid: {metric_ids[metric]: value for metric, value in one.figures}
        for uid, one in by_uid.items()
    }
    same = _unchanged(connection, [rows[uid] for uid in known], [figures[uid] for uid in known])
    changed = [uid for uid in known if ids[uid] not in same]
    for part in _parts([ids[uid] for uid in changed]):
        connection.execute(delete(measurements).where(measurements.c.trial_id.in_(part)))
    for uid in changed:
        connection.execute(update(trials).where(trials.c.id == ids[uid]).values(rows[uid]))
    if changed:
        renew_state(connection)
    new = [uid for uid in by_uid if uid not in known]
    _insert(connection, trials, [rows[uid] for uid in new])
    written = [
        {"trial_id": ids[uid], "metric_id": metric_id, "value": value}
        for uid in (*new, *changed)
        for metric_id, value in figures[uid].items()
    ]
    _insert(connection, measurements, written)
    return ids


def _unchanged(
    connection: Connection,
    rows: Sequence[Mapping[str, Any]],
    figures: Sequence[Mapping[int, float]],
) -> set[int]:
    """Return the ids of the trials that are in the tables with just these columns and figures.

    A result that comes a second time, on another way, is mostly the same.
    """
    ids = [row["id"] for row in rows]
    there: dict[int, dict[str, Any]] = {}
    values: dict[int, dict[int, float]] = {number: {} for number in ids}
    for part in _parts(ids):
        for row in connection.execute(select(trials).where(trials.c.id.in_(part))):
            there[row.id] = dict(row._mapping)
        query = select(measurements).where(measurements.c.trial_id.in_(part))
        for row in connection.execute(query):
            values[row.trial_id][row.metric_id] = row.value
    return {
        row["id"]
        for row, own in zip(rows, figures, strict=True)
        if values[row["id"]] == own and there[row["id"]] == row
    }


def ids_of(connection: Connection, table: Table, rows: Iterable[Row]) -> dict[Row, int]:
    """Return the ids of rows, and insert rows that are new. Rows are never changed.

    A row is identified by its digest, because databases limit the length of indexed texts.
    """
    wanted = {_digest(row): row for row in set(rows)}
    ids = _known(connection, table, table.c.digest, list(wanted))
    fresh = _next_id(connection, table)
    new = sorted(digest for digest in wanted if digest not in ids)
    for number, digest in enumerate(new, fresh):
        ids[digest] = number
    columns = [column.name for column in table.columns][2:]  # after id and digest
    _insert(
        connection,
        table,
        [{"id": ids[d], "digest": d, **dict(zip(columns, wanted[d], strict=True))} for d in new],
    )
    return {row: ids[digest] for digest, row in wanted.items()}


def _digest(row: Row) -> str:
    return hashlib.sha256(json.dumps(row).encode()).hexdigest()


def _known(connection: Connection, table: Table, key: Any, values: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in _parts(values):
        rows = connection.execute(select(key, table.c.id).where(key.in_(part)))
        found.update((row[0], row[1]) for row in rows)
    return found


def _next_id(connection: Connection, table: Table) -> int:
    """Return the next free id, which nobody else takes: there is one writer at a time."""
    return int(connection.execute(select(func.max(table.c.id))).scalar() or 0) + 1


def _trials_of(connection: Connection, keys: Sequence[FileKey]) -> dict[FileKey, int]:
    found: dict[FileKey, int] = {}
    for place, paths in by_place(keys):
        query = select(files.c.path, files.c.trial_id).where(of_files(files, place, paths))
        for row in connection.execute(query):
            found[FileKey(place=place, path=row.path)] = row.trial_id
    return found


def _delete_files(connection: Connection, table: Table, keys: Sequence[FileKey]) -> None:
    for place, paths in by_place(keys):
        connection.execute(delete(table).where(of_files(table, place, paths)))


def _delete_orphans(connection: Connection, ids: set[int]) -> None:
    """Delete trials that no longer have a file."""
    for part in _parts(sorted(ids)):
        rows = connection.execute(select(files.c.trial_id).where(files.c.trial_id.in_(part)))
        orphans = set(part) - {row.trial_id for row in rows}
        if orphans:
            which = measurements.c.trial_id.in_(orphans)
            connection.execute(delete(measurements).where(which))
            connection.execute(delete(trials).where(trials.c.id.in_(orphans)))
            renew_state(connection)


def _delete_renamed(connection: Connection, batch: Batch, ids: Mapping[str, int]) -> None:
    """Delete names that these files had in earlier versions, or before a workspace had an id."""
    now = {(one.path, ids[one.uid]): key for key, (_, one) in batch.good.items()}
    old = []
    for part in _parts(sorted({trial_id for _, trial_id in now})):
        query = select(files.c.place, files.c.path, files.c.trial_id)
        for row in connection.execute(query.where(files.c.trial_id.in_(part))):
            key = now.get((row.path, row.trial_id))
            if key is not None and is_absolute(row.place) and row.place != key.place:
                old.append(FileKey(place=row.place, path=row.path))
    _delete_files(connection, files, old)


def write_roots(connection: Connection, roots: Mapping[str, str]) -> None:
    """Write the paths at which workspaces were seen."""
    for name, root in roots.items():
        connection.execute(delete(places).where(places.c.name == name))
        connection.execute(insert(places).values(name=name, root=root))


def of_files(table: Table, place: str, paths: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition for the rows of some files of a place."""
    return (table.c.place == place) & table.c.path.in_(paths)


def by_place(keys: Sequence[FileKey]) -> list[tuple[str, list[str]]]:
    """Return the paths of files by place, in parts that one statement takes."""
    return [
        (place, part)
        for place in sorted({key.place for key in keys})
        for part in _parts([key.path for key in keys if key.place == place])
    ]


def _parts(values: list[Any]) -> list[list[Any]]:
    return [values[at : at + _MOST_VALUES] for at in range(0, len(values), _MOST_VALUES)]


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows and connection.dialect.name == "postgresql":
        _copy(connection, table, rows)
    elif rows:
        connection.execute(insert(table), rows)


def _copy(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Send rows as one stream; a statement for each row takes a server three times as long."""
    columns = list(rows[0])
    quoted = map(connection.dialect.identifier_preparer.quote, [table.name, *columns])
    name, *names = quoted
    statement = f"COPY {name} ({', '.join(names)}) FROM STDIN"
    driver: Any = connection.connection.driver_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as stream:
            for row in rows:
                stream.write_row([row[column] for column in columns])
    except connection.dialect.loaded_dbapi.Error as error:
        raise DBAPIError(None, None, error) from error
