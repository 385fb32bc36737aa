"""The suspects of a suite: series whose last observations lie far out, and the pairs they have.

They are kept in `<workspace>/suspects.json` from night to night, with the false alarms that the
year still allows. A trial can write there, so the file is read as a stranger's: what is not as it
should be is left out, and no more error or pairs come of it than a real file could hold.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from perfrun.analysis.directions import worse_or_better
from perfrun.changes.watched import WatchedSeries
from perfrun.summary.result_folder import write_whole
from perfrun.text import counted
from perfrun.untrusted import read_file

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch
    from perfrun.analysis.screening import Deviation
    from perfrun.analysis.stats import Floats

FILE = "suspects.json"
MOST_PAIRS = 120  # of a suspect
FORGOTTEN_DAYS = 7  # after which one that lies far out no more is dropped
KEPT_DAYS = 60  # that a confirmed one is known, so that its alarm is not raised twice
_MOST_BYTES = 4 * 2**20
_MOST_KEPT = 500  # of open and of confirmed suspects each
_LARGEST_RATIO = 50.0  # logarithm
MOST_NIGHTS = 20  # whose time for pairs is kept: one that was killed goes on
_MOST_NAMES = 7  # of a series' key
_FURTHER = 5  # nights before the side with which a question was refuted, when it is asked again
SeriesName = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SuspectSeries:
    """A series whose level may have changed, and the pairs that were run to find out."""

    series: SeriesName  # method, metric, environment, hardware, driver, source, settings
    direction: str  # worse or better
    first_day: int  # ordinal of the night that seems to be the first at the new level
    before_day: int  # of the last night that is surely at the level before
    after_day: int  # of the night that made it a suspect
    before_summary: str  # path
    after_summary: str
    before_execution_id: str
    after_execution_id: str
    shift: float  # logarithm
    noise: float
    odds: float  # by the nights alone
    seen_day: int  # the last night in which it was a suspect
    odds_since: float = 0.0  # by the nights after the new side of the question before this one
    alpha: float = 0.0  # its share of the allowed false alarms; 0 without, or given back
    counted_from: int = 0  # number of pairs when it got its alpha
    asked_odds: float = 0.0  # before the first pair
    pairs: tuple[float, ...] = ()  # logarithms of the ratios
    nights: int = 0  # in which pairs were run
    asked_in: str = ""  # the last of them
    why_not: str | None = None  # the reason why it cannot be run again
    # Of a confirmed one:
    told_day: int = 0
    told_in: str = ""  # label of the night
    commits_before: Mapping[str, str] = field(default_factory=dict)
    commits_after: Mapping[str, str] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    not_reconstructed: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        return self.series[0]

    @property
    def metric(self) -> str:
        return self.series[1]

    @property
    def log_pairs(self) -> float:
        """The evidence of the pairs, as a logarithm."""
        from perfrun.analysis.screening import log_evidence  # numpy

        return log_evidence(self.pairs, self.shift, self.noise)

    @property
    def evidence(self) -> float:
        """The evidence of the pairs since it got its alpha, as a logarithm."""
        from perfrun.analysis.screening import log_evidence  # numpy

        before = log_evidence(self.pairs[: self.counted_from], self.shift, self.noise)
        return self.log_pairs - before

    @property
    def chance(self) -> float:
        """The probability of the change, by nights and pairs together."""
        from perfrun.analysis.screening import chance, log_belief

        return chance(self.odds, log_belief(self.pairs, self.shift, self.noise))

    @property
    def is_proven(self) -> bool:
        from perfrun.analysis.screening import is_proven

        return self.alpha > 0 and is_proven(self.pairs, self.shift, self.evidence, self.alpha)

    @property
    def goes_on(self) -> bool:
        """True when further pairs are worth their time."""
        from perfrun.analysis.screening import is_worth_a_pair, log_growth

        if self.why_not is not None or len(self.pairs) >= MOST_PAIRS:
            return False
        growth = log_growth(self.shift, self.noise)
        return is_worth_a_pair(self.chance, self.seen_day - self.first_day, growth)


@dataclass(frozen=True, kw_only=True)
class SuspectState:
    """All that is kept from night to night."""

    open: tuple[SuspectSeries, ...] = ()
    confirmed: tuple[SuspectSeries, ...] = ()
    allowed: float | None = None  # false alarms that are saved up; None for a new suite
    at: float = 0.0  # seconds since the epoch, of `allowed`
    spent_s: Mapping[str, float] = field(default_factory=dict)  # on pairs, by label of the night


def name_of(one: WatchedSeries) -> SeriesName:
    """Return what identifies a series in the file."""
    key = one.subject
    parts = (key.method, one.metric, key.environment, key.hardware, key.driver)
    return (*parts, key.source, key.settings)


def read_state(
    workspace: Path, notify: Callable[[str], object] = lambda _text: None
) -> SuspectState:
    """Read the file; a new state where there is none that can be used.

    `notify` is told in one line of what is left out because perfrun does not write such a thing.
    """
    import msgspec  # only in a night that screens

    path = workspace / FILE
    anew = f"{path}: is not as perfrun writes it; its suspects begin anew"
    try:
        data = read_file(path, _MOST_BYTES)
        found = msgspec.json.decode(data, type=SuspectState)
    except FileNotFoundError:
        return SuspectState()
    except (OSError, ValueError, msgspec.DecodeError, RecursionError):
        notify(anew)
        return SuspectState()
    allowed = found.allowed
    spent = all(math.isfinite(s) and s >= 0 for s in found.spent_s.values())
    is_sane = math.isfinite(found.at) and spent
    if not is_sane or (allowed is not None and not 0 <= allowed <= 1):
        notify(anew)
        return SuspectState()
    open_ = tuple(filter(_is_sane, found.open))[:_MOST_KEPT]
    told = tuple(one for one in found.confirmed if one.told_day > 0 and _is_sane(one))
    kept = replace(found, open=open_, confirmed=told[-_MOST_KEPT:])
    lost = len(found.open) + len(found.confirmed) - len(kept.open) - len(kept.confirmed)
    if lost:
        verb = "is" if lost == 1 else "are"
        notify(f"{path}: {counted(lost, 'suspect')} in it cannot be of perfrun and {verb} left out")
    return kept


def _is_sane(one: SuspectSeries) -> bool:
    from perfrun.analysis.screening import FALSE_ALARMS_A_YEAR, MOST_ODDS

    days = (one.first_day, one.before_day, one.after_day, one.seen_day)
    last = date.max.toordinal()
    return (
        len(one.series) == _MOST_NAMES
        and one.direction in ("worse", "better")
        and all(0 < day <= last for day in days)
        and 0 <= one.told_day <= last
        and 0 < abs(one.shift) <= _LARGEST_RATIO
        and 0 < one.noise <= _LARGEST_RATIO
        and 0 < one.odds <= MOST_ODDS
        and 0 <= one.alpha <= FALSE_ALARMS_A_YEAR
        and 0 <= one.asked_odds <= MOST_ODDS
        and len(one.pairs) <= MOST_PAIRS
        and 0 <= one.odds_since <= MOST_ODDS
        and 0 <= one.counted_from <= len(one.pairs)
        and all(abs(ratio) <= _LARGEST_RATIO for ratio in one.pairs)
        # Only one whose pairs refute it gives its error back.
        and (one.alpha > 0 or not one.pairs or one.log_pairs < 0)
    )


def write_state(workspace: Path, state: SuspectState) -> None:
    """Write the file whole. Raises OSError."""
    kept = replace(state, open=state.open[:_MOST_KEPT], confirmed=state.confirmed[-_MOST_KEPT:])
    write_whole(workspace / FILE, json.dumps(asdict(kept)) + "\n")


@dataclass(frozen=True, kw_only=True)
class Screened:
    """A series whose last observations lie far out."""

    one: WatchedSeries
    found: Deviation
    start: int  # place of its first observation at the level of now


def screen(
    watched: Sequence[WatchedSeries], starts: Sequence[int], labels: frozenset[str] | None = None
) -> list[Screened]:
    """Return the suspects among the series, without what a night did to all of them alike.

    `starts` are the places at which their levels of now begin. With `labels`, only series whose
    last observation has one of them are screened.
    """
    import numpy as np

    from perfrun.analysis.screening import (
        FEWEST_BEFORE,
        LEVEL_BEFORE,
        MOST_BEFORE,
        MOST_RECENT,
        common_factor,
        deviations,
        levels_before,
    )

    last = MOST_BEFORE + MOST_RECENT
    logs, days = [], []
    off: dict[int, list[float]] = {}
    for one, start in zip(watched, starts, strict=True):
        # What nights have in common is told by all series, also those that have begun anew.
        begin = max(0, len(one.observations) - last - LEVEL_BEFORE)
        whole = np.log(np.asarray(one.observations.values[begin:], dtype=np.float64))
        whole_days = one.observations.not_falling[begin:]
        even = _without_step(whole, max(0, start - begin), LEVEL_BEFORE)
        of_day: dict[int, list[float]] = {}  # several runs of a night are one voice
        for place, level in enumerate(levels_before(even), start=FEWEST_BEFORE):
            of_day.setdefault(whole_days[place], []).append(float(even[place] - level))
        for day, runs in of_day.items():
            off.setdefault(day, []).append(float(np.median(runs)))
        own = max(start, len(one.observations) - last) - begin
        logs.append(whole[own:])
        days.append(whole_days[own:])
    factors = {day: common_factor(several) for day, several in off.items()}
    by_length: dict[int, list[int]] = {}  # those of one length are screened together
    for at, one in enumerate(watched):
        if one.is_canary or not len(logs[at]):
            continue
        last_label = one.observations[len(one.observations) - 1].point.label
        if labels is None or last_label in labels:
            by_length.setdefault(len(logs[at]), []).append(at)
    found: dict[int, Deviation] = {}
    for several in by_length.values():
        rows = np.array([logs[at] - [factors.get(day, 0.0) for day in days[at]] for at in several])
        for at, deviation in zip(several, deviations(rows), strict=True):
            if deviation is not None and deviation.is_suspect:
                found[at] = deviation
    return [Screened(one=watched[at], found=found[at], start=starts[at]) for at in sorted(found)]


def _without_step(logs: Floats, at: int, width: int) -> Floats:
    """Return the observations with those before a known step put to the level behind it.

    Else each series that made the step would count as off for as long as a level takes to follow,
    and where most of a suite made it, those that did not would seem to be off.
    """
    import numpy as np

    if not 0 < at < len(logs):
        return logs
    step = float(np.median(logs[at : at + width]) - np.median(logs[max(0, at - width) : at]))
    return np.concatenate((logs[:at] + step, logs[at:]))


def level_starts(
    watched: Sequence[WatchedSeries],
    watches: Sequence[SeriesWatch],
    confirmed: Collection[SuspectSeries],
) -> list[int]:
    """Return where the level of now begins in each series: after its last change."""
    since: dict[SeriesName, int] = {}
    for change in confirmed:
        # By its new side, which is surely at the new level; its first night is an estimate.
        since[change.series] = max(change.after_day, since.get(change.series, 0))
    starts = []
    for one, watch in zip(watched, watches, strict=True):
        day = since.get(name_of(one), 0)
        starts.append(max(watch.start, bisect_left(one.observations.not_falling, day)))
    return starts


def suspect_of(screened: Screened, known: SuspectSeries | None = None) -> SuspectSeries:
    """Return the question that the last observations of a series raise.

    When pairs have refuted the `known` one, and the nights raise it again, its side before may have
    been at the new level, as an outlier hides: an earlier one is taken.
    """
    made = _suspect_of(screened, known)
    if known is None or _is_other(known, made) or not _is_raised_again(known, made):
        return made
    return _suspect_of(screened, known, before_day=known.before_day)


def _suspect_of(
    screened: Screened, known: SuspectSeries | None, before_day: int | None = None
) -> SuspectSeries:
    one, found = screened.one, screened.found
    observations = one.observations
    last = len(observations) - 1
    good_at = last - found.since_good
    if before_day is not None:  # no later than some nights before that day
        good_at = min(good_at, bisect_left(observations.not_falling, before_day) - _FURTHER)
    good = observations[max(screened.start, good_at)]
    new = observations[last]
    first = observations[last - found.recent + 1]
    return SuspectSeries(
        series=name_of(one),
        direction=worse_or_better(grew=found.shift > 0, direction=one.direction),
        first_day=first.day,
        before_day=good.day,
        after_day=new.day,
        before_summary=good.point.summary_path,
        after_summary=new.point.summary_path,
        before_execution_id=good.point.execution_id,
        after_execution_id=new.point.execution_id,
        shift=found.shift,
        noise=found.noise,
        odds=found.odds,
        odds_since=0.0 if known is None else _odds_since(screened, known.after_day),
        seen_day=new.day,
        commits_before=good.point.commits,
        commits_after=new.point.commits,
    )


def _odds_since(screened: Screened, day: int) -> float:
    """Return the odds that the level changed after this day."""
    days = screened.one.observations.not_falling
    return screened.found.odds_within(len(days) - bisect_right(days, day))


def merged(known: SuspectSeries | None, new: SuspectSeries) -> SuspectSeries:
    """Return the suspect of tonight: the known one with its pairs, if it is the same question."""
    if known is None or _is_other(known, new) or _is_raised_again(known, new):
        return new
    return replace(known, seen_day=new.seen_day, odds=new.odds)


def _is_other(known: SuspectSeries, new: SuspectSeries) -> bool:
    """Return True when the new one is another change, behind the known one or the other way."""
    return known.direction != new.direction or new.first_day > known.after_day


def _is_raised_again(known: SuspectSeries, new: SuspectSeries) -> bool:
    """Return True when the nights raise a question again that its pairs have refuted.

    They speak for it much more than then, or those since then do so by themselves.
    """
    from perfrun.analysis.screening import is_asked_again, is_asked_anew, log_belief

    if new.after_day <= known.after_day:
        return False
    belief = log_belief(known.pairs, known.shift, known.noise)
    return is_asked_again(belief, known.asked_odds, new.odds) or is_asked_anew(
        belief, new.odds, new.odds_since
    )
