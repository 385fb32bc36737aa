"""`perfrun detect`: find the metrics of the store whose level changed, when, and which way."""

from __future__ import annotations

import argparse
import re
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from perfrun.changes.budget import DEFAULT_CHANGES, INTERRUPTED, Budget, parse_budget
from perfrun.changes.change_report import ChangeRow, change_row, changes_page
from perfrun.compare.differences import differences
from perfrun.errors import Interrupted, UsageError
from perfrun.options.parsers import CommandParser, parse_word, parse_workspace
from perfrun.shown import say, write_json
from perfrun.store.command import bring_up_to_date, index_parser, opened
from perfrun.store.garbage_collection import no_collection
from perfrun.store.query import Origin, Origins, Point, point_of
from perfrun.summary.derived_metrics import DerivedRatio
from perfrun.summary.record import read_record

if TYPE_CHECKING:
    from perfrun.store.query import Series, SeriesKey
    from perfrun.store.reading import Which


_NOON = timedelta(hours=12)
_QUARTER_S = 900
_BASELINE_OBSERVATIONS = 10  # before a change, the baseline of a derived metric
_SINCE = re.compile(r"(\d{1,9})d")
_CALENDARS: WeakKeyDictionary[Origins, _TrialCalendar] = WeakKeyDictionary()
_EPILOG = """\
Exit status: 0 nothing got worse, 1 something did (within --since, and not together with a canary),
2 wrong usage or an index without results. All of it is in docs/guides/detecting.md.
"""


class Observation(NamedTuple):
    """The trials of one run, or, without run ids, of one night from noon to noon."""

    day: int  # ordinal of the date at whose noon the night began, local time
    value: float  # median of the trials that count
    disturbed: bool  # True when most of its trials were
    point: Point  # the trial nearest to the value


@dataclass(frozen=True, kw_only=True)
class _TrialCalendar:
    """The observations that count, as far as they do not depend on the metric."""

    days: tuple[int, ...]
    not_falling: tuple[int, ...]
    disturbed: tuple[bool, ...]
    counted: tuple[Sequence[int], ...]  # the places of the trials that count, by observation
    single: Sequence[int]  # the same when each observation has one trial; else empty


class Observations:
    """The observations of a series, in columns: there may be a million, and few are read singly."""

    def __init__(
        self, origins: Origins, figures: Sequence[float], calendar: _TrialCalendar
    ) -> None:
        self._origins, self._figures, self._calendar = origins, figures, calendar
        if calendar.single == range(len(figures)):
            self.values = figures
        elif calendar.single:
            self.values = [figures[place] for place in calendar.single]
        else:
            self.values = [median([figures[at] for at in own]) for own in calendar.counted]

    @property
    def not_falling(self) -> Sequence[int]:
        """The days; an observation that stands after a later one has the later one's day."""
        return self._calendar.not_falling

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Observation:
        value, figures = self.values[number], self._figures
        nearest = min(self._calendar.counted[number], key=lambda at: abs(figures[at] - value))
        return Observation(
            day=self._calendar.days[number],
            value=value,
            disturbed=self._calendar.disturbed[number],
            point=point_of(self._origins.rows[nearest], figures[nearest]),
        )

    def __iter__(self) -> Iterator[Observation]:
        return (self[number] for number in range(len(self)))


def observations_of(origins: Origins, values: Sequence[float]) -> Observations:
    """Return the observations of a series, in the order of its trials.

    Disturbed trials of an observation and disturbed observations of a series are left out, unless
    most are disturbed: then that is the normal state of this machine.
    """
    calendar = _CALENDARS.get(origins)
    if calendar is None:
        calendar = _CALENDARS[origins] = _calendar(origins.rows)
    return Observations(origins, values, calendar)


def _calendar(rows: Sequence[Origin]) -> _TrialCalendar:
    groups = _groups(rows)
    if len(groups) == len(rows):  # the fast path for one trial an observation
        observations = [
            (night_of(row.timestamp), row.disturbed, own)
            for row, own in zip(rows, groups, strict=True)
        ]
    else:
        observations = [_observation(rows, group) for group in groups]
    quiet = [one for one in observations if not one[1]]
    kept = quiet if 2 * len(quiet) >= len(observations) else observations
    days = tuple([day for day, _, _ in kept])
    counted = tuple([places for _, _, places in kept])
    return _TrialCalendar(
        days=days,
        not_falling=tuple(accumulate(days, max)),
        disturbed=tuple([disturbed for _, disturbed, _ in kept]),
        counted=counted,
        single=_single(counted),
    )


