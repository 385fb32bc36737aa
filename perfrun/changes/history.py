"""`perfrun history METHOD`: show the series of a method, point by point."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.changes.beginnings import (
    Beginning,
    beginning_rows,
    beginning_text,
    beginnings,
    source_text,
)
from perfrun.changes.cuts import Cut, cut_rows, cut_text, cuts_of_series, is_shown
from perfrun.changes.observations import observations_of
from perfrun.reports.sparkline import can_show_blocks, shortened, sparkline
from perfrun.reports.table import Column, Table, aligned
from perfrun.shown import page, say, write_json
from perfrun.store.command import bring_up_to_date, index_parser, opened
from perfrun.text import rounded, scale_of

if TYPE_CHECKING:
    from perfrun.store.query import Point, Series, SeriesKey

_EPILOG = """\
Reads new summaries of the workspace first. Names may be patterns: `*` stands for anything.

Exit status: 0, or 1 when there is nothing to show. All of it is in docs/reference/store.md.
"""
_SHORT_HASH = 10  # of a commit
_FIGURES = 6
_FEWEST_BLOCKS, _MOST_BLOCKS = 3, 60  # of a sparkline
_MOST_NAMES = 8  # of the metrics that are named when one does not exist


def history_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun history`: 1 when there is nothing to show."""
    parser = index_parser("history", __doc__, _EPILOG)
    parser.add_argument("method", metavar="METHOD", help="package.module.Class.method")
    parser.flag("--metric", "NAME", "the metric to show (default wall_time)")
    parser.add_clone()
    given = parser.parse_args(list(argv))
    clones = dict(given.clone)
    with opened(given) as store:
        bring_up_to_date(store, given)
        series = store.series(given.method, given.metric or "wall_time", clones=clones)
        found = tuple(sorted(series, key=_order))  # a series that goes on another's comes after it
        others = [] if found else sorted({one.key.metric for one in store.series(given.method)})
    begun, cuts = beginnings(found), cuts_of_series(found)
    if given.format == "json":
        write_json(history_document(found, begun, cuts))
    else:
        texts = [_series_text(one, _begin_lines(one, begun, cuts)) for one in found]
        sys.stdout.write("\n".join(texts))
    if not found:
        wanted = f"no {given.metric or 'wall_time'} of {given.method} in the index"
        say(f"{wanted}{_instead(others)}")
    return 0 if found else 1


def _order(series: Series) -> tuple[str, str, float]:
    return series.key.method, series.key.metric, series.origins.rows[0].timestamp


def _instead(others: Sequence[str]) -> str:
    """Return the metrics that exist, where the one asked for does not."""
    shown = ", ".join(others[:_MOST_NAMES])
    more = ", ..." if len(others) > _MOST_NAMES else ""
    return f"; it has {shown}{more} (--metric=NAME)" if others else ""


def _begun(series: Series, begun: Mapping[SeriesKey, Beginning]) -> tuple[Beginning, ...]:
    own = begun.get(replace(series.key, metric=""))
    return (own,) if own else ()


def _cuts(series: Series, cuts: Sequence[Cut]) -> list[Cut]:
    own = replace(series.key, metric="")
    return [cut for cut in cuts if cut.subject == own and cut.metric == series.key.metric]


def _begin_lines(
    series: Series, begun: Mapping[SeriesKey, Beginning], cuts: Sequence[Cut]
) -> list[str]:
    """Return what is said of the begin of a series; a step across it says all of that."""
    shown = [cut_text(cut) for cut in _cuts(series, cuts) if is_shown(cut)]
    return shown or [beginning_text(one) for one in _begun(series, begun)]


def history_document(
    series: Sequence[Series],
    begun: Mapping[SeriesKey, Beginning],
    cuts: Sequence[Cut] | None = None,
) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    return {
        "series": [
            {
                **asdict(one.key),
                "unit": one.unit or None,
                "derived_from": one.derived_from or None,
                "direction": one.direction,
                "begun_anew": beginning_rows(_begun(one, begun)),
                **({} if cuts is None else {"cuts": cut_rows(_cuts(one, cuts))}),
                "points": [_point(point) for point in one.points],
            }
            for one in series
        ]
    }


def _point(point: Point) -> dict[str, Any]:
    values = point._asdict()
    return {key: None if value == "" else value for key, value in values.items()}


def _series_text(series: Series, begins: Sequence[str]) -> str:
    """Return the key of a series and a line for each point."""
    key = series.key
    # The whole column has one unit: that of its median.
    sizes = sorted(abs(point.value) for point in series.points)
    scale, unit = scale_of(sizes[len(sizes) // 2], series.unit or "", _FIGURES)
    facts = [key.environment, key.hardware, key.settings]
    facts += [f"driver {key.driver}"] if key.driver else []
    facts += [source_text(key.source, "source ")] if key.source else []
    columns = (
        Column(heading="time"),
        Column(heading=f"{key.metric} ({unit})" if unit else key.metric, right=True),
        *(Column(heading=name) for name in ("outcome", "grade", "commits", "label", "folder")),
    )
    rows = tuple(_cells(point, scale) for point in series.points)
    lines = aligned(Table(columns=columns, rows=rows))
    about = [key.method, "; ".join(fact for fact in facts if fact)]
    return page([*about, *begins, *_sparkline(series, scale, unit), *lines])


def _sparkline(series: Series, scale: float, unit: str) -> list[str]:
    """Return the observations as blocks, with their range; those that count, as `detect` has it."""
    values = observations_of(series.origins, series.values).values
    if len(values) < _FEWEST_BLOCKS or not can_show_blocks(sys.stdout):
        return []
    low, high = (rounded(end / scale) for end in (min(values), max(values)))
    drawn = sparkline(shortened(values, _MOST_BLOCKS))
    return [f"{drawn} {low}..{high} {unit}, {len(values)} observations".rstrip()]


def _cells(point: Point, scale: float) -> tuple[str, ...]:
    commits = " ".join(f"{name}@{c[:_SHORT_HASH]}" for name, c in sorted(point.commits.items()))
    return (
        datetime.fromtimestamp(point.timestamp).strftime("%Y-%m-%d %H:%M:%S"),
        rounded(point.value / scale, _FIGURES),
        f"{point.status}, disturbed" if point.disturbed else point.status,
        point.grade,
        commits,
        point.label,
        Path(point.summary_path).parent.name,
    )
