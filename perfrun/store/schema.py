"""The tables of an index, and the migrations from earlier versions of them.

History:
    1   first version
    2   subjects.settings begins with the variables of `--env`
    3   metrics say from which primary metric they are derived; trials have the batch size; files
        are named by their workspace or disk instead of the host's name, which containers change
    4   `perfrun_store` has a state, another one when rows of trials are changed or deleted

A change of the tables, or of the subject or metrics that a summary's record has, needs a new
version: a test compares both with the number. An index holds nothing that is not in the summaries;
docs/reference/store.md says what each column means.

A migration is frozen as it was written: it uses the tables of its time by their names.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    inspect,
    select,
    text,
    update,
)

from perfrun.errors import StoreError
from perfrun.text import redact


def with_variables(connection: Connection) -> None:
    """Migrate from 1 to 2: the variables of `--env` are part of a series' settings.

    An early version 1 had no urls of checkouts. All files that still exist are read again.
    """
    if "urls" not in {column["name"] for column in inspect(connection).get_columns("contexts")}:
        connection.execute(text("ALTER TABLE contexts ADD COLUMN urls TEXT NOT NULL DEFAULT '{}'"))
    rows = connection.execute(
        text(
            "SELECT DISTINCT s.id, s.method, s.environment, s.hardware, s.driver, s.source, "
            "s.settings, t.context_id, c.document FROM trials t "
            "JOIN subjects s ON s.id = t.subject_id JOIN contexts c ON c.id = t.context_id"
        )
    )
    for row in rows.all():
        words = _variables(row.document)
        if not words:
            continue
        settings = f"{words} {row.settings}".strip()
        key = (row.method, row.environment, row.hardware, row.driver, row.source, settings)
        connection.execute(
            text("UPDATE trials SET subject_id = :new WHERE subject_id = :old AND context_id = :c"),
            {"new": _subject(connection, key), "old": row.id, "c": row.context_id},
        )
    connection.execute(text("UPDATE files SET stamp = ''"))
    connection.execute(text("UPDATE bad_files SET stamp = ''"))


def _variables(document: str) -> str:
    found: Mapping[str, Any] = json.loads(document).get("env_vars") or {}
    # Variables of PerfZero in perfrun's own environment were recorded in the same place.
    own = {name: value for name, value in found.items() if not name.startswith("PERFZERO_")}
    return redact(shlex.join(f"{name}={own[name]}" for name in sorted(own)))


def _subject(connection: Connection, key: tuple[str, ...]) -> int:
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    found = connection.execute(
        text("SELECT id FROM subjects WHERE digest = :digest"), {"digest": digest}
    ).scalar()
    if found is not None:
        return int(found)
    fresh = int(connection.execute(text("SELECT MAX(id) FROM subjects")).scalar() or 0) + 1
    names = ("method", "environment", "hardware", "driver", "source", "settings")
    connection.execute(
        text(
            "INSERT INTO subjects (id, digest, method, environment, hardware, driver, source, "
            "settings) VALUES (:id, :digest, :method, :environment, :hardware, :driver, :source, "
            ":settings)"
        ),
        {"id": fresh, "digest": digest, **dict(zip(names, key, strict=True))},
    )
    return fresh


def with_derived_metrics(connection: Connection) -> None:
    """Migrate from 2 to 3: metrics name the one they are derived from, and files have no host.

    In version 2 only the wall time and the metrics of `Benchmark.measure` had a unit and a
    direction. All files that still exist are read again; this is for those that have gone.
    """
    for line in (
        "ALTER TABLE metrics ADD COLUMN derived_from TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE trials ADD COLUMN batch_size TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE files RENAME COLUMN host TO place",
        "ALTER TABLE bad_files RENAME COLUMN host TO place",
        "CREATE TABLE places (name TEXT NOT NULL PRIMARY KEY, root TEXT NOT NULL)",
        "UPDATE files SET place = 'host:' || place WHERE place <> ''",
        "UPDATE bad_files SET place = 'host:' || place WHERE place <> ''",
        "UPDATE files SET stamp = ''",
        "UPDATE bad_files SET stamp = ''",
    ):
        connection.execute(text(line))
    known = connection.execute(text("SELECT id, name, unit, direction FROM metrics")).all()
    by_name: dict[str, list[int]] = {}
    for row in known:
        by_name.setdefault(row.name, []).append(row.id)
    for row in known:
        derived_from = _primary_of(connection, row, by_name) if row.unit else ""
        _state(connection, row.id, (row.name, row.unit, row.direction, derived_from))
    for row in known:
        if row.name.rpartition("/")[2] == "throughput" and not row.unit:
            _split_throughput(connection, row, known, by_name)


def _primary_of(connection: Connection, row: Any, by_name: Mapping[str, Sequence[int]]) -> str:
    """Return the metric that one of `Benchmark.measure` is derived from; '' for a primary one."""
    before, slash, own = row.name.rpartition("/")
    if own in ("wall_time", "first_call_s"):
        return ""
    for name in (f"{before}{slash}wall_time", f"{before}{slash}latency_median_s"):
        if name != row.name and _share_a_trial(connection, [row.id], by_name.get(name, ())):
            return name
    return ""


def _share_a_trial(connection: Connection, some: Sequence[int], others: Sequence[int]) -> bool:
    """Return True when a trial has a metric of both."""
    query = text(
        "SELECT 1 FROM measurements one JOIN measurements other ON one.trial_id = other.trial_id "
        "WHERE one.metric_id IN :some AND other.metric_id IN :others LIMIT 1"
    ).bindparams(bindparam("some", expanding=True), bindparam("others", expanding=True))
    given = {"some": list(some), "others": list(others)}
    return bool(others) and connection.execute(query, given).first() is not None


def _split_throughput(
    connection: Connection,
    row: Any,
    known: Sequence[Any],
    by_name: Mapping[str, Sequence[int]],
) -> None:
    """Split throughputs: only those of `Benchmark.measure` are derived from its median."""
    before, slash, _ = row.name.rpartition("/")
    median, primary = f"{before}{slash}latency_median_s", f"{before}{slash}wall_time"
    medians = [one.id for one in known if one.name == median and one.unit]
    if not _share_a_trial(connection, medians, by_name.get(primary, ())):
        return
    highest = connection.execute(text("SELECT MAX(id) FROM metrics")).scalar()
    fresh = int(highest or 0) + 1
    connection.execute(
        text(
            "INSERT INTO metrics (id, digest, name, unit, direction, derived_from) "
            "VALUES (:id, :digest, :name, '', '', '')"
        ),
        {"id": fresh, "digest": f"fresh {fresh}", "name": row.name},
    )
    _state(connection, fresh, (row.name, row.unit, row.direction, primary))
    moved = text(
        "UPDATE measurements SET metric_id = :fresh WHERE metric_id = :old AND trial_id IN "
        "(SELECT trial_id FROM measurements WHERE metric_id IN :medians)"
    ).bindparams(bindparam("medians", expanding=True))
    connection.execute(moved, {"fresh": fresh, "old": row.id, "medians": medians})


def _state(connection: Connection, number: int, row: tuple[str, ...]) -> None:
    connection.execute(
        text("UPDATE metrics SET derived_from = :derived, digest = :digest WHERE id = :id"),
        {
            "id": number,
            "derived": row[3],
            "digest": hashlib.sha256(json.dumps(row).encode()).hexdigest(),
        },
    )


def with_state(connection: Connection) -> None:
    """Migrate from 3 to 4: what was read before stays true as long as the state is the same."""
    row = {"value": uuid.uuid4().hex}
    connection.execute(text("DELETE FROM perfrun_store WHERE key = 'state'"))
    connection.execute(text("INSERT INTO perfrun_store VALUES ('state', :value)"), row)


TABLES = MetaData()

meta = Table(
    "perfrun_store",
    TABLES,
    Column("key", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)
subjects = Table(
    "subjects",
    TABLES,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False, unique=True),  # of the six that follow
    Column("method", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("hardware", Text, nullable=False),
    Column("driver", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("settings", Text, nullable=False),
)
contexts = Table(
    "contexts",
    TABLES,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False, unique=True),  # of the three that follow
    Column("document", Text, nullable=False),  # JSON
    Column("commits", Text, nullable=False),  # JSON: folder of the checkout to commit
    Column("urls", Text, nullable=False),  # JSON: folder of the checkout to its repository
)
metrics = Table(
    "metrics",
    TABLES,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False, unique=True),  # of the four that follow
    Column("name", Text, nullable=False),
    Column("unit", Text, nullable=False),  # '' where the summary does not say
    Column("direction", Text, nullable=False),  # lower, higher, none; '' as above
    Column("derived_from", Text, nullable=False),  # name of its primary metric; '' of a primary one
)
trials = Table(
    "trials",
    TABLES,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("uid", String(64), nullable=False, unique=True),  # the same for copies of a summary
    Column("subject_id", ForeignKey(subjects.c.id), nullable=False),
    Column("context_id", ForeignKey(contexts.c.id), nullable=False),
    Column("execution_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("trial_id", Integer, nullable=False),
    Column("timestamp", Double, nullable=False),  # seconds since the epoch
    Column("status", String(40), nullable=False),
    Column("grade", String(40), nullable=False),
    Column("disturbed", Boolean, nullable=False),
    Column("label", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("extras", Text, nullable=False),  # JSON, or ''
    Column("batch_size", Text, nullable=False),  # '' where it is unknown
    Index("trials_by_subject", "subject_id", "timestamp"),
    Index("trials_by_time", "timestamp"),
)
measurements = Table(
    "measurements",
    TABLES,
    Column("trial_id", ForeignKey(trials.c.id), primary_key=True),
    Column("metric_id", ForeignKey(metrics.c.id), primary_key=True),
    Column("value", Double, nullable=False),
    sqlite_with_rowid=False,
)
files = Table(
    "files",
    TABLES,
    Column("place", Text, primary_key=True),  # what the path is relative to: `places.Places`
    Column("path", Text, primary_key=True),
    Column("stamp", String(80), nullable=False),  # size, mtime and inode, when it was read
    Column("trial_id", ForeignKey(trials.c.id), nullable=False),
    Column("gone", Boolean, nullable=False),
    Index("files_by_trial", "trial_id"),
)
bad_files = Table(
    "bad_files",
    TABLES,
    Column("place", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("stamp", String(80), nullable=False),
    Column("reason", Text, nullable=False),
)
places = Table(
    "places",
    TABLES,
    Column("name", Text, primary_key=True),  # of a workspace, as in `files.place`
    Column("root", Text, nullable=False),  # its path when it was last seen
)

# Each migrates an index from version n to n + 1; the first one from version 1. All run in one
# transaction, so none may commit.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    with_variables,
    with_derived_metrics,
    with_state,
)


def schema_version() -> int:
    """Return the version of an index that this perfrun reads and writes."""
    return 1 + len(MIGRATIONS)


def stored_version(connection: Connection) -> int | None:
    """Return the version of the index in the database; None where there is none."""
    if not inspect(connection).has_table(meta.name):
        return None
    row = connection.execute(select(meta.c.value).where(meta.c.key == "schema_version")).first()
    if row is None or not row.value.isdecimal():
        raise StoreError("is damaged: its table perfrun_store names no version")
    version = int(row.value)
    if version > schema_version():
        raise StoreError(
            f"was written by a newer perfrun (schema {version}; this one knows "
            f"{schema_version()}): upgrade perfrun, or name another with --store"
        )
    return version


def make_current(connection: Connection) -> None:
    """Create the tables, or bring them up to date. Call it with the writers' lock held."""
    version = stored_version(connection)
    if version is None:
        _refuse_foreign(connection)
        TABLES.create_all(connection)
        row = {"key": "schema_version", "value": str(schema_version())}
        connection.execute(insert(meta), row)
        renew_state(connection)
        return
    for step in MIGRATIONS[version - 1 :]:
        step(connection)
    if version != schema_version():
        changed = update(meta).where(meta.c.key == "schema_version")
        connection.execute(changed.values(value=str(schema_version())))


def renew_state(connection: Connection) -> None:
    """Say that rows of trials are no longer what they were; new trials are no reason to."""
    connection.execute(delete(meta).where(meta.c.key == "state"))
    connection.execute(insert(meta), {"key": "state", "value": uuid.uuid4().hex})


def _refuse_foreign(connection: Connection) -> None:
    """Raise StoreError for a database with tables of another program."""
    there = set(inspect(connection).get_table_names())
    taken = sorted(there & set(TABLES.tables)) or (
        sorted(there) if connection.dialect.name == "sqlite" else []
    )
    if taken:
        raise StoreError(
            f"is a database of something else (table {taken[0]}); name another file, or on a "
            "server a database or schema of its own"
        )
