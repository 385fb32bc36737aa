"""The cost of a method as earlier trials on this machine tell it: time, noise, trials for 5 %.

An index chooses the trials, and their summaries say how long they took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from perfrun.errors import PerfrunError, UsageError
from perfrun.options.store_address import Address
from perfrun.probes.machine import machine
from perfrun.reports.advice import FEWEST, TOO_MANY, USUAL
from perfrun.reports.figures import percent, time_left
from perfrun.reports.table import Column, Table
from perfrun.shown import say
from perfrun.store.garbage_collection import no_collection
from perfrun.store.query import Selector
from perfrun.summary.estimates import TrialObservation, estimate, observe
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.text import duration

_MOST_TRIALS = 30  # of a method, the newest; older ones may be of another state of the machine
_NEVER = "never run here"


@dataclass(frozen=True, kw_only=True)
class KnownCost:
    """What earlier trials of a method tell. None is unknown: too few trials, or no wall time."""

    trials: int  # that were looked at
    newest: float  # seconds since the epoch
    trial_s: float | None  # from starting the worker to its end, the median
    relative_noise: float | None  # standard deviation of one trial over the median
    trials_needed: int | None  # for an interval of the precision below
    time_needed_s: float | None
    precision: float = USUAL


def known_costs(
    names: Sequence[str], workspace: Path, address: Address
) -> dict[str, KnownCost | None]:
    """Return the cost of each method; None for one that has not run on this machine.

    The results are those of the index, or of the summaries in the workspace that it does not have.
    """
    records: dict[str, list[SummaryRecord]] = {name: [] for name in names}
    if workspace.is_dir() or address.workspace is None:
        for record in _trials(names, address):
            if record.method in records:
                records[record.method].append(record)
    return {name: _cost(_alike(own)) for name, own in records.items()}


def _trials(names: Sequence[str], address: Address) -> list[SummaryRecord]:
    """Return the trials of this machine, newest first. It is known by its processors."""
    with no_collection():  # SQLAlchemy takes a fifth of a second to import
        from perfrun.store.index import open_store

    here = machine()
    try:
        with open_store(address) as store:
            if address.workspace is not None:
                store.refresh()
            found = list(store.trials(Selector(methods=tuple(names)))) if names else []
    except UsageError:
        raise
    except PerfrunError as error:
        say(f"costs are not known: {error.line}")
        return []
    threads = f"{here.logical_cpu_count} threads"
    own = [
        record
        for record in found
        if here.cpu_model in record.subject.hardware and threads in record.subject.hardware
    ]
    own.sort(key=lambda one: (one.timestamp, one.execution_id), reverse=True)
    return own


def _alike(newest_first: Sequence[SummaryRecord]) -> list[SummaryRecord]:
    """Return the newest trials that ran as the newest one did: environment, settings, hardware."""
    if not newest_first:
        return []
    first = newest_first[0].subject
    key = (first.environment, first.settings, first.hardware)
    return [
        one
        for one in newest_first
        if (one.subject.environment, one.subject.settings, one.subject.hardware) == key
    ][:_MOST_TRIALS]


def _cost(records: Sequence[SummaryRecord]) -> KnownCost | None:
    if not records:
        return None
    seen = [_observed(record) for record in records]
    spent = sorted(one.cost_s for one in seen if one.cost_s > 0)
    trial_s = spent[len(spent) // 2] if spent else None
    found = estimate("", seen, stopped_by=None, sequential=False)
    noise = found.relative_noise if found.used >= FEWEST else None
    needed = None
    if noise is not None:
        from perfrun.analysis.precision import trials_for  # there are statistics already

        needed = trials_for(noise, USUAL)
    return KnownCost(
        trials=len(records),
        newest=records[0].timestamp,
        trial_s=trial_s,
        relative_noise=noise,
        trials_needed=needed,
        time_needed_s=None if needed is None or trial_s is None else needed * trial_s,
    )


def _observed(record: SummaryRecord) -> TrialObservation:
    """Return a trial's figures; without its summary the time that it took is not known."""
    try:
        again = read_record(record.path)
        if again.uid == record.uid and isinstance(again.document.get("perfrun"), dict):
            return observe(again.document)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    value = record.values.get("wall_time")
    usable = record.ran and value is not None and value > 0
    return TrialObservation(
        value=value if usable else None, ran=record.ran, disturbed=record.disturbed
    )


def cost_table(costs: dict[str, KnownCost | None]) -> Table:
    """Return the table that `perfrun list --cost` prints."""
    wanted = f"for \u00b1{percent(USUAL)}"
    return Table(
        columns=(
            Column(heading="method"),
            Column(heading="a trial", right=True),
            Column(heading="noise", right=True),
            Column(heading=f"trials {wanted}", right=True),
            Column(heading=f"time {wanted}", right=True),
            Column(heading="known from"),
        ),
        rows=tuple((name, *_cells(cost)) for name, cost in costs.items()),
    )


def _cells(cost: KnownCost | None) -> tuple[str, str, str, str, str]:
    if cost is None:
        return ("-", "-", "-", "-", _NEVER)
    needed = cost.trials_needed
    return (
        "-" if cost.trial_s is None else duration(cost.trial_s, 3),
        "-" if cost.relative_noise is None else percent(cost.relative_noise),
        "-" if needed is None else f"over {TOO_MANY:,}" if needed > TOO_MANY else f"{needed:,}",
        "-"
        if cost.time_needed_s is None or (needed or 0) > TOO_MANY
        else time_left(cost.time_needed_s),
        f"{cost.trials} trial{'s' * (cost.trials != 1)}, the last {_day(cost.newest)}",
    )


def _day(timestamp: float) -> str:
    try:
        return f"{datetime.fromtimestamp(timestamp):%Y-%m-%d}"
    except (OverflowError, OSError, ValueError):  # beyond Python's calendar
        return "on an unknown day"


def cost_document(cost: KnownCost | None) -> dict[str, Any] | None:
    """Return the cost as `--format=json` prints it."""
    if cost is None:
        return None
    return {
        "trials": cost.trials,
        "newest": cost.newest,
        "trial_s": cost.trial_s,
        "relative_noise": cost.relative_noise,
        "precision": cost.precision,
        "trials_needed": cost.trials_needed,
        "time_needed_s": cost.time_needed_s,
    }
