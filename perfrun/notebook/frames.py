"""Results as data frames of pandas and polars: the columns of `perfrun export`.

Values have the unit that stands beside them, nothing is scaled, and times are UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perfrun.exchange.rows import COLUMNS, Column, Row, rows_of
from perfrun.notebook.packages import needed
from perfrun.shown import visible
from perfrun.summary.record import SummaryRecord
from perfrun.text import redact

if TYPE_CHECKING:
    import pandas
    import polars

_OF_METRIC = ("metric", "value", "unit", "direction", "derived_from", "low", "high")
_NAMES = [column.name for column in COLUMNS]
_METRIC, _VALUE = _NAMES.index("metric"), _NAMES.index("value")
_Values = dict[Column, list[Any]]


def pandas_frame(
    records: Sequence[SummaryRecord], *, wide: bool, checkout: str | None
) -> pandas.DataFrame:
    """Return a frame of pandas. Its `attrs` have the units and directions of the metrics."""
    made = needed("pandas", "to_pandas()")
    kinds = {"text": "string", "number": "float64", "whole": "Int64", "flag": "boolean"}
    columns = {}
    for column, values in _values(records, wide=wide, checkout=checkout).items():
        if column.kind == "time":
            times = made.Series(made.array(values, dtype="Int64"))
            columns[column.name] = made.to_datetime(times, unit="us", utc=True).dt.as_unit("us")
        else:
            columns[column.name] = made.Series(values, dtype=kinds[column.kind])
    frame: pandas.DataFrame = made.DataFrame(columns)
    units, directions = stated(records)
    frame.attrs = {"units": units, "directions": directions}
    return frame


def polars_frame(
    records: Sequence[SummaryRecord], *, wide: bool, checkout: str | None
) -> polars.DataFrame:
    """Return a frame of polars."""
    made = needed("polars", "to_polars()")
    kinds = {
        "text": made.String,
        "number": made.Float64,
        "whole": made.Int64,
        "flag": made.Boolean,
        "time": made.Datetime("us", "UTC"),
    }
    columns = _values(records, wide=wide, checkout=checkout)
    series = []
    for column, values in columns.items():
        if column.kind == "time":
            numbers = made.Series(column.name, values, dtype=made.Int64)
            series.append(numbers.cast(kinds["time"]))
        else:
            series.append(made.Series(column.name, values, dtype=kinds[column.kind]))
    frame: polars.DataFrame = made.DataFrame(series)
    return frame


def stated(records: Iterable[SummaryRecord]) -> tuple[dict[str, str], dict[str, str]]:
    """Return unit and better direction of each metric, as the latest trial states them."""
    units: dict[str, str] = {}
    directions: dict[str, str] = {}
    for record in sorted(records, key=lambda one: one.timestamp):
        for name, metric in record.metrics.items():
            units[_clean(name)], directions[_clean(name)] = metric.unit, metric.direction
    return units, directions


def _values(records: Sequence[SummaryRecord], *, wide: bool, checkout: str | None) -> _Values:
    if wide:
        return _wide(records, checkout)
    rows = list(rows_of(records, checkout))
    return {column: _column(column, rows, at) for at, column in enumerate(COLUMNS)}


def _wide(records: Sequence[SummaryRecord], checkout: str | None) -> _Values:
    """Return one row a trial, with a column for each metric after those about the trial."""
    firsts: list[Row] = []
    metrics: dict[str, list[float | None]] = {}
    for at, record in enumerate(records):
        for row in rows_of([record], checkout):
            if len(firsts) == at:
                firsts.append(row)
            if row[_METRIC] is not None:
                column = metrics.setdefault(_clean(row[_METRIC]), [None] * len(records))
                column[at] = row[_VALUE]
    found = {
        column: _column(column, firsts, at)
        for at, column in enumerate(COLUMNS)
        if column.name not in _OF_METRIC
    }
    taken = {column.name for column in found}
    for name, values in metrics.items():
        shown = f"{name} (metric)" if name in taken else name
        found[Column(shown, "number")] = values
    return found


def _column(column: Column, rows: Sequence[Row], at: int) -> list[Any]:
    values = [row[at] for row in rows]
    if column.kind == "time":
        return [None if value is None else round(value * 1e6) for value in values]
    return [_clean(value) if isinstance(value, str) else value for value in values]


@lru_cache(4096)
def _clean(text: str) -> str:
    """Return a text from outside without passwords; a frame is shown on terminals, too."""
    return visible(redact(text))
