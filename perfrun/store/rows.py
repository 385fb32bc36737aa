"""Read the driver's own rows of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Select
from sqlalchemy.exc import DBAPIError

_ROWS_AT_ONCE = 1000


def read_rows(connection: Connection, query: Select[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the driver's own rows of a query: a million rows of SQLAlchemy take a second.

    Use them within the transaction, and keep few of them: to allocate memory for a million rows
    takes longer than to read them.
    """
    return chain.from_iterable(_parts_of(connection, query))


def _parts_of(connection: Connection, query: Select[Any]) -> Iterator[Sequence[Any]]:
    result = connection.execute(query)
    try:
        while part := result.cursor.fetchmany(_ROWS_AT_ONCE):
            yield part
    except connection.dialect.loaded_dbapi.Error as error:
        raise DBAPIError(None, None, error) from error
    finally:
        result.close()
