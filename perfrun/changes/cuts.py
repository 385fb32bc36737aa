"""Steps across a cut: the level before and after a change of what a series is measured on.

A new driver, machine, interpreter, image or module begins another series, so `detect` never
compares what lies on both sides: a step there is the environment's, not the code's. Here it is
said as that. The place is known, so a few nights on either side are enough
(`perfrun.analysis.level_shift`).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perfrun.analysis.directions import worse_or_better
from perfrun.changes.beginnings import changed_source
from perfrun.changes.watched import WatchedSeries, history_of, watched_of
from perfrun.compare.differences import differences
from perfrun.reports.figures import changed_by
from perfrun.shown import visible
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.reconstruction import reconstruct
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.text import redact_words

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch
    from perfrun.analysis.level_shift import LevelShift
    from perfrun.store.query import Series, SeriesKey

Verdict = Literal["step", "none", "not_yet_sure"]
CONFIDENCE = 0.95
_SURE = 0.01  # p-value of a step, which is asked for on every night after the cut
_VISIBLE = 0.1  # p-value from which on a step is shown as not yet sure
_FALSE = 0.05  # share of the steps of one cut, at most
_LEAST = math.log1p(0.01)  # smaller steps are not relevant
_MOST_GAP_S = 14 * 86400.0  # between the last trial before a cut and the first after it
_NAMED = ("driver", "environment", "hardware", "source")  # parts of the key, as they are named
_SAID_ELSEWHERE = ("driver", "hardware", "source", "git")  # kinds of differences
_MOST_LINES = 5
_MOST_DIFFERENCES = 5


@dataclass(frozen=True, kw_only=True)
class CutPart:
    """One part of a series' key that changed."""

    name: str  # driver, environment, hardware or source
    before: str  # '' when unknown
    after: str


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A metric's level before and after the cut at which its series began."""

    method: str
    metric: str
    environment: str  # after
    hardware: str
    date: str  # of the first night after, local time
    parts: tuple[CutPart, ...]
    nights_before: int  # that the figures rest on
    nights_after: int
    verdict: Verdict
    ratio: float | None  # level after over level before; None with too few nights
    low: float | None  # 95 % interval
    high: float | None
    direction: str | None  # worse or better; None without a step
    before_execution_id: str
    after_execution_id: str
    commits_before: Mapping[str, str]
    commits_after: Mapping[str, str]
    differences: tuple[str, ...] | None = None  # what else differs; None: not read
    command: str = ""  # runs both sides in pairs, where that can be done
    why_no_command: str = ""
    before_summary: str = ""  # path
    after_summary: str = ""
    subject: SeriesKey | None = None  # after, without the metric


@dataclass(frozen=True, kw_only=True)
class Handover:
    """Two series of a metric: the second goes on where the first ended."""

    before: WatchedSeries
    after: WatchedSeries


def handovers(several: Iterable[WatchedSeries]) -> list[Handover]:
    """Return the series that go on where another of the method and its settings ended."""
    by_name: dict[tuple[str, str, str], list[WatchedSeries]] = {}
    for one in several:
        if len(one.observations):
            name = (one.method, one.metric, one.subject.settings)
            by_name.setdefault(name, []).append(one)
    found = []
    for own in by_name.values():
        if len(own) < 2:  # nearly all; the trials are not looked at
            continue
        spans = [one.observations.span for one in own]
        for one, (begin, _) in zip(own, spans, strict=True):
            candidates = [
                (len(_parts(other.subject, one.subject)), -end, at)
                for at, (other, (_, end)) in enumerate(zip(own, spans, strict=True))
                if begin - _MOST_GAP_S <= end < begin
            ]
            if candidates:
                found.append(Handover(before=own[min(candidates)[2]], after=one))
    return found


def cuts_of_series(found: Iterable[Series]) -> tuple[Cut, ...]:
    """Judge the steps across the cuts of series; only those that have one are searched."""
    watched = [one for series in found if not isinstance(one := watched_of(series), str)]
    pairs = handovers(watched)
    if not pairs:
        return ()
    from perfrun.analysis.detection import watch_suite  # numpy and scipy

    several = tuple({id(one): one for pair in pairs for one in (pair.before, pair.after)}.values())
    return cuts_of(several, watch_suite([history_of(one) for one in several]))


