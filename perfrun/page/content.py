"""The content of the page, made of the results that were chosen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from perfrun.changes.change_report import ChangeRow
from perfrun.changes.cuts import Cut as Step
from perfrun.changes.cuts import level_text, parts_text
from perfrun.page.change_list import Found, Place, found_changes, shown_changes
from perfrun.page.detail import MOST_FAILURES, detail_of
from perfrun.page.document import (
    ChangeShown,
    CommitShown,
    Cut,
    Detail,
    Machine,
    MethodShown,
    Page,
    PairsShown,
    SeriesShown,
)
from perfrun.page.fleet import submissions_shown
from perfrun.page.history import (
    Calendar,
    Commits,
    MethodKey,
    Trial,
    Trials,
    hardware_key,
    key_of_record,
    key_of_series,
    noise_of,
    relevance,
    trials_of,
)
from perfrun.page.material import Material, Tally, tallies_of
from perfrun.page.packed import packed, packed_flags
from perfrun.page.paired import ab_pairs, confirming_pairs
from perfrun.page.side_by_side import versus_tables
from perfrun.page.subjects import subjects_of
from perfrun.store.garbage_collection import no_collection
from perfrun.store.query import Series
from perfrun.summary.counted_trials import counted
from perfrun.summary.document import Status
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import section, text

_MOST_SERIES = 3000  # that are looked at
_MOST_DETAILS = 400  # methods
_MOST_WARNINGS = 20
_MOST_MACHINES = 50
_MOST_PAIRS = 30
_Name = tuple[MethodKey, str]  # of a history: method and metric


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user asked for besides the results."""

    title: str
    since: float = 0.0  # seconds since the epoch: what is older is not drawn
    baseline: Sequence[SummaryRecord] = ()
    found: Found | None = None  # the changes, where they have been searched already
    newest: float | None = None  # the newest trial of all, where the results are a part of them
    has_pairs: bool = True  # to find those of a confirmation, many summaries are read
    has_versus: bool = True
    has_fleet: bool = True
    labels: Collection[str] | None = None  # of the submissions to be shown; None: the newest


@dataclass(frozen=True, kw_only=True)
class _History:
    """The parts of a history, joined."""

    series: Series  # the newest part
    values: Sequence[float]  # of the trials of all parts
    calendar: Calendar


@no_collection()
def page_of(material: Material, asked: Asked) -> Page:
    """Return the content of the page."""
    records = [one for one in material.trials if one.timestamp >= asked.since]
    newest = asked.newest or max((one.timestamp for one in records), default=None)
    tallies = material.tallies or tuple(tallies_of(records))
    found = asked.found or found_changes(material, asked.since)
    commits = Commits(material.series)
    histories, left_out = _histories(
        material, trials_of(records, material.begins), asked.since, commits
    )
    by_key = _by_key(records)
    rows = _Rows(histories, by_key)
    changes = shown_changes(material, found.rows, newest or 0.0, rows.place)
    levels: dict[int, list[int]] = {}  # where the level of a series changed
    for one, _ in changes:
        if one.series is not None and one.at is not None:
            levels.setdefault(one.series, []).append(one.at)
    baseline = _baseline(asked.baseline)
    steps = {
        (one.after_execution_id, one.metric): one for one in found.cuts if one.verdict == "step"
    }
    series = tuple(
        _series(history, rows.methods[name[0]], baseline.get(name), levels.get(at, ()), name, steps)
        for at, (name, history) in enumerate(histories.items())
    )
    details = _details(by_key, rows, material)
    counts = _counts(tallies)
    methods = tuple(
        _method(key, own, counts[key], rows, series, details) for key, own in by_key.items()
    )
    pairs = _pairs(material, changes, rows) if asked.has_pairs else ()
    return Page(
        title=asked.title,
        selection=material.selection,
        made=time.time(),
        newest=newest,
        machines=tuple(_machines(tallies, records)),
        outcomes=dict(_outcomes(tallies)),
        warnings=tuple(_warnings(records, found))[:_MOST_WARNINGS],
        changes=tuple(one for one, _ in changes),
        methods=methods,
        series=series,
        commits=_commits(commits, material),
        details=tuple(details.values()),
        pairs=pairs,
        versus=versus_tables(material.workspace) if asked.has_versus else (),
        fleet=submissions_shown(material.workspace, asked.labels) if asked.has_fleet else (),
        left_out=left_out,
    )