def _single(counted: Sequence[Sequence[int]]) -> Sequence[int]:
    if any(len(own) != 1 for own in counted):
        return ()
    places = [own[0] for own in counted]
    return range(len(places)) if places == list(range(len(places))) else places


def _groups(rows: Sequence[Origin]) -> Sequence[Sequence[int]]:
    """Return the places of the trials of each run or night."""
    runs = {row.run_id for row in rows}
    if len(runs) == len(rows) and "" not in runs:  # one trial a run, the usual case
        return [(place,) for place in range(len(rows))]
    groups: dict[str | int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.run_id or night_of(row.timestamp), []).append(place)
    return list(groups.values())


def _observation(rows: Sequence[Origin], places: Sequence[int]) -> tuple[int, bool, Sequence[int]]:
    """Return its day, True when it is disturbed, and the places of the trials that count."""
    quiet = [place for place in places if not rows[place].disturbed]
    is_disturbed = 2 * len(quiet) < len(places)
    return night_of(rows[places[0]].timestamp), is_disturbed, places if is_disturbed else quiet


def night_of(timestamp: float) -> int:
    """Return the ordinal of the day at whose noon, local time, the night of a time began."""
    return _night_of_quarter(int(timestamp // _QUARTER_S))


@lru_cache(4096)
def _night_of_quarter(number: int) -> int:
    """Return the same for a quarter of an hour: noon begins one in every time zone."""
    return (datetime.fromtimestamp(number * _QUARTER_S) - _NOON).toordinal()


def parser() -> CommandParser:
    """Return the parser of the flags of `perfrun detect`."""
    made = index_parser("detect", __doc__, _EPILOG)
    made.flag("--since", "DATE|DAYSd", "report changes from then on (2026-11-01, 14d)")
    made.flag("--method", "PATTERN", "only these methods (* for any text)")
    made.flag("--metric", "PATTERN", "only these metrics (* for any text)")
    canary = "a method whose code never changes: it shows changes of the machine (repeatable)"
    made.flag("--canary", "METHOD", canary, default=[], action="append")
    made.add_clone()
    made.switch(
        "--confirm",
        "run the trials before and after each change against each other on this machine",
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
class WatchedSeries:
    """A series that is searched for changes."""

    method: str
    metric: str
    environment: str
    hardware: str
    direction: Literal["lower", "higher"]
    observations: Observations
    is_canary: bool
    subject: SeriesKey  # the key without the metric


@dataclass(frozen=True, kw_only=True)
class DetectResult:
    """The changes that were found, and the number of series that were searched."""

    series: int
    left_out: Mapping[str, int]  # by reason: short, no_direction, not_positive
    rows: tuple[ChangeRow, ...]


def detect_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun detect`: 1 when something got worse."""
    given = parser().parse_args(list(argv))
    since = parse_since(given.since, date.today())
    budget, clones = _budget(given), dict(given.clone)
    with opened(given) as store:
        bring_up_to_date(store, given)
        # A derived metric repeats what its primary one says, so it is judged only when named.
        which: Which = "all" if given.metric else "primary"
        series = store.series(metric=given.metric or None, clones=clones, which=which)
        chosen = watch_series(series, given.method, given.canary, store.address.shown)
        derived = partial(store.series, clones=clones, which="derived")
        found = find_changes(*chosen, since=since, derived=derived)
    interrupted = False
    if budget is not None:
        workspace = parse_workspace(given.workspace)
        found, interrupted = _confirmed(found, workspace, budget, trusts_imported=bool(given.trust))
    if given.format == "json":
        write_json(_document(found))
    else:
        sys.stdout.write(changes_page(found.series, found.left_out, found.rows))
    if interrupted:
        say("interrupted; the same command goes on from here")
        return Interrupted.exit_code
    return 1 if any(_alarms(row) for row in found.rows) else 0


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


def parse_since(text: str | None, today: date) -> date | None:
    """Parse `2026-11-01` or `14d`, which counts back from today; None when not given."""
    if not text:
        return None
    days = _SINCE.fullmatch(text)
    try:
        return today - timedelta(days=int(days[1])) if days else date.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(f"--since={text}: write a date as 2026-11-01, or 14d") from None


@no_collection()
def watch_series(
    found: Iterable[Series],
    method: str | None = None,
    canaries: Iterable[str] = (),
    index: str = "the index",
) -> tuple[list[WatchedSeries], Counter[str]]:
    """Return the series to search, canaries always among them, and the others by reason."""
    patterns = tuple(canaries)
    watched: list[WatchedSeries] = []
    left_out: Counter[str] = Counter()
    methods = set()
    for series in found:
        is_canary = any(fnmatchcase(series.key.method, pattern) for pattern in patterns)
        methods.add(series.key.method)
        if is_canary or not method or fnmatchcase(series.key.method, method):
            one = _watched(series, is_canary)
            if isinstance(one, str):
                left_out[one] += 1
            else:
                watched.append(one)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in methods):
            raise UsageError(f"--canary={pattern}: no such method in {index}")
    if not watched and not left_out:
        raise UsageError(f"{index} holds no results of that kind")
    return watched, left_out


def _watched(series: Series, is_canary: bool) -> WatchedSeries | str:
    from perfrun.analysis.scan import FEWEST_OBSERVATIONS

    direction = series.direction
    if direction == "none":
        return "no_direction"
    observations = observations_of(series.origins, series.values)
    if observations.values and min(observations.values) <= 0:
        return "not_positive"
    if len(observations) < FEWEST_OBSERVATIONS:
        return "short"
    return WatchedSeries(
        method=series.key.method,
        metric=series.key.metric,
        environment=series.key.environment,
        hardware=series.key.hardware,
        direction=direction,
        observations=observations,
        is_canary=is_canary,
        subject=replace(series.key, metric=""),
    )


@no_collection()
def find_changes(
    watched: Sequence[WatchedSeries],
    left_out: Mapping[str, int],
    *,
    since: date | None = None,
    alarm_since: date | None = None,
    derived: Callable[..., Iterable[Series]] | None = None,
) -> DetectResult:
    """Find the changes of all series together.

    The rows are the changes that began on `since` or later and whose alarm was on `alarm_since`
    or later. `derived(methods=...)` returns the derived series of methods, which the rows show
    with their primary metric.
    """
    from perfrun.analysis.detection import History, detect  # numpy and scipy

    histories = [
        History(
            values=one.observations.values,
            nights=one.observations.not_falling,
            direction=one.direction,
            is_canary=one.is_canary,
        )
        for one in watched
    ]
    rows: list[ChangeRow] = []
    owners: list[WatchedSeries] = []  # of each row
    first, first_alarm = (day.toordinal() if day else 0 for day in (since, alarm_since))
    for change in detect(histories, begun_since=first, alarm_since=first_alarm):
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
                environment_differences=_differences(before, after),
                before_summary=before.point.summary_path,
                after_summary=after.point.summary_path,
                evidence=frozenset(
                    observations[place].point.label for place in range(change.alarm + 1)
                ),
                alarm_label=observations[change.alarm].point.label,
            )
        )
    if derived is not None and rows:
        methods = sorted({row.method for row in rows})
        rows = _with_derived(rows, owners, derived(methods=methods))
    return DetectResult(series=len(watched), left_out=left_out, rows=tuple(rows))


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


def _differences(before: Observation, after: Observation) -> tuple[str, ...] | None:
    """Return what else differs, commits included; None where a summary is gone."""
    try:
        base, new = (read_record(Path(one.point.summary_path)) for one in (before, after))
    except (OSError, ValueError):
        return None
    return tuple(difference.text for difference in differences([base], [new]))


def _document(found: DetectResult) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    return {
        "series": found.series,
        "left_out": dict(found.left_out),
        "changes": [change_row(row) for row in found.rows],
    }
