"""The tables of an index, and how one of an earlier version becomes one of today.

History:
    1   first version
    2   subjects.settings begins with the variables of `--env`
    3   metrics say from which primary metric they are derived; trials have the batch size; files
        are named by their workspace or disk instead of the host's name, which containers change

A change of tables, or of what `subject` and `summary_record` make of a summary, is a new version: a
test holds this file against the number.
An index holds nothing that is not in the summaries; docs/store.md says what each column means.
"""

from __future__ import annotations

from collections.abc import Callable

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
    insert,
    inspect,
    select,
    update,
)

from perfrun.errors import StoreError
from perfrun.store import migrations

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
    Column("batch_size", Text, nullable=False),  # '' where it is not to be seen
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
    Column("root", Text, nullable=False),  # where it was seen last
)

# Each takes an index from version n to n + 1; the first one from version 1. A step is part of one
# transaction with all others and must not commit.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    migrations.with_variables,
    migrations.with_derived_metrics,
)


def schema_version() -> int:
    """The version of an index that this perfrun reads and writes."""
    return 1 + len(MIGRATIONS)


def stored_version(connection: Connection) -> int | None:
    """The version of what is there; None where no index has been made."""
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
    """Make the tables, or bring them up to date. Call it with the writers' lock held."""
    version = stored_version(connection)
    if version is None:
        _refuse_foreign(connection)
        TABLES.create_all(connection)
        row = {"key": "schema_version", "value": str(schema_version())}
        connection.execute(insert(meta), row)
        return
    for step in MIGRATIONS[version - 1 :]:
        step(connection)
    if version != schema_version():
        changed = update(meta).where(meta.c.key == "schema_version")
        connection.execute(changed.values(value=str(schema_version())))


def _refuse_foreign(connection: Connection) -> None:
    """Keep off a database that is something else's."""
    there = set(inspect(connection).get_table_names())
    taken = sorted(there & set(TABLES.tables)) or (
        sorted(there) if connection.dialect.name == "sqlite" else []
    )
    if taken:
        raise StoreError(
            f"is a database of something else (table {taken[0]}); name another file, or on a "
            "server a database or schema of its own"
        )
