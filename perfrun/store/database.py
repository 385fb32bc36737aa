"""Open a database for transactions with one writer at a time and errors of one line."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from perfrun.errors import StoreError
from perfrun.options.store_address import Address
from perfrun.store import schema
from perfrun.store.patience import (
    Backoff,
    BusyStoreError,
    LastingStoreError,
    is_full_or_restarts,
    is_lasting,
    is_passing,
)
from perfrun.text import redact

WAIT_S = 30  # for another writer, for a server to answer, and for one that is full
STATEMENT_S = 600  # for one statement; an index of 100,000 summaries needs seconds
# For one transaction: the limits above are the server's own, and one that stands still keeps none.
TRANSACTION_S = STATEMENT_S + WAIT_S
# Of a server that has gone without a word: noticed after a minute.
_SILENCE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_STEPS_BETWEEN_LOOKS = 100_000  # of SQLite's machine, at the clock: a millisecond
_WRITERS_LOCK = 0x7065726672756E  # "perfrun"; the key of PostgreSQL's advisory lock


class Database:
    """One connection. It is a context manager, for use by one thread.

    With `reads_within_s` it changes nothing, not even an older index into one of today, and gives
    up a question after so long. A server that has no room for one more client, or that starts,
    is asked again for `patience_s`.
    """

    def __init__(
        self,
        address: Address,
        *,
        reads_within_s: float | None = None,
        patience_s: float | None = None,
    ) -> None:
        self.address = address
        self._reads_within_s = reads_within_s
        self._engine = _engine(address, reads_within_s)
        with one_line_errors(address):
            limit_s = reads_within_s or WAIT_S if patience_s is None else patience_s
            self._connection = self._connected(limit_s)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
        self._engine.dispose()

    @property
    def is_closed(self) -> bool:
        """True when the connection has been ended."""
        return self._connection.closed

    @property
    def now(self) -> sqlalchemy.Connection | None:
        """The connection while a transaction is open on it; None else."""
        return self._connection if self._connection.in_transaction() else None

    def _connected(self, patience_s: float) -> sqlalchemy.Connection:
        backoff = Backoff(patience_s)
        while True:
            try:
                return self._engine.connect()
            except SQLAlchemyError as error:
                if self.address.is_sqlite or not is_full_or_restarts(error) or not backoff.wait():
                    raise

    @contextmanager
    def reading(self) -> Iterator[sqlalchemy.Connection]:
        """Open a transaction that sees one state of the index, whatever others write meanwhile."""
        self._connection.info["writes"] = False
        with one_line_errors(self.address), self._limited(), self._connection.begin():
            if not self.address.is_sqlite:
                self._connection.exec_driver_sql(
                    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
                )
                limit_s = self._reads_within_s or STATEMENT_S
                self._connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{limit_s:g}s'")
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlalchemy.Connection]:
        """Open a transaction in which nobody else writes.

        So ids can be assigned and rows looked up and added without races. A writer that is killed
        leaves nothing, because the database undoes what was not committed.
        """
        self._connection.info["writes"] = True
        with one_line_errors(self.address), self._limited(), self._connection.begin():
            if not self.address.is_sqlite:
                # Whatever the server's default is: what was written before the lock was ours must
                # be seen.
                self._connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                self._connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{STATEMENT_S}s'")
                self._connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
                self._connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS_LOCK})")
            yield self._connection

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Hang up on a server that does not come to the end of a transaction."""
        if self.address.is_sqlite:
            yield
            return
        limit_s, is_over = TRANSACTION_S, threading.Event()
        driver = self._connection.connection.driver_connection
        watch = threading.Timer(limit_s, _hang_up, (driver, is_over))
        watch.daemon = True
        watch.start()
        try:
            yield
        except SQLAlchemyError:
            if is_over.is_set():
                raise StoreError(f"the server has not answered within {limit_s:g} s") from None
            raise
        finally:
            watch.cancel()

    def _prepare(self) -> None:
        with self.reading() as connection:
            version = schema.stored_version(connection)
        if version != schema.schema_version():
            if self._reads_within_s is not None:
                raise StoreError(f"{self.address.shown}: {_unready(version)}")
            with self.writing() as connection:
                schema.make_current(connection)