def cuts_of(
    several: Sequence[WatchedSeries], watches: Sequence[SeriesWatch] = ()
) -> tuple[Cut, ...]:
    """Judge the steps across all cuts, those of one cut together, in the order of time.

    `watches` are of the first of the series, with the changes that were found in them: only the
    nights between the nearest changes and the cut count.
    """
    pairs = handovers(several)
    if not pairs:
        return ()
    known = dict(zip(map(id, several), watches, strict=False))
    cuts = []
    shifts: list[LevelShift | None] = []
    for pair in pairs:
        cut, shift = _compared(pair, known)
        cuts.append(cut)
        shifts.append(shift)
    judged = []
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, cut in enumerate(cuts):
        groups.setdefault((cut.date, cut.parts), []).append(at)
    for own in groups.values():
        judged += _judged([(cuts[at], shifts[at], pairs[at].after.direction) for at in own])
    return tuple(sorted(judged, key=_order))


def _order(cut: Cut) -> tuple[Any, ...]:
    parts = tuple((part.name, part.before, part.after) for part in cut.parts)
    return cut.date, parts, cut.method, cut.metric != WALL_TIME, cut.metric


def _compared(pair: Handover, known: Mapping[int, SeriesWatch]) -> tuple[Cut, LevelShift | None]:
    from perfrun.analysis.level_shift import FEWEST, MOST, level_shift  # numpy and scipy

    old, new = pair.before.observations, pair.after.observations
    former, later = known.get(id(pair.before)), known.get(id(pair.after))
    start = former.start if former is not None else 0
    changes = later.changes() if later is not None else ()
    end = changes[0].first_after if changes else len(new)
    before, after = old.values[start:][-MOST:], new.values[:end][:MOST]
    enough = len(before) >= FEWEST and len(after) >= FEWEST
    last, first = old[len(old) - 1], new[0]
    cut = Cut(
        method=pair.after.method,
        metric=pair.after.metric,
        environment=pair.after.environment,
        hardware=pair.after.hardware,
        date=datetime.fromtimestamp(new.span[0]).date().isoformat(),
        parts=_parts(pair.before.subject, pair.after.subject),
        nights_before=len(before),
        nights_after=len(after),
        verdict="not_yet_sure",
        ratio=None,
        low=None,
        high=None,
        direction=None,
        before_execution_id=last.point.execution_id,
        after_execution_id=first.point.execution_id,
        commits_before=last.point.commits,
        commits_after=first.point.commits,
        before_summary=last.point.summary_path,
        after_summary=first.point.summary_path,
        subject=pair.after.subject,
    )
    return cut, level_shift(before, after) if enough else None


def is_step(shift: LevelShift) -> bool:
    """Return True for the step of a single metric that is sure and relevant."""
    return shift.p_value <= _SURE and abs(shift.shift) >= _LEAST


def _judged(several: Sequence[tuple[Cut, LevelShift | None, str]]) -> list[Cut]:
    """Judge the metrics of one cut together: few of the steps that are said are false ones."""
    from perfrun.analysis.level_shift import FEWEST, MOST
    from perfrun.analysis.stats import benjamini_hochberg

    compared = [cut for cut, shift, _ in several if shift is not None]
    p_values = [shift.p_value for _, shift, _ in several if shift is not None]
    adjusted = dict(zip(map(id, compared), benjamini_hochberg(p_values), strict=True))
    found = []
    for cut, shift, better in several:
        if shift is None:
            never = cut.nights_before < FEWEST
            found.append(replace(cut, verdict="none" if never else "not_yet_sure"))
            continue
        low, high = shift.interval(CONFIDENCE)
        is_relevant = abs(shift.shift) >= _LEAST
        verdict: Verdict = "none"
        if is_step(shift) and adjusted[id(cut)] <= _FALSE:
            verdict = "step"
        elif cut.nights_after < MOST and is_relevant and shift.p_value <= _VISIBLE:
            verdict = "not_yet_sure"
        direction = worse_or_better(grew=shift.shift > 0, direction=better)
        found.append(
            replace(
                cut,
                verdict=verdict,
                ratio=math.exp(shift.shift),
                low=low,
                high=high,
                direction=None if verdict == "none" else direction,
            )
        )
    return found


