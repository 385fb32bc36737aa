"""From one version of the index's tables to the next. Each step is frozen as it was written: it
knows the tables of its time by their names, not those of today.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, inspect, text

from perfrun.redaction import redact


def with_variables(connection: Connection) -> None:
    """1 to 2: the variables of `--env` are part of a series' settings.

    An early version 1 had no urls of checkouts. All files that are still there are read again.
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
    # What perfrun's own environment had of PerfZero's was kept in the same place.
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
