"""Results as a table, one row a metric of a trial: CSV, JSON and Parquet.

A trial without a metric, as one that failed, has one row with neither name nor value, so that no
trial is missing. Numbers have the unit that stands beside them: nothing is scaled.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import IO, Any

from perfrun.errors import UsageError
from perfrun.shown import csv_text
from perfrun.summary.metrics import MetricValue
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import is_number, section, text
from perfrun.summary.series_times import Interval, intervals
from perfrun.text import redact

_ROWS_AT_ONCE = 20_000
_LATEST_S = 253402300799.0  # the end of Python's calendar


@dataclass(frozen=True)
class Column:
    """A column: its type is text, number, whole, flag or time."""

    name: str
    kind: str


COLUMNS = tuple(
    Column(*words.split())
    for words in (
        "method text",
        "metric text",
        "value number",
        "unit text",
        "direction text",
        "derived_from text",
        "low number",
        "high number",
        "execution_id text",
        "run_id text",
        "trial_id whole",
        "time time",
        "label text",
        "outcome text",
        "reason text",
        "grade text",
        "disturbed flag",
        "hostname text",
        "environment text",
        "hardware text",
        "driver text",
        "settings text",
        "source_sha256 text",
        "batch_size text",
        "commit text",
        "commits text",
        "framework text",
        "framework_version text",
        "python_version text",
        "perfrun_version text",
        "image text",
        "summary text",
    )
)
Row = tuple[Any, ...]  # a value a column; None is unknown


def rows_of(records: Iterable[SummaryRecord], checkout: str | None) -> Iterator[Row]:
    """Yield the rows of the trials; `checkout` names the one whose commit counts."""
    for record in records:
        of_trial = _of_trial(record, checkout)
        within = intervals(record.document, record.metrics)
        for name, metric in record.metrics.items():
            yield (record.method, *_of_metric(metric, within.get(name)), *of_trial)
        if not record.metrics:
            yield (record.method, *[None] * 7, *of_trial)


def _of_metric(metric: MetricValue, interval: Interval | None) -> Row:
    low, high = interval or (None, None)
    return (
        metric.name,
        metric.value,
        metric.unit or None,
        metric.direction,
        metric.derived_from or None,
        low,
        high,
    )


def _of_trial(record: SummaryRecord, checkout: str | None) -> Row:
    own = section(record.document, "perfrun")
    framework = section(record.document, "ml_framework_info")
    name = text(framework.get("name"))
    container = section(own, "container")
    subject = record.subject
    return (
        record.execution_id,
        record.run_id or None,
        record.trial_id,
        min(record.timestamp, _LATEST_S),
        record.label or None,
        record.status.value,
        record.reason,
        record.grade or None,
        record.disturbed,
        record.hostname or None,
        subject.environment or None,
        subject.hardware or None,
        subject.driver or None,
        subject.settings or None,
        subject.source or None,
        record.batch_size,
        _commit(record, checkout),
        " ".join(f"{name}={commit}" for name, commit in record.commits.items()) or None,
        name if name != "none" else None,
        _text(framework.get("version")) if name != "none" else None,
        _text(section(section(own, "environment"), "python").get("version")),
        _text(own.get("version")),
        _text(container.get("image_id")) or _text(container.get("image")),
        text(str(record.path)) if record.path.name else None,
    )


def _text(value: Any) -> str | None:
    return text(value) or None if isinstance(value, str) or is_number(value) else None


def _commit(record: SummaryRecord, checkout: str | None) -> str | None:
    """Return the commit of the named checkout; without a name, of the only one."""
    if checkout is not None:
        return record.commits.get(checkout)
    return next(iter(record.commits.values())) if len(record.commits) == 1 else None


def write(form: str, rows: Iterable[Row], file: IO[bytes]) -> int:
    """Write the rows in a format; return their number. Raises UsageError or OSError."""
    return {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}[form](rows, file)


def check(form: str) -> None:
    """Raise UsageError for a format that this installation cannot write."""
    if form != "parquet":
        return
    try:
        import pyarrow.parquet  # noqa: F401 - 170 MB, an extra
    except ImportError as error:
        import sys

        raise UsageError(
            f"--parquet needs the Python package pyarrow ({error}); install it with "
            f"`{sys.executable} -m pip install pyarrow`, or from a checkout of perfrun with "
            "`pip install '.[parquet]'`; --csv and --json need nothing"
        ) from None


def _write_csv(rows: Iterable[Row], file: IO[bytes]) -> int:
    """Write CSV: all texts quoted, so that no other separator ends one; unknown is empty."""
    text_file = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    try:
        writer = csv.writer(text_file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow([column.name for column in COLUMNS])
        count = 0
        for row in rows:
            cells = zip(COLUMNS, row, strict=True)
            writer.writerow([_csv_cell(column, value) for column, value in cells])
            count += 1
        return count
    finally:
        text_file.detach()


def _csv_cell(column: Column, value: Any) -> Any:
    if value is None:
        return ""
    if column.kind == "text":
        return csv_text(value)
    if column.kind == "flag":
        return "true" if value else "false"
    return _plain(column, value)


def _plain(column: Column, value: Any) -> Any:
    """Return a value of JSON and CSV: a time by ISO 8601, a flag as true or false."""
    if value is None:
        return None
    if column.kind == "time":
        when = datetime.fromtimestamp(value, timezone.utc)
        return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value


def _write_json(rows: Iterable[Row], file: IO[bytes]) -> int:
    """Write a list of objects, one a line."""
    count = 0
    file.write(b"[")
    for row in rows:
        document = {
            column.name: _without_secrets(_plain(column, value))
            for column, value in zip(COLUMNS, row, strict=True)
        }
        file.write(b",\n" if count else b"\n")
        file.write(json.dumps(document).encode("ascii"))
        count += 1
    file.write(b"\n]\n")
    return count


def _without_secrets(value: Any) -> Any:
    return redact(value) if isinstance(value, str) else value


def _write_parquet(rows: Iterable[Row], file: IO[bytes]) -> int:
    import pyarrow
    from pyarrow import parquet

    kinds = {
        "text": pyarrow.string(),
        "number": pyarrow.float64(),
        "whole": pyarrow.int32(),
        "flag": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in COLUMNS])
    count, left = 0, iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while part := list(islice(left, _ROWS_AT_ONCE)):
            arrays = [
                pyarrow.array(_column(column, part, at), type=kinds[column.kind])
                for at, column in enumerate(COLUMNS)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            count += len(part)
    return count


def _column(column: Column, rows: Sequence[Row], at: int) -> list[Any]:
    values = [row[at] for row in rows]
    if column.kind == "time":
        return [None if value is None else round(value * 1e6) for value in values]
    return [_without_secrets(value) for value in values]
