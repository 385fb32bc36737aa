"""`perfrun detect`: find the metrics of the store whose level changed, when, and which way."""

from __future__ import annotations

import argparse
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from perfrun.changes.beginnings import Beginning, beginning_rows, beginnings
from perfrun.changes.budget import DEFAULT_CHANGES, INTERRUPTED, Budget, parse_budget
from perfrun.changes.change_report import ChangeRow, change_row, changes_page
from perfrun.changes.creep import (
    Creep,
    CreepRule,
    creep_document,
    creep_lines,
    creep_of,
    find_pin,
    parse_rule,
)
from perfrun.changes.cuts import Cut, cut_rows, cuts_of, with_evidence
from perfrun.changes.observations import LabelsUpTo, observations_of, read_ahead
from perfrun.changes.outlook import (
    YOUNG_NIGHTS,
    SensitivityRow,
    ShiftRow,
    outlook_of,
    sensitivity_rows,
    shift_rows,
)
from perfrun.changes.suspect_rows import (
    SuspectRow,
    suspect_documents,
    suspect_lines,
    suspect_rows,
)
from perfrun.changes.watched import (
    ChosenSeries,
    NoResultsError,
    WatchedSeries,
    choose_series,
    history_of,
)
from perfrun.compare.differences import differences
from perfrun.errors import Interrupted, UsageError
from perfrun.options.parsers import CommandParser, parse_word, parse_workspace
from perfrun.shown import say, write_json
from perfrun.store.command import bring_up_to_date, index_parser, opened
from perfrun.store.garbage_collection import no_collection
from perfrun.summary.derived_metrics import DerivedRatio
from perfrun.summary.record import read_record

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch
    from perfrun.store.query import Series, SeriesKey
    from perfrun.store.reading import Which


_BASELINE_OBSERVATIONS = 10  # before a change, the baseline of a derived metric
_MOST_NAMES = 8  # of what the index has instead
_SINCE = re.compile(r"(\d{1,9})d")
_EPILOG = """\
Exit status: 0 nothing got worse, 1 something did (within --since, and not together with a canary),
2 wrong usage, or nothing could be judged. All of it is in docs/guides/detecting.md.
"""


def parser() -> CommandParser:
    """Return the parser of the flags of `perfrun detect`."""
    made = index_parser("detect", __doc__, _EPILOG)
    made.flag("--since", "DATE|DAYSd", "report changes from then on (2026-11-01, 14d)")
    made.flag("--method", "PATTERN", "only these methods (* for any text)")
    made.flag("--metric", "PATTERN", "only these metrics (* for any text)")
    canary = "a method whose code never changes: it shows changes of the machine (repeatable)"
    made.flag("--canary", "METHOD", canary, default=[], action="append")
    made.add_clone()
    baseline = "compare each night also with this baseline: its name, or a date (2026-11-01)"
    made.flag("--creep_baseline", "NAME|DATE", baseline)
    made.flag("--creep_bound", "PERCENT", "changes since it that are reported (default 5%%)")
    made.switch(
        "--confirm",
        "run the trials before and after each change against each other on this machine",
    )
    made.switch(
        "--screen", "list series whose last nights lie far out, and what their pairs would cost"
    )
    made.flag("--max_pairs", "N", "most pairs of each change (default 30)")
    made.flag("--time_budget", "SECONDS", "of each change's pairs (20m, 1h)")
    many = f"confirm so many, worse ones first (default {DEFAULT_CHANGES}; with --since all)"
    made.flag("--max_changes", "N", many)
    trust = (
        "with --confirm: run also what imported summaries record (never an interpreter, image or "
        "repository that no run of this workspace has used)"
    )
    made.flag("--trust", "imported", trust, _parse_trust)
    return made


def _parse_trust(text: str, flag: str) -> str:
    return parse_word(text, flag, ("imported",))


@dataclass(frozen=True, kw_only=True)
class DetectResult:
    """The changes that were found, and the number of series that were searched."""

    series: int
    left_out: Mapping[str, int]  # by reason: short, no_direction, not_positive
    rows: tuple[ChangeRow, ...]
    watches: tuple[SeriesWatch, ...] = ()  # of the series, with these changes
    shifts: tuple[ShiftRow, ...] = ()
    young: tuple[SensitivityRow, ...] = ()
    begun_anew: tuple[Beginning, ...] = ()
    cuts: tuple[Cut, ...] = ()
    creep: Creep | None = None  # None: no baseline was named
    suspects: tuple[SuspectRow, ...] | None = None  # None: nothing was screened