def _parts(before: SeriesKey, after: SeriesKey) -> tuple[CutPart, ...]:
    return tuple(
        CutPart(name=name, before=getattr(before, name), after=getattr(after, name))
        for name in _NAMED
        if getattr(before, name) != getattr(after, name)
    )


def with_evidence(cuts: Iterable[Cut]) -> tuple[Cut, ...]:
    """Add to each step what else differs on both sides, and the command that runs them in pairs.

    It reads two summaries for each step.
    """
    return tuple(_with_evidence(cut) if cut.verdict == "step" else cut for cut in cuts)


def _with_evidence(cut: Cut) -> Cut:
    try:
        before, after = (read_record(Path(p)) for p in (cut.before_summary, cut.after_summary))
    except (OSError, ValueError):
        return replace(cut, why_no_command="its summaries are no longer there")
    every = differences([before], [after])
    found = tuple(one.text for one in every if one.kind not in _SAID_ELSEWHERE)
    command, why = _command(cut, before, after)
    return replace(cut, differences=found, command=command, why_no_command=why)


def _command(cut: Cut, before: SummaryRecord, after: SummaryRecord) -> tuple[str, str]:
    """Return the command that runs both sides in pairs, or why there is none."""
    names = {part.name for part in cut.parts}
    if "hardware" in names:
        return "", "no pairs can be run: these are two machines"
    if "driver" in names:
        return "", "no pairs can be run: a machine has one driver at a time"
    made = [reconstruct(record.document) for record in (before, after)]
    if lost := [text for one in made for text in one.lost]:
        return "", f"no pairs can be run: not on record: {lost[0]}"
    shared = [word for word in made[0].words if word in made[1].words]
    arms = [[word for word in one.words if word not in shared] for one in made]
    same_flags = made[0].benchmark_flags == made[1].benchmark_flags
    if arms[0] == arms[1] and same_flags:
        return "", "no pairs can be run: the interpreter or image was changed in place"
    rest: list[str] = []
    if same_flags and made[0].benchmark_flags:
        rest = ["--", *made[0].benchmark_flags]
    else:
        for arm, one in zip(arms, made, strict=True):
            arm += ["--", *one.benchmark_flags] if one.benchmark_flags else []
    method = f"--benchmark_methods={cut.method}"
    words = redact_words([*shared, *rest])
    if any(visible(word) != word for word in (method, *words, *arms[0], *arms[1])):
        return "", "no pairs can be run: characters that no terminal shows"
    sides = [shlex.quote(shlex.join(redact_words(arm))) for arm in arms]
    return f"perfrun ab --a={sides[0]} --b={sides[1]} {shlex.join([method, *words])}", ""


def cut_rows(cuts: Iterable[Cut]) -> list[dict[str, Any]]:
    """Return the key `cuts` of `--format=json`."""
    rows = []
    for cut in cuts:
        row = asdict(replace(cut, subject=None))
        del row["subject"], row["before_summary"], row["after_summary"]
        row["command"], row["why_no_command"] = cut.command or None, cut.why_no_command or None
        rows.append(row)
    return rows


def is_shown(cut: Cut) -> bool:
    """Return True for a step, and for one that more nights may show."""
    return cut.verdict != "none"


def parts_text(parts: Iterable[CutPart]) -> str:
    """Return all parts that changed: `driver 570 -> 580; python3.11 -> python3.12`."""
    return "; ".join(_part_text(part) for part in parts)


def _part_text(part: CutPart) -> str:
    if part.name == "source":
        return changed_source(part.before, part.after)
    if part.name == "driver":
        return f"driver {part.before or 'none'} -> {part.after or 'none'}"
    between = ", " if part.name == "hardware" else " "
    before, after = part.before.split(between), part.after.split(between)
    gone = between.join(word for word in before if word not in after)
    come = between.join(word for word in after if word not in before)
    if part.name == "hardware":
        return f"hardware {gone or 'unknown'} -> {come or 'unknown'}"
    whole = not gone or not come or len(before) != len(after)
    return f"{part.before} -> {part.after}" if whole else f"{gone} -> {come}"


