"""Tonight's figures beside those of the nights before: ratios, the usual level, a sparkline.

The figures of earlier nights are those of their reports, so nothing else has to be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfrun.changes.observations import night_of
from perfrun.nightly.night_state import Earlier
from perfrun.nightly.report import (
    MethodKey,
    MethodReport,
    NightFigure,
    NightReport,
    Trend,
    setting_of,
)
from perfrun.summary.series_identity import is_number

MOST_NIGHTS = 14  # in the median and, with tonight, in the history
_FEWEST_FOR_SPREAD = 3
_NAMED = 3

_Methods = Mapping[MethodKey, Mapping[str, Any]]
_Slots = Sequence[Mapping[str, Any] | None]  # reports of nights, None for a date without one


def with_trends(report: NightReport, earlier: Earlier) -> NightReport:
    """Put each primary figure beside those of the nights before, and say which begin anew.

    `earlier` holds the nights before with their JSON reports, the newest first.
    """
    slots = _slots(report, earlier)
    by_method = [_by_method(document) for document in slots]
    methods = tuple(_with_trend(method, slots, by_method) for method in report.methods)
    anew = [method.name for method in methods if _begins_anew(method, by_method)]
    notes = report.notes
    if anew:
        more = f" and {len(anew) - _NAMED} more" if len(anew) > _NAMED else ""
        why = (
            "the benchmark's module, its settings or the machine are not those of the night before"
        )
        text = f"Figures that begin anew, because {why}: {', '.join(anew[:_NAMED])}{more}."
        notes = (*notes, text)
    return replace(report, methods=methods, notes=notes)


def _slots(report: NightReport, earlier: Earlier) -> _Slots:
    """Return the reports of the nights before, the oldest first, with None for a missing date."""
    slots: list[Mapping[str, Any] | None] = []
    after = night_of(report.begun)
    for night, document in earlier:
        date = night_of(night.begun)
        slots += [None] * (after - date - 1)
        slots.append(document)
        after = date
    return slots[:MOST_NIGHTS][::-1]


def _by_method(document: Mapping[str, Any] | None) -> _Methods:
    found: dict[MethodKey, Mapping[str, Any]] = {}
    for method in _objects(document or {}, "methods"):
        name, environment = method.get("method"), method.get("environment")
        if isinstance(name, str) and isinstance(environment, str):
            found.setdefault((environment, name, setting_of(method)), method)
    return found


def _objects(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list: the report may be of another version of perfrun."""
    found = document.get(key) if isinstance(document, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _with_trend(
    method: MethodReport,
    slots: _Slots,
    by_method: Sequence[_Methods],
) -> MethodReport:
    before = [_same(method, found) for found in by_method]
    figures = []
    for figure in method.figures:
        if figure.derived_from:
            figures.append(figure)
            continue
        nights = [_figure(one, figure) for one in before]
        figures.append(replace(figure, trend=_trend(figure, nights, slots)))
    return replace(method, figures=tuple(figures))


def _same(method: MethodReport, found: _Methods) -> Mapping[str, Any] | None:
    """Return the method in an earlier night; None when that has measured something else."""
    earlier = found.get(method.key)
    return None if earlier is None or _differs(method, earlier) else earlier


def _differs(method: MethodReport, earlier: Mapping[str, Any]) -> bool:
    known = earlier.get("series")
    return bool(known and method.series and known != method.series)


def _begins_anew(method: MethodReport, by_method: Sequence[_Methods]) -> bool:
    for found in reversed(by_method):
        earlier = found.get(method.key)
        if earlier is not None and earlier.get("series"):
            return _differs(method, earlier)
    return False


def _figure(earlier: Mapping[str, Any] | None, figure: NightFigure) -> Mapping[str, Any] | None:
    """Return the figure of an earlier night; None without one that is a number of the same unit."""
    for one in _objects(earlier or {}, "figures"):
        if one.get("metric") == figure.metric and one.get("unit") == figure.unit:
            return one if is_number(one.get("median")) else None
    return None


def _trend(figure: NightFigure, nights: Sequence[Mapping[str, Any] | None], slots: _Slots) -> Trend:
    values = [None if one is None else float(one["median"]) for one in nights]
    known = [value for value in values if value is not None]
    last = nights[-1] if nights else None
    night = (slots[-1] or {}).get("night") if last is not None else None
    low, high = _interval(figure, last)
    middle, spread = _usual(known)
    return Trend(
        last_night=night if isinstance(night, str) else None,
        ratio=_ratio(figure.median, values[-1] if values else None),
        low=low,
        high=high,
        nights=len(known),
        nights_median=middle,
        nights_ratio=_ratio(figure.median, middle),
        nights_spread=spread,
        history=(*values, figure.median),
    )


def _usual(known: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median of nights, and the standard deviation of one over it; None if unknown."""
    from numpy import errstate

    from perfrun.analysis.stats import median, relative_noise

    if not known:
        return None, None
    with errstate(over="ignore", invalid="ignore"):
        middle = median(known)
        spread = relative_noise(known) if len(known) >= _FEWEST_FOR_SPREAD else None
    return (
        middle if math.isfinite(middle) else None,
        spread if spread is not None and math.isfinite(spread) else None,
    )


def _ratio(now: float, before: float | None) -> float | None:
    if before is None or before <= 0 or now <= 0:
        return None
    ratio = now / before
    return ratio if 0 < ratio < math.inf else None


def _interval(
    figure: NightFigure, last: Mapping[str, Any] | None
) -> tuple[float | None, float | None]:
    """Return the 95 % interval of tonight over the night before; None where one has none.

    It is made of the intervals of the two medians, on logarithms: Zou and Donner, "Construction of
    confidence limits about effect measures", Statistics in Medicine 27, 2008.
    """
    now = (figure.low, figure.median, figure.high)
    before = tuple((last or {}).get(key) for key in ("low", "median", "high"))
    if not all(is_number(value) and value > 0 for value in (*now, *before)):
        return None, None
    (low, middle, high), (low_b, middle_b, high_b) = (
        [math.log(value) for value in three if value is not None] for three in (now, before)
    )
    below = math.hypot(max(middle - low, 0.0), max(high_b - middle_b, 0.0))
    above = math.hypot(max(high - middle, 0.0), max(middle_b - low_b, 0.0))
    try:
        between = middle - middle_b
        return math.exp(between - below), math.exp(between + above)
    except OverflowError:
        return None, None


def last_night_text(trend: Trend | None) -> str:
    """Return `+3.1 % (+1.0..+5.2)`; `-` when there is nothing to compare with."""
    if trend is None or trend.ratio is None:
        return "-"
    if trend.low is None or trend.high is None:
        return change_text(trend.ratio)
    bounds = "..".join(f"{_points(bound):+.1f}" for bound in (trend.low, trend.high))
    return f"{change_text(trend.ratio)} ({bounds})"


def usual_text(trend: Trend | None) -> str:
    """Return `+3.1 % (\u00b12.0 %)`, with the number of nights where it is not 14."""
    if trend is None or trend.nights_ratio is None:
        return "-"
    facts = []
    if trend.nights != MOST_NIGHTS:
        facts.append(f"{trend.nights} night{'s' * (trend.nights != 1)}")
    if trend.nights_spread is not None:
        facts.append(f"\u00b1{100 * trend.nights_spread:.2g} %")
    about = f" ({', '.join(facts)})" if facts else ""
    return f"{change_text(trend.nights_ratio)}{about}"


def change_text(ratio: float) -> str:
    """Return a ratio as a change: `+3.1 %`."""
    return f"{_points(ratio):+.1f} %"


def _points(ratio: float) -> float:
    return (ratio - 1) * 100
