"""What `perfrun detect --screen` says of each suspect: its evidence, and what its pairs cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.changes.suspects import (
    SuspectSeries,
    level_starts,
    name_of,
    read_state,
    screen,
    suspect_of,
)
from perfrun.changes.watched import WatchedSeries
from perfrun.reports.figures import changed_by
from perfrun.shown import say
from perfrun.summary.record import read_record
from perfrun.summary.series_identity import is_number, section
from perfrun.text import duration

if TYPE_CHECKING:
    from perfrun.analysis.changepoint import SeriesWatch

_MOST_ROWS = 20  # of the text; the document has all


@dataclass(frozen=True, kw_only=True)
class SuspectRow:
    """One series whose last observations lie far out."""

    method: str
    metric: str
    environment: str
    hardware: str
    ratio: float  # of the last observations over the level before
    direction: str
    night: str  # the first that lies out
    nights: int  # the last ones that do, 1 to 28
    p_value: float  # of the nights alone; not corrected
    chance: float  # that the level changed, by nights and pairs together
    pairs: int  # that nights have run so far
    more_pairs: int  # that are needed if the change is there
    pair_s: float | None  # duration of a pair; None where the summaries do not say


def suspect_rows(
    watched: Sequence[WatchedSeries], watches: Sequence[SeriesWatch], workspace: Path
) -> tuple[SuspectRow, ...]:
    """Return the suspects that a night would ask, or has asked; the most probable change first."""
    state = read_state(workspace, say)
    starts = level_starts(watched, watches, state.confirmed)
    known = {one.series: one for one in state.open}
    rows = []
    for screened in screen(watched, starts):
        new = suspect_of(screened)
        before = known.get(name_of(screened.one))
        is_same = before is not None and before.direction == new.direction
        one = before if before is not None and is_same else new
        if one.goes_on or one.pairs or one.why_not is not None:
            rows.append(_row(one, screened.found.recent, screened.found.p_value))
    return tuple(sorted(rows, key=lambda row: -row.chance))


def _row(one: SuspectSeries, recent: int, p_value: float) -> SuspectRow:
    from perfrun.analysis.screening import Pot, log_growth

    alpha = one.alpha or Pot().spent(one.odds)[0]
    missing = max(0.0, -math.log(alpha) - (one.evidence if one.alpha else 0.0))
    return SuspectRow(
        method=one.method,
        metric=one.metric,
        environment=one.series[2],
        hardware=one.series[3],
        ratio=math.exp(one.shift),
        direction=one.direction,
        night=date.fromordinal(one.first_day).isoformat(),
        nights=recent,
        p_value=p_value,
        chance=one.chance,
        pairs=len(one.pairs),
        more_pairs=math.ceil(missing / log_growth(one.shift, one.noise)),
        pair_s=pair_seconds(one),
    )


def pair_seconds(one: SuspectSeries) -> float | None:
    """Return how long both trials took in their nights; None where that is not known."""
    total = 0.0
    for path in (one.before_summary, one.after_summary):
        try:
            document = read_record(Path(path)).document
        except (OSError, ValueError):
            return None
        spent = section(section(document, "perfrun"), "usage").get("elapsed_s")
        if not is_number(spent) or spent <= 0:
            return None
        total += float(spent)
    return total


def suspect_lines(rows: Sequence[SuspectRow]) -> list[str]:
    """Return a line for each suspect."""
    if not rows:
        return ["No suspects: no series' last nights lie far out."]
    lines = []
    for row in rows[:_MOST_ROWS]:
        cost = "" if row.pair_s is None else f", {duration(row.more_pairs * row.pair_s, 2)}"
        so_far = f", {row.pairs} pairs so far" if row.pairs else ""
        nights = f"{row.nights} night{'s' * (row.nights != 1)}"
        lines.append(
            f"Suspect: {row.metric} of {row.method} {changed_by(row.ratio)} since {row.night} "
            f"({row.direction}), {nights}, p {row.p_value:.1g}{so_far}; about {row.more_pairs} "
            f"pairs would confirm it{cost}"
        )
    if len(rows) > _MOST_ROWS:
        lines.append(f"and {len(rows) - _MOST_ROWS} more suspects (--format=json has all)")
    return lines


def suspect_documents(rows: Sequence[SuspectRow]) -> list[dict[str, Any]]:
    """Return the key `suspects` of `perfrun detect --screen --format=json`."""
    return [asdict(row) for row in rows]