# Keeps the confirmed changes with the incidents of the workspace; returns what is told of that.
Keep = Callable[[argparse.Namespace, Sequence[ChangeRow]], Sequence[str]]


def detect_command(argv: Sequence[str], keep: Keep | None = None) -> int:
    """Carry out `perfrun detect`: 1 when something got worse."""
    given = parser().parse_args(list(argv))
    since = parse_since(given.since, date.today())
    budget, clones, creep = _budget(given), dict(given.clone), _creep_rule(given)
    pin = find_pin(creep, parse_workspace(given.workspace)) if creep else None
    with opened(given) as store:
        bring_up_to_date(store, given)
        # A derived metric repeats what its primary one says, so it is judged only when named.
        which: Which = "all" if given.metric else "primary"
        series = tuple(store.series(metric=given.metric or None, clones=clones, which=which))
        try:
            chosen = choose_series(series, given.method, given.canary, store.address.shown)
        except NoResultsError as error:
            raise UsageError(f"{error}{_instead(store.series(), given)}") from None
        derived = partial(store.series, clones=clones, which="derived")
        found = find_changes(
            *(chosen.watched, chosen.left_out),
            since=since,
            derived=derived,
            beside=store.scans_beside,
        )
    found = _with_outlook(found, chosen, series, since)
    if pin is not None and creep is not None:
        several = (*chosen.watched, *chosen.short)
        against = creep_of(several, found.watches, found.cuts, pin, creep.bound)
        found = replace(found, creep=against)
    recent = [cut for cut in found.cuts if since is None or cut.date >= since.isoformat()]
    found = replace(found, cuts=with_evidence(recent))
    interrupted = False
    workspace = parse_workspace(given.workspace)
    if given.screen:
        found = replace(found, suspects=suspect_rows(chosen.watched, found.watches, workspace))
    if budget is not None:
        found, interrupted = _confirmed(found, workspace, budget, trusts_imported=bool(given.trust))
    if given.format == "json":
        write_json(_document(found))
    else:
        sys.stdout.write(
            changes_page(
                found.series,
                found.left_out,
                found.rows,
                shifts=found.shifts,
                young=found.young,
                begun_anew=found.begun_anew,
                cuts=found.cuts,
                creep=creep_lines(found.creep, since),
                suspects=None if found.suspects is None else suspect_lines(found.suspects),
            )
        )
    _tell_incidents(keep, given, found.rows)
    if interrupted:
        say("interrupted; the same command goes on from here")
        return Interrupted.exit_code
    if any(_alarms(row) for row in found.rows) or _creeps(found, since):
        return 1
    if not any(_is_chosen(one, given.method) for one in chosen.watched):
        say(_nothing_judged(chosen))
        return UsageError.exit_code
    return 0


def _tell_incidents(
    keep: Keep | None, given: argparse.Namespace, rows: Sequence[ChangeRow]
) -> None:
    if keep is not None and any(row.confirmation is not None for row in rows):
        for line in keep(given, rows):
            say(line)


def _is_chosen(one: WatchedSeries, method: str | None) -> bool:
    """Return False for a canary that is watched only for the sake of others."""
    return not method or fnmatchcase(one.method, method)


def _nothing_judged(chosen: ChosenSeries) -> str:
    """Return why no series was judged, and from when on one will be."""
    from perfrun.analysis.scan import FEWEST_OBSERVATIONS

    reasons = []
    if nights := [len(one.observations) for one in chosen.short]:
        least, most = min(nights), max(nights)
        has = str(most) if least == most else f"{least} to {most}"
        reasons.append(
            f"{_many(len(nights))} too few nights ({has} of {FEWEST_OBSERVATIONS}; "
            f"the first is judged after {FEWEST_OBSERVATIONS - most} more)"
        )
    texts = {
        "no_direction": "no better direction (lower or higher)",
        "not_positive": "values that are not positive",
    }
    reasons += [
        f"{_many(chosen.left_out[why])} {text}"
        for why, text in texts.items()
        if chosen.left_out[why]
    ]
    return f"detect: no series could be judged: {'; '.join(reasons)}"


def _many(count: int) -> str:
    return f"{count} series {'has' if count == 1 else 'have'}"


def _instead(there: Iterable[Series], given: argparse.Namespace) -> str:
    """Return what the index has, where nothing that was asked for is in it."""
    keys = [one.key for one in there]
    own = [key for key in keys if not given.method or fnmatchcase(key.method, given.method)]
    if not keys:
        return "; a run adds some: perfrun --benchmark_methods=..."
    if not own:
        return _listed("methods", {key.method for key in keys})
    return _listed("metrics of these methods", {key.metric for key in own})