def level_text(cut: Cut) -> str:
    """Return `level -14 % (-15 % to -12 %), better`, or why that is not known yet."""
    from perfrun.analysis.level_shift import FEWEST

    if cut.ratio is None or cut.low is None or cut.high is None:
        more = FEWEST - cut.nights_after
        nights = f"{cut.nights_after} night{'s' * (cut.nights_after != 1)}"
        return f"level not yet sure: {nights} since, {more} more needed"
    figures = f"{changed_by(cut.ratio)} ({changed_by(cut.low)} to {changed_by(cut.high)})"
    if cut.verdict == "step":
        return f"level {figures}, {cut.direction}"
    return f"level not yet sure: {figures}, {cut.nights_after} nights"


def cut_blocks(cuts: Iterable[Cut]) -> list[list[str]]:
    """Return a block for each cut: what changed, the methods with a step, what can be done."""
    groups: dict[tuple[Any, ...], list[Cut]] = {}
    for cut in cuts:
        if is_shown(cut):
            groups.setdefault((cut.date, cut.parts), []).append(cut)
    return [_block(own) for own in groups.values()]


def _block(own: Sequence[Cut]) -> list[str]:
    first = own[0]
    lines = [f"{first.date}  series begin anew: {parts_text(first.parts)}"]
    told = [cut for cut in own if cut.ratio is not None]
    lines += [f"  {cut.metric} of {cut.method}: {level_text(cut)}" for cut in told]
    if young := [cut for cut in own if cut.ratio is None]:
        what = f"  {level_text(young[0])}: {young[0].metric} of {young[0].method}"
        lines.append(what + (f" and {len(young) - 1} more" if len(young) > 1 else ""))
    steps = [cut for cut in own if cut.verdict == "step"]
    lines += [f"  {_cause(first)}"] if steps else []
    for differing in {cut.differences: None for cut in steps if cut.differences}:
        shown = "; ".join(differing[:_MOST_DIFFERENCES])
        more = len(differing) - _MOST_DIFFERENCES
        lines.append(f"  differs: {shown}{f'; and {more} more' if more > 0 else ''}")
    commands = {cut.method: cut.command or cut.why_no_command for cut in steps}
    for text in dict.fromkeys(text for text in commands.values() if text):
        is_command = any(cut.command == text for cut in steps)
        lines.append(f"  confirm with: {text}" if is_command else f"  {text}")
    return lines


def _cause(cut: Cut) -> str:
    """Return whose change it is: the environment's alone, or perhaps the code's, too."""
    names = sorted(cut.commits_before.keys() | cut.commits_after.keys())
    moved = [
        f"{name} {cut.commits_before.get(name, 'none')[:10]} -> "
        f"{cut.commits_after.get(name, 'none')[:10]}"
        for name in names
        if cut.commits_before.get(name) != cut.commits_after.get(name)
    ]
    if moved:
        return f"the code changed in the same night, too: {'; '.join(moved)}"
    if names:
        return "no commit changed: the step is not the code's"
    return "no checkout is recorded: whether the code changed, too, is not known"


def cut_lines(cuts: Iterable[Cut], since: date | None = None) -> list[str]:
    """Return a line for each method with a step across a cut of `since` or later."""
    oldest = since.isoformat() if since else ""
    shown = [cut for cut in cuts if is_shown(cut) and cut.date >= oldest]
    firsts = {(cut.method, cut.environment, cut.hardware, cut.date): cut for cut in shown[::-1]}
    ordered = sorted(firsts.values(), key=lambda cut: (cut.verdict != "step", _order(cut)))
    lines = [
        f"{parts_text(cut.parts)} since {cut.date}: {cut.metric} of {cut.method}: {level_text(cut)}"
        + (f"; {_cause(cut)}" if cut.verdict == "step" else "")
        for cut in ordered[:_MOST_LINES]
    ]
    more = len(ordered) - len(lines)
    return [*lines, f"and {more} more methods whose series begin anew"] if more > 0 else lines


def cut_text(cut: Cut) -> str:
    """Return what the later series says of its beginning."""
    return f"begins on {cut.date} with {parts_text(cut.parts)}: {level_text(cut)}"


def settled(cut: Cut) -> bool:
    """Return True when the size of the step, or that there is none, rests on enough nights."""
    return cut.ratio is not None and cut.verdict != "not_yet_sure"
