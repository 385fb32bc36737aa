"""Titles, names and axes of pictures: cleaned, cut to their room, with the units of people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from perfrun.reports.figures import interval_text, name_and_unit
from perfrun.shown import cell
from perfrun.text import scale_of, with_unit

if TYPE_CHECKING:
    from perfrun.plots.data import DistributionData, Overlaid

_FIGURES = 4
_DOTS = "\u2026"


def clean(text: str, most: int) -> str:
    """Return a text from outside as one line of at most `most` characters; its end stays."""
    shown = " ".join(cell(text).split())
    if len(shown) <= most:
        return shown
    kept = most - len(_DOTS)
    begin = kept // 3
    return f"{shown[:begin]}{_DOTS}{shown[len(shown) - (kept - begin) :]}"


def listed(texts: Iterable[str], most: int) -> str:
    """Return texts as one line: `python3.11 torch; AMD EPYC, 2 cores`; its begin stays."""
    shown = " ".join(cell("; ".join(one for one in texts if one)).split())
    return shown if len(shown) <= most else f"{shown[: most - 1]}{_DOTS}"


class Scale:
    """The unit in which the values of a picture are shown, and the name of its axis."""

    def __init__(self, metric: str, unit: str, values: Sequence[float]) -> None:
        name, own = name_and_unit(metric.rpartition("/")[2])
        sizes = [abs(value) for value in values]
        typical = median(sizes) if sizes else 0.0
        self.divisor, self.unit = scale_of(typical, own or unit, _FIGURES)
        self.metric = clean(name, 60)

    @property
    def label(self) -> str:
        """The name of the axis: `wall time (ms)`; `images/s`."""
        metric, unit = self.metric.replace("_", " "), clean(self.unit, 20)
        if not metric or metric == unit:
            return unit
        return f"{metric} ({unit})" if unit else metric

    def of(self, values: Iterable[float]) -> list[float]:
        """Return the values in the unit."""
        return [value / self.divisor for value in values]


def change_text(ratio: float) -> str:
    """Return a ratio as a change: `+9.8 %`, `-12 %`."""
    share = 100 * (ratio - 1)
    return f"{share:+.2g} %" if abs(share) < 100 else f"{share:+.0f} %"


def verdict_text(ratio: float | None, low: float | None, high: float | None, verdict: str) -> str:
    """Return `B/A 1.09 (95 % interval 1.05..1.13), slower`; what is unknown is left out."""
    if ratio is None:
        return clean(verdict, 40)
    wide = "" if low is None or high is None else f" (95 % interval {interval_text(low, high)})"
    return ", ".join(part for part in (f"B/A {ratio:.3f}{wide}", clean(verdict, 40)) if part)


def many(count: int, what: str) -> str:
    """Return `1 pair`, `8 pairs`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def said_of(data: Overlaid) -> tuple[str, ...]:
    """Return what is said below the title of several trials."""
    environments = {one.environment for one in data.trials}
    shared = next(iter(environments)) if len(environments) == 1 else ""
    return (data.series, many(len(data.trials), "trial"), shared)


def facts_of(one: DistributionData) -> str:
    """Return the figures of a trial, for a legend."""
    times = one.steady_s
    middle = f"median {with_unit(one.median_s, 's')}, " if one.median_s is not None else ""
    count = f"{len(times):,} steady" if one.first_steady else many(len(times), "sample")
    return f"{middle}longest {with_unit(max(times), 's')}, {count}"