def _listed(what: str, names: Iterable[str]) -> str:
    known = sorted(names)
    more = f", and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"; {what} in it: {', '.join(known[:_MOST_NAMES])}{more}"


def _with_outlook(
    found: DetectResult, chosen: ChosenSeries, series: Sequence[Series], since: date | None
) -> DetectResult:
    """Add what the histories tell beyond the changes that were found."""
    own = {one.subject for one in (*chosen.watched, *chosen.short)}
    oldest = since.isoformat() if since else ""
    anew = [
        one
        for key, one in beginnings(series).items()
        if key in own and (one.date >= oldest if since else one.trials < YOUNG_NIGHTS)
    ]
    shifts, young = outlook_of(chosen, found.watches)
    several = (*chosen.watched, *chosen.short)
    return replace(
        found,
        cuts=cuts_of(several, found.watches),
        shifts=shifts,
        young=young,
        begun_anew=tuple(sorted(anew, key=lambda one: (one.date, one.method))),
    )


def _confirmed(
    found: DetectResult, workspace: Path, budget: Budget, *, trusts_imported: bool
) -> tuple[DetectResult, bool]:
    """Run the pairs of the changes; return the result, and True when it was interrupted."""
    # Imported here, because it loads everything that a run needs, and most calls do not confirm.
    from perfrun.changes.confirm import IMPORTED, LEFT_OUT, confirm_rows
    from perfrun.reports.terminal import Terminal

    # Standard output is for the result.
    screen = Terminal(sys.stderr, sys.stderr, quiet=False, benchmark_output=False)
    rows = confirm_rows(found.rows, workspace, budget, screen, trusts_imported=trusts_imported)
    reasons = [str((row.confirmation or {}).get("reason")) for row in rows]
    left_out = sum(reason.startswith(LEFT_OUT) for reason in reasons)
    if left_out:
        say(
            f"{left_out} of {len(rows)} changes were left out and stay candidates: "
            "--since=14d confirms the new ones, --max_changes=N more of them"
        )
    imported = sum(reason.startswith(IMPORTED) for reason in reasons)
    if imported:
        say(
            f"{imported} of {len(rows)} changes rest on imported summaries, which were not run "
            "again: --trust=imported consents to that"
        )
    return replace(found, rows=rows), INTERRUPTED in reasons


def _alarms(row: ChangeRow) -> bool:
    if row.status != "candidate":
        return row.direction == "worse" and row.status == "confirmed"
    return row.direction == "worse" and not row.machine_suspect


def _creeps(found: DetectResult, since: date | None) -> bool:
    """Return True when something has passed the bound for the worse."""
    oldest = since.isoformat() if since else ""
    rows = found.creep.rows if found.creep else ()
    return any(
        row.state == "beyond" and row.direction == "worse" and row.night >= oldest for row in rows
    )


def _creep_rule(given: argparse.Namespace) -> CreepRule | None:
    if given.creep_baseline:
        return parse_rule(given.creep_baseline, given.creep_bound)
    if given.creep_bound:
        raise UsageError("--creep_bound is of --creep_baseline: give that, too")
    return None


def _budget(given: argparse.Namespace) -> Budget | None:
    if not given.confirm:
        for flag in ("max_pairs", "time_budget", "max_changes"):
            if getattr(given, flag):
                raise UsageError(f"--{flag} limits the pairs of --confirm: give that, too")
        if given.trust:
            raise UsageError(f"--trust={given.trust} is about what --confirm runs: give that, too")
        return None
    most = given.max_changes or (None if given.since else str(DEFAULT_CHANGES))
    return parse_budget(given.max_pairs, given.time_budget, most)


def parse_since(text: str | None, today: date, flag: str = "--since") -> date | None:
    """Parse `2026-11-01` or `14d`, which counts back from today; None when not given."""
    if not text:
        return None
    days = _SINCE.fullmatch(text)
    try:
        return today - timedelta(days=int(days[1])) if days else date.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(f"{flag}={text}: write a date as 2026-11-01, or 14d") from None


