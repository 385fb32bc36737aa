"""What a history tells before its rules decide: shifts not yet sure, changes that would be seen.

The nightly report uses the same texts as `perfrun detect`. Nights are observations, as in `detect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

from perfrun.analysis.directions import worse_or_better
from perfrun.changes.watched import ChosenSeries, WatchedSeries, history_of
from perfrun.reports.figures import changed_by, percent
from perfrun.summary.metrics import WALL_TIME

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch
    from perfrun.store.query import SeriesKey

WANTED = 0.05  # the change that people ask about
YOUNG_NIGHTS = 30  # a history with fewer tells what it could show
MOST_SHIFTS = 5  # that are shown, and for which nights are tried
_MOST_YOUNG = 5
_Row = TypeVar("_Row", "ShiftRow", "SensitivityRow")


@dataclass(frozen=True, kw_only=True)
class ShiftRow:
    """A shift of level that the rules do not call yet."""

    method: str
    metric: str
    environment: str
    hardware: str
    ratio: float
    direction: str  # worse or better
    night: str  # the evening of the first night at the new level, as a date
    nights: int  # at the new level
    more_nights: int | None  # until the rules call it, if it goes on; None: more than 21
    more_nights_low: int | None  # the same in a tenth of the continuations that were tried
    more_nights_high: int | None  # and in nine tenths of them


@dataclass(frozen=True, kw_only=True)
class SensitivityRow:
    """The changes that a young history of one metric can show. Shares are ratios less one."""

    method: str
    metric: str
    environment: str
    hardware: str
    nights: int
    noise: float  # standard deviation between nights
    noise_low: float  # its 90 % interval
    noise_high: float
    wait_nights: int  # until a change can begin that is seen at all
    seen: float  # lasting change that is seen within 14 nights in nine of ten cases
    wanted: float  # a smaller one
    more_nights: int | None  # until that is seen; None: with this noise it never is


def outlook_of(
    chosen: ChosenSeries, watches: Sequence[SeriesWatch]
) -> tuple[tuple[ShiftRow, ...], tuple[SensitivityRow, ...]]:
    """Return the largest shifts that the rules do not call yet, and what young histories can show.

    `watches` are of the watched series.
    """
    from perfrun.analysis.changepoint import SeriesWatch

    several = (*chosen.watched, *chosen.short)
    of_short = SeriesWatch.all_of([one.observations.values for one in chosen.short])[0]
    whole = (*watches, *of_short)
    return _shifts_of(several, whole), _young_of(several, whole)


def _shifts_of(
    several: Sequence[WatchedSeries], watches: Sequence[SeriesWatch]
) -> tuple[ShiftRow, ...]:
    from perfrun.analysis.outlook import unsure_shifts

    found = unsure_shifts([history_of(one) for one in several], watches, MOST_SHIFTS)
    return tuple(
        ShiftRow(
            method=one.method,
            metric=one.metric,
            environment=one.environment,
            hardware=one.hardware,
            ratio=shift.ratio,
            direction=worse_or_better(grew=shift.ratio > 1, direction=one.direction),
            night=date.fromordinal(one.observations[shift.first_after].day).isoformat(),
            nights=shift.after,
            more_nights=shift.needed,
            more_nights_low=shift.needed_low,
            more_nights_high=shift.needed_high,
        )
        for shift, one in ((shift, several[shift.series]) for shift in found)
    )


def _young_of(
    several: Sequence[WatchedSeries], watches: Sequence[SeriesWatch]
) -> tuple[SensitivityRow, ...]:
    """Return the changes that histories of few nights could show, those of most noise first."""
    from perfrun.analysis.outlook import sensitivity

    rows = []
    for one, watch in zip(several, watches, strict=True):
        if len(watch) >= YOUNG_NIGHTS:
            continue
        known = sensitivity(watch, len(several), WANTED)
        if known is not None:
            rows.append(
                SensitivityRow(
                    method=one.method,
                    metric=one.metric,
                    environment=one.environment,
                    hardware=one.hardware,
                    nights=known.nights,
                    noise=known.noise,
                    noise_low=known.noise_low,
                    noise_high=known.noise_high,
                    wait_nights=known.wait,
                    seen=known.seen,
                    wanted=known.wanted,
                    more_nights=known.more,
                )
            )
    return tuple(sorted(rows, key=lambda row: (-row.noise, row.method, row.metric)))


def outlook_lines(
    chosen: ChosenSeries, watches: Sequence[SeriesWatch], current: Iterable[SeriesKey]
) -> list[str]:
    """Return all lines about the current series. `watches` are of the watched, with changes."""
    keys = {replace(key, metric="") for key in current}
    watched = [
        (one, watch)
        for one, watch in zip(chosen.watched, watches, strict=True)
        if one.subject in keys
    ]
    own = replace(
        chosen,
        watched=[one for one, _ in watched],
        short=[one for one in chosen.short if one.subject in keys],
    )
    shifts, young = outlook_of(own, [watch for _, watch in watched])
    return [*shift_lines(shifts), *sensitivity_lines(young)]


def shift_rows(rows: Sequence[ShiftRow]) -> list[dict[str, Any]]:
    """Return the key `not_yet_sure` of `--format=json`."""
    return [asdict(row) for row in rows]


def sensitivity_rows(rows: Sequence[SensitivityRow]) -> list[dict[str, Any]]:
    """Return the key `young` of `--format=json`."""
    return [asdict(row) for row in rows]


def shift_lines(rows: Sequence[ShiftRow]) -> list[str]:
    """Return a line for each method with a shift, the largest first."""
    rows = _one_a_method(rows)
    heads = ["Largest shift not yet sure", *["Not yet sure"] * len(rows)]
    return [f"{head}: {_shift(row)}" for head, row in zip(heads, rows, strict=False)]


def _shift(row: ShiftRow) -> str:
    what = f"{row.metric} of {row.method} {changed_by(row.ratio)} since {row.night}"
    more = f"{_more(row)} needed if it goes on"
    return f"{what} ({row.direction}), {_nights(row.nights)}, {more}"


def _more(row: ShiftRow) -> str:
    if row.more_nights is None:
        return "more than 21 more"
    low, high = row.more_nights_low or row.more_nights, row.more_nights_high
    likely = f" ({low} to {high})" if high is not None and high > low else ""
    return f"about {row.more_nights} more{likely}"


def sensitivity_lines(rows: Sequence[SensitivityRow]) -> list[str]:
    """Return a line for each method with few nights; those beyond a few are counted."""
    rows = _one_a_method(sorted(rows, key=lambda row: row.metric != WALL_TIME))
    lines = [f"{row.metric} of {row.method}: {_sensitivity(row)}" for row in rows[:_MOST_YOUNG]]
    more = len(rows) - len(lines)
    return [*lines, f"and {more} more methods with few nights"] if more else lines


def _sensitivity(row: SensitivityRow) -> str:
    noise = f"noise between nights {percent(row.noise)}, {percent(row.noise_high)} at most"
    begin = f"after {row.wait_nights} more, " if row.wait_nights else ""
    seen = f"{_nights(row.nights)}: {begin}changes above {percent(row.seen)} would be seen"
    if row.more_nights == 0:
        later = f"about {percent(row.wanted)} for the noise so far"
    elif row.more_nights is None:
        later = f"{percent(row.wanted)} is below this noise: run more trials a night"
    else:
        later = f"about {_nights(row.more_nights, 'more ')} for {percent(row.wanted)}"
    return f"{seen} ({noise}); {later}"


def _nights(count: int, more: str = "") -> str:
    return f"{count} {more}night{'s' * (count != 1)}"


def _one_a_method(rows: Sequence[_Row]) -> list[_Row]:
    """Return the first row of each method on each machine."""
    found: dict[tuple[str, ...], _Row] = {}
    for row in rows:
        found.setdefault((row.method, row.environment, row.hardware), row)
    return list(found.values())