def _unready(version: int | None) -> str:
    """Return why an index that must not be changed cannot be read, and what to do."""
    what = "holds no index yet" if version is None else "was written by an older perfrun"
    return f"{what}: run `perfrun index` once"


def _hang_up(driver: Any, is_over: threading.Event) -> None:
    """End a connection that another thread waits for."""
    is_over.set()
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(driver.fileno())) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _engine(address: Address, reads_within_s: float | None = None) -> sqlalchemy.Engine:
    if not address.is_sqlite:
        try:
            import psycopg  # noqa: F401
        except ImportError:
            python = shlex.quote(sys.executable)
            raise StoreError(
                f"{address.shown}: needs psycopg: {python} -m pip install 'psycopg[binary]'"
            ) from None
    arguments: dict[str, Any] = (
        {"timeout": WAIT_S}
        if address.is_sqlite
        else {"connect_timeout": 10, "application_name": "perfrun", **_SILENCE}
    )
    with one_line_errors(address):
        engine = sqlalchemy.create_engine(
            engine_url(address, reads_only=reads_within_s is not None),
            poolclass=NullPool,
            connect_args=arguments,
            hide_parameters=True,
        )
    if reads_within_s is not None and address.is_sqlite:
        event.listen(engine, "connect", partial(_set_up_reader, within_s=reads_within_s))
        event.listen(engine, "begin", _begin_sqlite)
    elif address.is_sqlite:
        set_up = _set_up_sqlite if address.workspace else _set_up_lasting_sqlite
        event.listen(engine, "connect", set_up)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def engine_url(address: Address, *, reads_only: bool = False) -> str | sqlalchemy.URL:
    """Return the url for SQLAlchemy; a file's is an SQLite URI, so its name may hold anything.

    It is no text: SQLAlchemy 2.1 decodes a text that SQLite decodes again, `%2541` to `A`.
    """
    if address.file is None:
        return address.url
    name = f"file:{quote(os.fsencode(address.file))}"
    mode = {"mode": "ro"} if reads_only else {}
    return sqlalchemy.URL.create("sqlite", database=name, query={"uri": "true", **mode})


def _set_up_reader(connection: Any, _record: Any, within_s: float) -> None:
    connection.isolation_level = None
    end_s = monotonic() + within_s
    connection.set_progress_handler(lambda: monotonic() > end_s, _STEPS_BETWEEN_LOOKS)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    # Else the module sqlite3 begins transactions late and ends them before some statements.
    connection.isolation_level = None
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        # Allows readers and a writer at once. It fails when another process does the same now.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode=WAL")
    # With WAL this can lose the last transactions when the machine loses power, never the rest.
    # Their summaries are then read again.
    connection.execute("PRAGMA synchronous=NORMAL")


def _set_up_lasting_sqlite(connection: Any, record: Any) -> None:
    """Set up a store that may be all that is left: `perfrun prune` removes summaries it holds."""
    _set_up_sqlite(connection, record)
    connection.execute("PRAGMA synchronous=FULL")


def _begin_sqlite(connection: sqlalchemy.Connection) -> None:
    writes = connection.info.get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def one_line_errors(address: Address) -> Iterator[None]:
    """Turn errors of a database into one line that names the index and the remedy."""
    try:
        yield
    except StoreError as error:
        text = str(error)
        raise type(error)(
            text if text.startswith(address.shown) else f"{address.shown}: {text}"
        ) from None
    except SQLAlchemyError as error:
        kind = StoreError
        if is_passing(error):
            kind = BusyStoreError
        elif is_lasting(error, is_sqlite=address.is_sqlite):
            kind = LastingStoreError
        raise kind(f"{address.shown}: {_line(error)}{_advice(address, error)}") from None


def _line(error: SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return redact(lines[0] if lines else type(cause).__name__)[:300]


def _advice(address: Address, error: SQLAlchemyError) -> str:
    message = str(getattr(error, "orig", "")).lower()
    if not address.is_sqlite:
        return ""
    if "malformed" in message or "not a database" in message:
        return "; delete it and run `perfrun index`: all it holds is in the summaries"
    if "unable to open" in message or "readonly" in message or "read-only" in message:
        return "; the folder must be there and writable, or name another file with --store"
    if "interrupted" in message:
        return "; the question took too long"
    if "locked" in message:
        return f"; another perfrun has been writing for {WAIT_S} s: try again when it is done"
    return ""