@no_collection()
def find_changes(
    watched: Sequence[WatchedSeries],
    left_out: Mapping[str, int],
    *,
    since: date | None = None,
    alarm_since: date | None = None,
    derived: Callable[..., Iterable[Series]] | None = None,
    beside: Path | None = None,
) -> DetectResult:
    """Find the changes of all series together.

    The rows are the changes that began on `since` or later and whose alarm was on `alarm_since`
    or later. `derived(methods=...)` returns the derived series of methods, which the rows show
    with their primary metric. What was said of observations is kept in the file `beside`, if one is
    given, and only others are judged.
    """
    from perfrun.analysis.detection import changes_of, watch_suite  # numpy and scipy
    from perfrun.changes.scan_file import kept_scans

    histories = [history_of(one) for one in watched]
    with kept_scans(beside) as kept:
        watches = watch_suite(histories, kept=kept)
    rows: list[ChangeRow] = []
    owners: list[WatchedSeries] = []  # of each row
    first, first_alarm = (day.toordinal() if day else 0 for day in (since, alarm_since))
    changes = changes_of(histories, watches, begun_since=first, alarm_since=first_alarm)
    read_ahead(
        (watched[change.series].observations, place)
        for change in changes
        for place in (change.first_after - 1, change.first_after, change.alarm)
    )
    for change in changes:
        one = watched[change.series]
        observations = one.observations
        before, after = observations[change.first_after - 1], observations[change.first_after]
        alarm = observations[change.alarm].day
        if after.day < first or alarm < first_alarm:  # the series is not in the order of time
            continue
        owners.append(one)
        rows.append(
            ChangeRow(
                method=one.method,
                metric=one.metric,
                environment=one.environment,
                hardware=one.hardware,
                settings=one.subject.settings,
                before_execution_id=before.point.execution_id,
                after_execution_id=after.point.execution_id,
                night=date.fromordinal(after.day).isoformat(),
                alarm_night=date.fromordinal(alarm).isoformat(),
                ratio=change.ratio,
                low=change.low,
                high=change.high,
                p_value=change.p_value,
                direction=change.direction,
                machine_suspect=change.machine_suspect,
                detectors=change.detectors,
                commits_before=before.point.commits,
                commits_after=after.point.commits,
                environment_differences=differences_between(
                    before.point.summary_path, after.point.summary_path
                ),
                before_summary=before.point.summary_path,
                after_summary=after.point.summary_path,
                evidence=LabelsUpTo(observations, change.alarm),
                alarm_label=observations[change.alarm].point.label,
                ran_the_same=observations.repeats[change.first_after],
            )
        )
    if derived is not None and rows:
        methods = sorted({row.method for row in rows})
        rows = _with_derived(rows, owners, derived(methods=methods))
    return DetectResult(
        series=len(watched), left_out=left_out, rows=tuple(rows), watches=tuple(watches)
    )


def _with_derived(
    rows: Sequence[ChangeRow], owners: Sequence[WatchedSeries], derived: Iterable[Series]
) -> list[ChangeRow]:
    """Add to each change the ratios of the metrics that are derived from the changed one."""
    found: dict[tuple[SeriesKey, str], list[Series]] = {}
    for series in derived:
        key = (replace(series.key, metric=""), series.derived_from)
        found.setdefault(key, []).append(series)
    shown = []
    for row, owner in zip(rows, owners, strict=True):
        ratios = [_shift(one, row) for one in found.get((owner.subject, row.metric), ())]
        shown.append(replace(row, derived=tuple(ratio for ratio in ratios if ratio)))
    return shown


def _shift(series: Series, row: ChangeRow) -> DerivedRatio | None:
    """Return the median from the change to its alarm, over that of the last ones before it."""
    observations = observations_of(series.origins, series.values)
    days, values = observations.not_falling, observations.values
    begin, end = (date.fromisoformat(day).toordinal() for day in (row.night, row.alarm_night))
    at = bisect_left(days, begin)
    before, after = values[max(0, at - _BASELINE_OBSERVATIONS) : at], values[at:]
    after = after[: bisect_right(days, end) - at]
    if not before or not after or median(before) <= 0:
        return None
    return DerivedRatio(
        metric=series.key.metric,
        direction=series.direction,
        ratio=median(after) / median(before),
    )


def differences_between(before: str, after: str) -> tuple[str, ...] | None:
    """Return what else differs in two summaries, commits included; None where one is gone."""
    try:
        base, new = (read_record(Path(path)) for path in (before, after))
    except (OSError, ValueError):
        return None
    return tuple(difference.text for difference in differences([base], [new]))


def _document(found: DetectResult) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    return {
        "series": found.series,
        "left_out": dict(found.left_out),
        "changes": [change_row(row) for row in found.rows],
        "not_yet_sure": shift_rows(found.shifts),
        "young": sensitivity_rows(found.young),
        "begun_anew": beginning_rows(found.begun_anew),
        "cuts": cut_rows(found.cuts),
        "creep": creep_document(found.creep),
        **({} if found.suspects is None else {"suspects": suspect_documents(found.suspects)}),
    }
