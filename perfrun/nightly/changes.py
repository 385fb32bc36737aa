"""What a night and those before it show: changes of level in the methods of the suite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from perfrun.detecting import find_changes, watch_series
from perfrun.nightly.report import ChangeReport, MethodReport

if TYPE_CHECKING:
    from perfrun.store.index import Store

RECENT_DAYS = 14  # changes that were made sure in so many nights are reported again
_NOON = timedelta(hours=12)


def changes_of(
    store: Store, methods: Sequence[MethodReport], begun: float
) -> tuple[ChangeReport, ...]:
    """Look at the suite's methods together, its canaries as such."""
    if not any(method.figures for method in methods):
        return ()
    owners = {method.method: method.owner for method in methods}
    canaries = {method.method for method in methods if method.canary and method.figures}
    watched, left_out = watch_series(store.series(), canaries=sorted(canaries))
    own = [one for one in watched if one.method in owners]
    tonight = (datetime.fromtimestamp(begun) - _NOON).date()
    found = []
    for row in find_changes(own, left_out).rows:
        alarm = date.fromisoformat(row.alarm_night)
        if alarm <= tonight - timedelta(days=RECENT_DAYS):
            continue
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
                status="candidate",
                night=row.night,
                alarm_night=row.alarm_night,
                is_new=alarm >= tonight,
                machine_suspect=row.machine_suspect,
                commits_before=row.commits_before,
                commits_after=row.commits_after,
                environment_differences=row.environment_differences or (),
            )
        )
    return tuple(found)
