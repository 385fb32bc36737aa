"""Changes of level in the methods of a suite: those that a night shows, and their pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.changes.budget import INTERRUPTED
from perfrun.changes.change_report import ChangeRow
from perfrun.changes.creep import CreepRule, Turn, creep_of, find_pin, new_lines
from perfrun.changes.cuts import Cut, cut_lines, cuts_of
from perfrun.changes.detect import DetectResult, find_changes
from perfrun.changes.observations import night_of, observations_of
from perfrun.changes.outlook import outlook_lines
from perfrun.changes.watched import ChosenSeries, choose_series
from perfrun.errors import Interrupted, PerfrunError
from perfrun.nightly.night_state import KNOWN_DAYS, RECENT_DAYS, Earlier
from perfrun.nightly.report import ChangeReport, MethodReport, NightReport
from perfrun.nightly.suite import Suite
from perfrun.nightly.suite_screening import with_suspects
from perfrun.run.interruption import Interruption
from perfrun.run.progress import Screen
from perfrun.store import quarantine
from perfrun.summary.derived_metrics import derived_rows

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch
    from perfrun.changes.watched import WatchedSeries
    from perfrun.store.index import Store
    from perfrun.store.query import Origins, Series
_DAY_S = 86400.0  # before a night, by which the clock of a node may be off
# Method, metric, environment, direction and alarm night: these identify a change in all nights.
ChangeKey = tuple[str, str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Recent:
    """The changes of the last nights, and the number of series too short to show one."""

    rows: tuple[ChangeRow, ...] = ()
    older: tuple[ChangeRow, ...] = ()  # of the nights before, which earlier reports may still list
    short: int = 0  # tonight's series with too few observations
    series: int = 0  # all of tonight's series
    outlook: tuple[str, ...] = ()  # shifts not sure yet, changes that few nights could show
    watched: Sequence[WatchedSeries] = ()  # what was searched
    watches: Sequence[SeriesWatch] = ()


def recent_changes(
    store: Store,
    methods: Sequence[MethodReport],
    night: str,
    begun: float,
    clones: Mapping[str, Path] | None = None,
    *,
    creep: CreepRule | None = None,
    workspace: Path = Path(),
    earlier: Earlier = (),
    untold: Collection[str] = (),
) -> Recent:
    """Find the changes of the suite's methods. `night` is the label of tonight's trials.

    `earlier` and `untold` are those of `with_changes`.
    """
    if not any(method.figures for method in methods):
        return Recent()
    names = {method.method for method in methods}
    canaries = {method.method for method in methods if method.canary and method.figures}
    found = store.series(clones=clones, which="primary")
    series = [one for one in found if one.key.method in names]
    chosen = choose_series(series, canaries=sorted(canaries))
    oldest = _oldest(begun)
    derived = partial(store.series, clones=clones, which="derived")
    reported = oldest - timedelta(days=KNOWN_DAYS)  # the first that any of `Earlier` may list
    result = find_changes(
        *(chosen.watched, chosen.left_out),
        alarm_since=reported,
        derived=derived,
        beside=store.scans_beside,
    )
    rows: tuple[list[ChangeRow], list[ChangeRow]] = ([], [])
    for row in result.rows:
        rows[row.alarm_night < oldest.isoformat()].append(row)
    different = {
        id(one.origins): one.origins for one in series
    }  # the metrics of a method share them
    of_night = {
        number
        for number, own in different.items()
        if any(row.label == night for row in _since(own, begun - _DAY_S).rows)
    }
    current = [one for one in series if id(one.origins) in of_night]
    cuts = cuts_of((*chosen.watched, *chosen.short), result.watches)
    turns = (Turn(night, begun), _last_turn(earlier))
    lines = (
        *outlook_lines(chosen, result.watches, [one.key for one in current]),
        *cut_lines(cuts, since=oldest),
        *_creep_lines(chosen, result, cuts, creep, workspace, turns, untold),
        *([quarantine.said(store.left_out)] if store.left_out else []),
    )
    return Recent(
        rows=tuple(rows[0]),
        older=tuple(rows[1]),
        short=sum(_is_short(one) for one in current),
        series=len(current),
        outlook=lines,
        watched=chosen.watched,
        watches=result.watches,
    )


def _since(origins: Origins, begin: float) -> Origins:
    """Return the later trials: of a large index, the texts of those before are not read."""
    return origins.taken([place for place, at in enumerate(origins.times) if at >= begin])


def _creep_lines(
    chosen: ChosenSeries,
    result: DetectResult,
    cuts: Sequence[Cut],
    rule: CreepRule | None,
    workspace: Path,
    turns: tuple[Turn, Turn | None],
    untold: Collection[str],
) -> list[str]:
    """Return what has passed the bound against the pinned baseline, or come back, and was not told.

    `turns` are tonight and the last night that told such.
    """
    if rule is None:
        return []
    try:
        pin = find_pin(rule, workspace)
    except PerfrunError as error:
        return [f"creep_baseline = {rule.baseline}: nothing was compared with it: {error}"]
    several = (*chosen.watched, *chosen.short)
    found = creep_of(several, result.watches, cuts, pin, rule.bound)
    return new_lines(found, *turns, untold)


def _last_turn(earlier: Earlier) -> Turn | None:
    """Return the last night that has searched, and told what it found."""
    for night, document in earlier:
        if night.told and any(one.get("figures") for one in document.get("methods") or ()):
            return Turn(night.night, night.begun)
    return None


def _oldest(begun: float) -> date:
    """Return the first alarm night that the report of a night still lists."""
    return date.fromordinal(night_of(begun) - (RECENT_DAYS - 1))


def _is_short(series: Series) -> bool:
    from perfrun.analysis.scan import FEWEST_OBSERVATIONS  # numpy

    return (
        series.direction != "none"
        and len(observations_of(series.origins, series.values)) < FEWEST_OBSERVATIONS
    )


def change_reports(
    rows: Sequence[ChangeRow],
    methods: Sequence[MethodReport],
    night: str,
    known: Mapping[ChangeKey, Mapping[str, Any]],
    heard: Collection[str] = (),
) -> tuple[ChangeReport, ...]:
    """Return the changes for the report. `known` holds those of earlier nights' reports.

    `heard` are earlier nights of which `known` has all that was told.
    """
    owners = {method.method: method.owner for method in methods}
    found = []
    for row in rows:
        earlier = known.get(_key_of(row), {}) if row.confirmation is None else {}
        found.append(
            ChangeReport(
                method=row.method,
                metric=row.metric,
                environment=row.environment,
                settings=row.settings,
                owner=owners[row.method],
                before_execution_id=row.before_execution_id,
                after_execution_id=row.after_execution_id,
                ratio=row.ratio,
                direction=row.direction,
                status=earlier.get("status", row.status),
                confirmation=earlier.get("confirmation", row.confirmation),
                night=row.night,
                alarm_night=row.alarm_night,
                is_new=_is_new(row, night, known, heard),
                machine_suspect=row.machine_suspect,
                commits_before=row.commits_before,
                commits_after=row.commits_after,
                environment_differences=row.environment_differences or (),
                ran_the_same=row.ran_the_same,
                derived=tuple(derived_rows(row.derived)),
            )
        )
    return tuple(found)


def _is_new(
    row: ChangeRow,
    night: str,
    known: Mapping[ChangeKey, Mapping[str, Any]],
    heard: Collection[str],
) -> bool:
    """Return True for a change that this night has made sure and no earlier report had.

    The alarm may lie in an earlier night: one that could not tell it, or one whose alarm was less
    sure while less was known. A change of before the suite's own nights is not new.
    """
    is_ours = night in row.evidence or row.alarm_label in heard
    return is_ours and _key_of(row) not in known


def _key_of(row: ChangeRow) -> ChangeKey:
    return (row.method, row.metric, row.environment, row.direction, row.alarm_night)


def with_changes(
    suite: Suite,
    report: NightReport,
    earlier: Earlier,
    untold: Collection[str],
    screen: Screen,
    interruption: Interruption,
) -> tuple[NightReport, bool]:
    """Bring the index up to date, find changes, and run the pairs of the new ones.

    `untold` are earlier nights that told nobody of their changes. A failure becomes an error of the
    night; the second value is False when changes could not be searched for. Raises Interrupted.
    """
    try:
        with interruption.allowed():
            recent = _recent(suite, report, earlier, untold)
    except Interrupted:
        raise
    except (PerfrunError, ImportError, OSError) as error:
        text = f"the index could not be brought up to date or searched: {error}"
        return replace(report, errors=(*report.errors, text)), False
    rows, errors, notes = recent.rows, report.errors, report.notes
    known = with_moved((*rows, *recent.older), _known(earlier))
    heard = {*untold, *(night.night for night, _ in earlier)}
    if suite.confirm is not None or suite.confirm_budget is not None:
        try:
            new = [row for row in rows if _is_new(row, report.night, known, heard)]
            if suite.confirm_budget is None:
                rows = _confirmed(suite, report, rows, new, screen, interruption)
            else:
                asked = with_suspects(
                    suite, report, rows, new, recent.watched, recent.watches, screen, interruption
                )
                rows, notes = asked.rows, (*notes, *asked.notes)
                # Pairs may have confirmed what the history alone has told: that is not new again.
                known = with_moved((*rows, *recent.older), known)
        except Interrupted:
            raise
        except (PerfrunError, OSError) as error:
            errors = (*errors, f"changes could not be confirmed: {error}")
    changes = change_reports(rows, report.methods, report.night, known, heard)
    if recent.short:
        text = f"{recent.short} of {recent.series} series have too few nights to show a change yet."
        notes = (*notes, text)
    notes = (*notes, *recent.outlook)
    return replace(report, changes=changes, errors=errors, notes=notes), True


def _recent(suite: Suite, report: NightReport, earlier: Earlier, untold: Collection[str]) -> Recent:
    from perfrun.options.store_address import parse_address
    from perfrun.store.index import open_store  # SQLAlchemy

    clones = {repo.directory: repo.clone for repo in suite.repos if repo.clone is not None}
    address = parse_address(suite.store, suite.workspace)
    with open_store(address, beside=suite.workspace) as store:
        store.refresh([suite.workspace] if suite.store else [])
        return recent_changes(
            store,
            report.methods,
            report.night,
            report.begun,
            clones,
            creep=suite.creep,
            workspace=suite.workspace,
            earlier=earlier,
            untold=untold,
        )


def _confirmed(
    suite: Suite,
    report: NightReport,
    rows: Sequence[ChangeRow],
    new: Sequence[ChangeRow],
    screen: Screen,
    interruption: Interruption,
) -> tuple[ChangeRow, ...]:
    """Run the pairs of the changes that are new tonight; the deadline of the night ends them."""
    from perfrun.changes.confirm import TOO_LATE, confirm_rows

    assert suite.confirm is not None
    with interruption.until(report.deadline):
        confirmed = confirm_rows(
            new,
            suite.workspace,
            suite.confirm,
            screen,
            deadline=report.deadline,
            interruption=interruption,
        )
    interruption.check()
    by_row = {id(row): after for row, after in zip(new, confirmed, strict=True)}
    found = []
    for row in rows:
        after = by_row.get(id(row), row)
        if after.confirmation is not None and after.confirmation["reason"] == INTERRUPTED:
            after = replace(after, confirmation={**after.confirmation, "reason": TOO_LATE})
        found.append(after)
    return tuple(found)


def with_moved(
    rows: Sequence[ChangeRow], known: Mapping[ChangeKey, Mapping[str, Any]]
) -> dict[ChangeKey, Mapping[str, Any]]:
    """Add the known changes whose alarm has moved to another night, under their new keys.

    An alarm moves when results that it rests on are pruned or lost. A change is known when one that
    is no longer found is of the same series and direction, and spans some of the same nights.
    `rows` are all changes of the nights that the reports of `known` could list.
    """
    found = {_key_of(row) for row in rows}
    gone = [(key, str(change.get("night"))) for key, change in known.items() if key not in found]
    moved = dict(known)
    for row in rows:
        key = _key_of(row)
        for lost, first_night in gone if key not in known else ():
            if lost[:-1] == key[:-1] and first_night <= row.alarm_night and row.night <= lost[-1]:
                moved[key] = known[lost]
    return moved


def _known(earlier: Earlier) -> dict[ChangeKey, Mapping[str, Any]]:
    """Return the changes of earlier reports, each with its last confirmation."""
    found: dict[ChangeKey, Mapping[str, Any]] = {}
    for night, document in reversed(earlier):
        if not night.told:  # killed after its reports were written, and not continued
            continue
        for change in document.get("changes") or ():
            names = ("method", "metric", "environment", "direction", "alarm_night")
            method, metric, environment, direction, alarm_night = (change.get(n) for n in names)
            key = (method, metric, environment, direction, alarm_night)
            if key not in found or change.get("confirmation") is not None:
                found[key] = change
    return found
