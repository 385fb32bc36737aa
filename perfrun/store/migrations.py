"""From one version of the index's tables to the next. Each step is frozen as it was written: it
knows the tables of its time by their names, not those of today.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, inspect, text

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


def with_derived_metrics(connection: Connection) -> None:
    """2 to 3: metrics that are derived from another one say so, and files are not named by hosts.

    Only what `Benchmark.measure` reported had a unit and a direction of its own in version 2, and
    the wall time. All files that are still there are read again; this is for those that have gone.
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
    """The metric that one of `Benchmark.measure` follows from; '' of a primary one."""
    before, slash, own = row.name.rpartition("/")
    if own in ("wall_time", "first_call_s"):
        return ""
    for name in (f"{before}{slash}wall_time", f"{before}{slash}latency_median_s"):
        if name != row.name and _meet(connection, [row.id], by_name.get(name, ())):
            return name
    return ""


def _meet(connection: Connection, some: Sequence[int], others: Sequence[int]) -> bool:
    """Whether a trial has a metric of both."""
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
    """A report of `Benchmark.measure` has its throughput from the median; others their own."""
    before, slash, _ = row.name.rpartition("/")
    median, primary = f"{before}{slash}latency_median_s", f"{before}{slash}wall_time"
    medians = [one.id for one in known if one.name == median and one.unit]
    if not _meet(connection, medians, by_name.get(primary, ())):
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
