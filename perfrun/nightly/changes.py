"""What a night and those before it show: changes of level in the methods of the suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.derived import derived_rows
from perfrun.detecting import find_changes, watch_series
from perfrun.nightly.report import ChangeReport, MethodReport
from perfrun.nightly.state import RECENT_DAYS
from perfrun.nights import nights_of
from perfrun.reports.changes import Row

if TYPE_CHECKING:
    from perfrun.store.index import Store
    from perfrun.store.query import Series

_NOON = timedelta(hours=12)
# Method, metric, environment, direction and the night that made it sure: what stays of a change.
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Recent:
    """The changes of the last nights, and how many series cannot show any yet."""

    rows: tuple[Row, ...] = ()
    young: int = 0  # series of tonight with too few nights
    series: int = 0  # of tonight


def recent_changes(
    store: Store,
    methods: Sequence[MethodReport],
    night: str,
    begun: float,
    clones: Mapping[str, Path] | None = None,
) -> Recent:
    """Look at the suite's methods together, its canaries as such. `night` labels its trials."""
    if not any(method.figures for method in methods):
        return Recent()
    names = {method.method for method in methods}
    canaries = {method.method for method in methods if method.canary and method.figures}
    found = store.series(clones=clones, which="primary")
    series = [one for one in found if one.key.method in names]
    watched, left_out = watch_series(series, canaries=sorted(canaries))
    tonight = (datetime.fromtimestamp(begun) - _NOON).date()
    oldest = tonight - timedelta(days=RECENT_DAYS - 1)
    derived = partial(store.series, clones=clones, which="derived")
    rows = find_changes(watched, left_out, alarm_since=oldest, derived=derived).rows
    different = {id(one.origins): one.origins for one in series}  # metrics share theirs
    of_night = {
        number for number, own in different.items() if any(row.label == night for row in own.rows)
    }
    current = [one for one in series if id(one.origins) in of_night]
    return Recent(
        rows=rows,
        young=sum(_is_young(one) for one in current),
        series=len(current),
    )


def _is_young(series: Series) -> bool:
    from perfrun.analysis.looks import FEWEST_NIGHTS  # numpy

    return (
        series.direction != "none" and len(nights_of(series.origins, series.values)) < FEWEST_NIGHTS
    )


def change_reports(
    rows: Sequence[Row],
    methods: Sequence[MethodReport],
    night: str,
    known: Mapping[Key, Mapping[str, Any]],
) -> tuple[ChangeReport, ...]:
    """The changes as the report has them; `known`: as earlier nights' reports had them."""
    owners = {method.method: method.owner for method in methods}
    found = []
    for row in rows:
        told = known.get(key_of(row), {}) if row.confirmation is None else {}
        found.append(
            ChangeReport(
                method=row.method,
                metric=row.metric,
                environment=row.environment,
                owner=owners[row.method],
                before_execution_id=row.before_execution_id,
                after_execution_id=row.after_execution_id,
                ratio=row.ratio,
                direction=row.direction,
                status=told.get("status", row.status),
                confirmation=told.get("confirmation", row.confirmation),
                night=row.night,
                alarm_night=row.alarm_night,
                is_new=is_new(row, night, known),
                machine_suspect=row.machine_suspect,
                commits_before=row.commits_before,
                commits_after=row.commits_after,
                environment_differences=row.environment_differences or (),
                derived=tuple(derived_rows(row.derived)),
            )
        )
    return tuple(found)


def is_new(row: Row, night: str, known: Mapping[Key, Mapping[str, Any]]) -> bool:
    """Whether it took this night to make it sure, and nobody was told before."""
    return night in row.evidence and key_of(row) not in known


def key_of(row: Row) -> Key:
    return (row.method, row.metric, row.environment, row.direction, row.alarm_night)
