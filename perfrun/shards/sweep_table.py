"""The results of a submission as one table: a row a setting of a method, a column a metric."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.reports.figures import ratio_text
from perfrun.reports.table import Column, Table
from perfrun.shards.collect import collected_summary
from perfrun.shards.plan import Plan, Shard
from perfrun.shards.status import ShardStatus
from perfrun.summary.metrics import unit_of
from perfrun.summary.record import BadSummary, SummaryRecord, read_record
from perfrun.text import spread, with_unit

_MOST_METRICS = 2  # without --metric


@dataclass(frozen=True, kw_only=True)
class Row:
    """The trials of one setting of one method on machines of one kind."""

    method: str
    environment: str
    setting: tuple[tuple[str, str], ...]
    hardware: str
    trials: int
    values: dict[str, tuple[float, ...]]  # by metric
    ratios: dict[str, float]  # of the medians, over those of the method's first setting


def rows_of(plan: Plan, found: Sequence[ShardStatus], metrics: Sequence[str]) -> tuple[Row, ...]:
    """Return the rows, in the order of the plan. Without `metrics`, the first primary ones.

    Trials of other hardware are never pooled, nor compared.
    """
    groups: dict[tuple[Any, ...], list[SummaryRecord]] = {}
    for one in found:
        for record in _records(plan, one):
            key = (record.method, one.shard.environment, record.subject.hardware)
            groups.setdefault((*key, one.shard.setting), []).append(record)
    order = {_key(shard): place for place, shard in reversed(list(enumerate(plan.shards)))}
    firsts: dict[tuple[Any, ...], dict[str, float]] = {}
    rows = []
    for (method, environment, hardware, setting), records in sorted(
        groups.items(), key=lambda item: (item[0][:3], order.get(item[0][1::2], 0))
    ):
        names = metrics or _primaries(records)
        values = {
            name: taken
            for name in names
            if (taken := tuple(one.values[name] for one in records if name in one.values))
        }
        medians = {name: statistics.median(taken) for name, taken in values.items()}
        first = firsts.setdefault((method, environment, hardware), medians)
        rows.append(
            Row(
                method=method,
                environment=environment,
                setting=setting,
                hardware=hardware,
                trials=len(records),
                values=values,
                ratios={
                    name: middle / first[name]
                    for name, middle in medians.items()
                    if first.get(name) and first is not medians
                },
            )
        )
    return tuple(rows)


def metrics_of(plan: Plan, found: Sequence[ShardStatus]) -> set[str]:
    """Return the names of all metrics of the trials."""
    return {name for one in found for record in _records(plan, one) for name in record.values}


def _key(shard: Shard) -> tuple[Any, ...]:
    return shard.environment, shard.setting


def _records(plan: Plan, status: ShardStatus) -> Iterable[SummaryRecord]:
    last = status.last
    if not status.state.has_result or last is None or last.ended is None:
        return
    for name, digest in last.ended.trials:
        path: Path | None = collected_summary(plan, last, name, digest)
        if path is None:
            continue
        try:
            record = read_record(path)
        except (OSError, BadSummary):
            continue
        if record.ran:
            yield record


def _primaries(records: Sequence[SummaryRecord]) -> list[str]:
    names = dict.fromkeys(name for one in records for name in one.primaries)
    return list(names)[:_MOST_METRICS]


def table(rows: Sequence[Row]) -> Table:
    """Return the rows as a table; a ratio is over the first setting of the same method."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    several = len({row.hardware for row in rows}) > 1
    columns = [
        Column(heading="method"),
        Column(heading="environment"),
        Column(heading="setting"),
        *([Column(heading="machine", prose=True)] if several else []),
        Column(heading="trials", right=True),
    ]
    for name in names:
        columns += [Column(heading=name, right=True), Column(heading="of first", right=True)]
    lines = []
    for row in rows:
        cells = [row.method, row.environment, " ".join(f"{k}={v}" for k, v in row.setting)]
        cells += [row.hardware] if several else []
        cells.append(str(row.trials))
        for name in names:
            ratio = row.ratios.get(name)
            cells.append(_value(row.values.get(name), name))
            cells.append("" if ratio is None else ratio_text(ratio, None, None))
        lines.append(tuple(cells))
    return Table(columns=tuple(columns), rows=tuple(lines))


def _value(values: Sequence[float] | None, name: str) -> str:
    """Return the median; from two trials on with its 95 % confidence interval."""
    if not values:
        return ""
    middle = statistics.median(values)
    if len(values) == 1 or min(values) <= 0:
        return with_unit(middle, unit_of(name))
    from perfrun.analysis.stats import median_interval

    found = median_interval(values)
    if found is None:
        return with_unit(middle, unit_of(name))
    return spread(middle, found.low, found.high, unit_of(name))


def document(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows as `--format=json` prints them."""
    return [
        {
            "method": row.method,
            "environment": row.environment,
            "setting": dict(row.setting),
            "hardware": row.hardware,
            "trials": row.trials,
            "metrics": [
                {
                    "name": name,
                    "values": list(values),
                    "median": statistics.median(values),
                    "ratio": row.ratios.get(name),
                }
                for name, values in row.values.items()
            ],
        }
        for row in rows
    ]