def _by_key(records: Sequence[Trial]) -> dict[MethodKey, list[Trial]]:
    found: dict[MethodKey, list[Trial]] = {}
    for record in records:
        found.setdefault(key_of_record(record), []).append(record)
    return dict(sorted(found.items()))


def _counts(tallies: Sequence[Tally]) -> dict[MethodKey, list[Tally]]:
    found: dict[MethodKey, list[Tally]] = {}
    for one in tallies:
        found.setdefault(one.key, []).append(one)
    return found


def _outcomes(tallies: Sequence[Tally]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in tallies:
        found[one.status] += one.trials
    return found


def _histories(
    material: Material, trials: Trials, since: float, commits: Commits
) -> tuple[dict[_Name, _History], tuple[str, ...]]:
    """Return the histories of all methods, those first that stand for their method."""
    parts: dict[_Name, list[Series]] = {}
    for series in material.series:
        parts.setdefault((key_of_series(series), series.key.metric), []).append(series)
    ranked: dict[MethodKey, list[tuple[tuple[bool, int, str], _Name]]] = {}
    for name, own in parts.items():
        rank = (bool(own[-1].derived_from), relevance(name[1], own[-1].direction), name[1])
        ranked.setdefault(name[0], []).append((rank, name))
    order = sorted(
        (place, name)
        for several in ranked.values()
        for place, (_, name) in enumerate(sorted(several))
    )
    calendars: dict[tuple[Any, ...], Calendar] = {}
    found: dict[_Name, _History] = {}
    for _, name in order[:_MOST_SERIES]:
        own = sorted(parts[name], key=_newest)
        shared = (name[0], *(id(one.origins) for one in own))
        if shared not in calendars:
            rows = [material.rows(one) for one in own]
            failed = trials.failed.get(name[0], {})
            calendars[shared] = Calendar(rows, trials, failed, since, commits)
        if any(calendars[shared].members):
            values = own[0].values if len(own) == 1 else [v for one in own for v in one.values]
            found[name] = _History(series=own[-1], values=values, calendar=calendars[shared])
    more = len(order) - _MOST_SERIES
    return found, ((f"{more} of {len(order)} series",) if more > 0 else ())


def _newest(series: Series) -> float:
    return max(series.origins.times)


class _Rows:
    """Places on the page: of methods and of series."""

    def __init__(
        self,
        histories: Mapping[_Name, _History],
        by_key: Mapping[MethodKey, Sequence[Trial]],
    ) -> None:
        self._histories = tuple(histories.values())
        self.methods = {key: at for at, key in enumerate(by_key)}
        self.series: dict[MethodKey, list[int]] = {key: [] for key in by_key}
        self._of: dict[tuple[str, str, str, str], list[tuple[int, _Name, Calendar]]] = {}
        for at, (name, history) in enumerate(histories.items()):
            key, metric = name
            self.series.setdefault(key, []).append(at)
            known = self._of.setdefault((key.method, key.environment, key.hardware, metric), [])
            known.append((at, name, history.calendar))

    def place(self, row: ChangeRow) -> Place:
        """Return the place of the first point after a change."""
        for at, name, calendar in self._of.get(
            (row.method, row.environment, row.hardware, row.metric), ()
        ):
            point = calendar.places.get(row.after_execution_id)
            if point is not None:
                return Place(method=self.methods.get(name[0]), series=at, at=point)
        return Place(method=None, series=None, at=None)

    def last_values(self, series: int) -> Sequence[float]:
        """Return the values of the last two points that have one."""
        history = self._histories[series]
        values = history.calendar.medians(history.values)
        return [one for one in values if one is not None][-2:]

    def series_named(self, method: str, metric: str) -> int | None:
        """Return the first series of a method's metric."""
        named = (own[0][0] for key, own in self._of.items() if (key[0], key[3]) == (method, metric))
        return next(named, None)


def _series(
    history: _History,
    method: int,
    baseline: float | None,
    changes: Sequence[int],
    name: _Name,
    steps: Mapping[tuple[str, str], Step],
) -> SeriesShown:
    calendar, one = history.calendar, history.series
    values = calendar.medians(history.values)
    intervals = None if one.derived_from else calendar.intervals(history.values)
    return SeriesShown(
        method=method,
        metric=name[1],
        unit=one.unit,
        direction=one.direction,
        derived=bool(one.derived_from),
        n=len(values),
        time=calendar.time,
        value=packed(values),
        low=intervals[0] if intervals else None,
        high=intervals[1] if intervals else None,
        flags=packed_flags(calendar.flags),
        cuts=_with_steps(calendar, name[1], steps),
        commit=calendar.commit,
        baseline=baseline,
        noise=noise_of(values, calendar.flags, changes),
    )


def _with_steps(
    calendar: Calendar, metric: str, steps: Mapping[tuple[str, str], Step]
) -> tuple[Cut, ...]:
    """Return the cuts of a history with the step of the metric across each, where it is known."""
    texts = {cut.at: cut.text for cut in calendar.cuts}
    for (trial, of_metric), step in steps.items():
        at = calendar.places.get(trial) if of_metric == metric else None
        if at is not None:
            texts[at] = f"{texts.get(at) or parts_text(step.parts)}; {level_text(step)}"
    return tuple(Cut(at=at, text=text) for at, text in sorted(texts.items()))


def _baseline(records: Sequence[SummaryRecord]) -> dict[_Name, float]:
    """Return the median of each metric of the baseline's trials."""
    values: dict[_Name, list[SummaryRecord]] = {}
    for record in records:
        for metric in record.values:
            values.setdefault((key_of_record(record), metric), []).append(record)
    return {
        name: median([one.values[name[1]] for one in counted(own)]) for name, own in values.items()
    }


def _details(
    by_key: Mapping[MethodKey, Sequence[Trial]], rows: _Rows, material: Material
) -> dict[MethodKey, Detail]:
    newest_first = sorted(by_key, key=lambda key: by_key[key][-1].timestamp, reverse=True)
    chosen = {key: _told_of(by_key[key]) for key in newest_first[:_MOST_DETAILS]}
    wanted = [one for last, good, failed in chosen.values() for one in (last, good, *failed) if one]
    whole = {id(one): record for one, record in zip(wanted, material.records(wanted), strict=True)}
    found = {}
    for key, (last, good, failed) in chosen.items():
        record = whole[id(last)]
        if record is not None:
            others = [own for one in failed if (own := whole[id(one)])]
            before = whole[id(good)] if good else None
            found[key] = detail_of(rows.methods[key], record, before, others, material.workspace)
    return found


def _told_of(own: Sequence[Trial]) -> tuple[Trial, Trial | None, Sequence[Trial]]:
    """Return the newest trial, the last good one of another run, and the last that failed."""
    last = own[-1]
    good = next((one for one in reversed(own) if _is_good(one, last)), None)
    return last, good, [one for one in own if not one.ran][-MOST_FAILURES:]


def _is_good(one: Trial, last: Trial) -> bool:
    is_other = one.run_id != last.run_id if last.run_id else one is not last
    return is_other and one.status.value == "passed"


def _method(
    key: MethodKey,
    own: Sequence[Trial],
    counts: Sequence[Tally],
    rows: _Rows,
    series: Sequence[SeriesShown],
    details: Mapping[MethodKey, Detail],
) -> MethodShown:
    places = rows.series.get(key, [])
    main = series[places[0]] if places else None
    values = rows.last_values(places[0]) if places else ()
    is_cut = main is not None and any(cut.at == main.n - 1 for cut in main.cuts)
    before = None if is_cut or len(values) < 2 else values[-2]  # of another environment: no base
    last = own[-1]
    return MethodShown(
        name=key.method,
        environment=key.environment,
        hardware=hardware_key(key.hardware),
        hardware_text=key.hardware,
        settings=key.settings,
        main=places[0] if places else None,
        series=tuple(places),
        state=last.status.value,
        trials=sum(one.trials for one in counts),
        failed=sum(one.trials for one in counts if not Status(one.status).ran),
        last=last.timestamp,
        against_last_night=_ratio(values[-1], before) if values else None,
        against_baseline=_ratio(values[-1], main.baseline) if main and values else None,
        noise=main.noise if main else None,
        grade=last.grade,
        detail=list(details).index(key) if key in details else None,
    )


def _ratio(value: float, base: float | None) -> float | None:
    return value / base if base and base > 0 else None


def _machines(tallies: Sequence[Tally], records: Sequence[Trial]) -> Iterator[Machine]:
    newest = {record.hostname: record for record in records}
    by_host: dict[str, list[Tally]] = {}
    for one in tallies:
        by_host.setdefault(one.hostname, []).append(one)
    last = {name: max(one.last for one in own) for name, own in by_host.items()}
    for name in sorted(by_host, key=lambda name: -last[name])[:_MOST_MACHINES]:
        system = section(newest[name].context, "system") if name in newest else {}
        model, count = text(system.get("accelerator_model")), text(system.get("accelerator_count"))
        yield Machine(
            name=name or "unknown host",
            cpu=text(system.get("cpu_model")),
            accelerators=f"{count or 1} x {model}" if model else "",
            trials=sum(one.trials for one in by_host[name]),
            last=last[name],
        )


def _warnings(records: Sequence[Trial], found: Found) -> Iterator[str]:
    if found.short:
        from perfrun.analysis.scan import FEWEST_OBSERVATIONS

        many = f"{found.short} of {found.short + found.judged} series"
        yield (
            f"{many} have fewer than {FEWEST_OBSERVATIONS} nights: no change of theirs can be "
            "seen yet."
        )
    if records:
        last = [one for one in records if one.run_id == records[-1].run_id]
        disturbed = sum(one.disturbed for one in last)
        if disturbed:
            share = "most" if 2 * disturbed >= len(last) else "some"
            yield (
                f"The machine was busy during the newest run: {disturbed} of {len(last)} trials "
                f"were disturbed, so {share} of its figures say little."
            )
    kinds: dict[tuple[str, str], set[str]] = {}
    for record in records:
        own = record.subject
        kinds.setdefault((own.method, own.environment), set()).add(own.hardware)
    several = sum(len(own) > 1 for own in kinds.values())
    if several:
        yield (
            f"{several} methods ran on more than one kind of machine: each kind has a row of its "
            "own, and their figures cannot be compared."
        )


def _commits(commits: Commits, material: Material) -> tuple[CommitShown, ...]:
    subjects = subjects_of(commits.places, material.urls, material.clones, material.workspace)
    return tuple(
        CommitShown(id=commit[:12], subject=subjects.get((name, commit), "")[:120], repository=name)
        for name, commit in commits.places
    )


def _pairs(
    material: Material, changes: Sequence[tuple[ChangeShown, ChangeRow]], rows: _Rows
) -> tuple[PairsShown, ...]:
    judged = [
        (one, row.method, row.confirmation)
        for one, row in changes
        if row.confirmation and row.confirmation["pairs"]
    ]
    shown = {key.method for key in rows.methods}
    ab = (one for one in ab_pairs(material.workspace) if one.method in shown)
    found = [*confirming_pairs(material.workspace, judged), *ab]
    return tuple(
        replace(one, series=rows.series_named(one.method, one.metric))
        for one in found[:_MOST_PAIRS]
    )
