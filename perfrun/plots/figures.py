"""Figures of matplotlib from the values of `perfrun.plots.data`.

Each function takes such values and a theme, `light` or `dark`, and returns a `Figure`:

    figures.history(data).savefig("history.svg")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from perfrun.plots.data import (
    Bar,
    DistributionData,
    HistoryData,
    MemoryData,
    PairsData,
    VersusData,
    overlaid,
)
from perfrun.plots.shares import figure_of_trials
from perfrun.plots.style import DPI, WIDTH, Look, columns_of_legend, head, new_figure, styled
from perfrun.plots.words import Scale, change_text, clean, many, verdict_text
from perfrun.text import rounded, with_unit

_BARS_UP_TO = 60  # observations with a line for each interval; more have a band
_ROW = 0.075  # height of a row of labels, of that of the axes
_MOST_LABELS = 12  # of changes and cuts; the lines of the others have none


@styled
def history(look: Look, *several: HistoryData, zero: bool = False, width: int = WIDTH) -> Figure:
    """Draw one or several histories, one below the other."""
    figure = new_figure(380 * len(several) + 30, width)
    for axes, data in zip(_rows(figure, len(several)), several, strict=True):
        _history(axes, look, data, zero=zero)
    return figure


def _rows(figure: Figure, count: int) -> Sequence[Axes]:
    return list(figure.subplots(count, 1, squeeze=False)[:, 0])


def _history(axes: Axes, look: Look, data: HistoryData, *, zero: bool) -> None:
    scale = Scale(data.metric, data.unit, [one.value for one in data.observations])
    if data.in_order_of_time:
        x = [float(date2num(datetime.fromtimestamp(one.time))) for one in data.observations]
        locator = AutoDateLocator(minticks=3, maxticks=9)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    else:
        x = [float(number) for number in range(1, len(data.observations) + 1)]
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("observation, in the order of commits")
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(scale.label)
    _intervals(axes, look, data, x, scale)
    _points(axes, look, data, x, scale)
    for level in data.levels:
        begin, end = x[level.first], x[level.last]
        axes.plot(
            [begin, end],
            [level.value / scale.divisor] * 2,
            color=look.ink,
            linewidth=1.6,
            zorder=4,
            solid_capstyle="round",
            label="_level",
        )
    rows = _marks(axes, look, data, x)
    _limits(axes, data, scale, rows, zero=zero)
    head(axes, look, data.method, _about(data))
    _legend(axes, -0.1 if data.in_order_of_time else -0.16)


def _legend(axes: Axes, below: float) -> None:
    """Put the legend below the axes, in as many columns as there is room for."""
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, below),
        ncols=columns_of_legend(axes.figure, axes.get_legend_handles_labels()[1]),
        borderaxespad=0,
        handletextpad=0.5,
    )


def _about(data: HistoryData) -> tuple[str, ...]:
    better = {"lower": "lower is better", "higher": "higher is better"}.get(data.direction, "")
    older = f"the {len(data.observations):,} newest of {data.older + len(data.observations):,}"
    return (better, *data.about, older if data.older else "")


def _intervals(axes: Axes, look: Look, data: HistoryData, x: Sequence[float], scale: Scale) -> None:
    own = [
        (at, one.low / scale.divisor, one.high / scale.divisor, one.disturbed)
        for at, one in zip(x, data.observations, strict=True)
        if one.low is not None and one.high is not None
    ]
    if not own:
        return
    name = "95 % interval"
    if len(own) <= _BARS_UP_TO:
        at, low, high, _ = zip(*own, strict=True)
        axes.vlines(at, low, high, color=look.main, alpha=0.35, linewidth=2.2, label=name, zorder=2)
        return
    breaks = {cut.first for cut in data.cuts if cut.begins_anew}
    breaks |= {shift.first for shift in data.shifts}
    starts = [0, *sorted(breaks), len(x)]
    for begin, end in pairwise(starts):
        part = [
            (at, one.low / scale.divisor, one.high / scale.divisor)
            for at, one in zip(x[begin:end], data.observations[begin:end], strict=True)
            if one.low is not None and one.high is not None and one.counts
        ]
        if part:
            at, low, high = zip(*part, strict=True)
            axes.fill_between(
                at, low, high, color=look.main, alpha=0.16, linewidth=0, label=name, zorder=1
            )
            name = "_band"


def _points(axes: Axes, look: Look, data: HistoryData, x: Sequence[float], scale: Scale) -> None:
    size = 5.0 if len(x) <= 60 else 3.4 if len(x) <= 400 else 1.8
    kinds = (
        (False, True, "observation", {"color": look.main, "marker": "o"}),
        (True, True, "disturbed", {"color": look.main, "marker": "D", "markerfacecolor": "none"}),
        (
            *(True, False, "disturbed, does not count"),
            {"color": look.faint, "marker": "X", "markeredgewidth": 0.0},
        ),
    )
    for disturbed, counts, name, how in kinds:
        own = [
            (at, one.value / scale.divisor)
            for at, one in zip(x, data.observations, strict=True)
            if (one.disturbed, one.counts) == (disturbed, counts)
        ]
        if own:
            at, values = zip(*own, strict=True)
            bigger = size * (1.0 if counts and not disturbed else 1.25)
            axes.plot(at, values, linestyle="", markersize=bigger, label=name, zorder=3, **how)


def _marks(axes: Axes, look: Look, data: HistoryData, x: Sequence[float]) -> int:
    """Draw changes and cuts as lines with labels; return how many rows the labels take."""
    marks = [
        (
            *(shift.first, f"{change_text(shift.ratio)} {shift.direction}"),
            *(look.worse if shift.direction == "worse" else look.better, "-"),
        )
        for shift in data.shifts
    ]
    named = [cut for cut in data.cuts if cut.begins_anew]
    others: dict[str, list[int]] = {}
    for cut in data.cuts:
        if not cut.begins_anew:
            others.setdefault(cut.kind, []).append(cut.first)
    for kind, places in others.items():
        if len(places) <= _MOST_LABELS // 2:
            named += [cut for cut in data.cuts if not cut.begins_anew and cut.kind == kind]
        else:  # a framework that is new every night
            axes.plot(
                [_between(x, at) for at in places],
                [0.012] * len(places),
                transform=axes.get_xaxis_transform(),
                linestyle="",
                marker="|",
                markersize=7,
                color=look.cut,
                label=f"{clean(kind, 30)} changed ({len(places)} times)",
            )
    marks += [(cut.first, clean(cut.text, 48), look.cut, ":") for cut in named]
    marks.sort()
    span = (x[-1] - x[0]) or 1.0
    taken: list[float] = []  # where the last label of each row ends
    for number, (first, text, colour, style) in enumerate(marks):
        at = _between(x, first)
        axes.axvline(at, color=colour, linestyle=style, linewidth=1.3, zorder=2)
        if number >= _MOST_LABELS:
            continue
        place = (at - x[0]) / span
        room = len(text) * 6.2 / (axes.figure.get_figwidth() * DPI * 0.85)  # type: ignore[union-attr]
        is_left = place + room > 1.0
        begin = place - room if is_left else place
        row = next((r for r, end in enumerate(taken) if end <= begin), len(taken))
        taken[row : row + 1] = [begin + room + 0.012]
        axes.annotate(
            text,
            (at, 1 - _ROW * row),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if is_left else 4, -2),
            textcoords="offset points",
            ha="right" if is_left else "left",
            va="top",
            fontsize=9,
            color=colour,
            fontweight="bold" if style == "-" else "normal",
            bbox={"facecolor": look.ground, "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
            zorder=6,
        )
    return len(taken)


def _between(x: Sequence[float], first: int) -> float:
    """Return the place of a change: between the last observation before it and the first after."""
    return (x[first - 1] + x[first]) / 2 if first else x[first]


def _limits(axes: Axes, data: HistoryData, scale: Scale, rows: int, *, zero: bool) -> None:
    """Show all observations; a wide interval does not make them small."""
    values = scale.of(one.value for one in data.observations)
    low, high = min(values), max(values)
    middle = median(values)
    reach = max(high - low, 0.04 * abs(middle)) or 1.0  # noise shall not look like steps
    bounds = [
        bound / scale.divisor
        for one in data.observations
        for bound in (one.low, one.high)
        if bound is not None
    ]
    low = max(low - 0.6 * reach, min([low, *bounds])) - 0.06 * reach
    high = min(high + 0.6 * reach, max([high, *bounds])) + 0.06 * reach
    if high - low < 0.06 * abs(middle):
        low, high = min(low, middle * 0.97), max(high, middle * 1.03)
    if zero:
        low = min(0.0, low)
    axes.set_ylim(low, high + (high - low) * rows * _ROW / (1 - rows * _ROW))


@styled
def distribution(look: Look, *several: DistributionData, width: int = WIDTH) -> Figure:
    """Draw the samples of a trial, or those of several over each other."""
    if len(several) == 1:
        return _one_trial(look, several[0], width)
    return figure_of_trials(look, overlaid(several), width)


def _one_trial(look: Look, data: DistributionData, width: int) -> Figure:
    """Draw the samples of a trial in their order, and how often each length occurs.

    The axis shows the timed part. What is far above it, as a first call, is a triangle at the top.
    """
    figure = new_figure(420, width)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[5, 1])
    steady = data.steady_s
    scale = Scale("", "s", steady or data.warmup_s)
    bottom, top = _range(data)
    warm, steady_at = len(data.warmup_s) * data.warmup_every, data.first_steady
    x = [float(1 + warm + n * data.times_every) for n in range(len(data.times_s))]
    size = 4.5 if len(x) <= 200 else 2.6 if len(x) <= 2000 else 1.4
    first = [data.first_call_s] if data.first_call_s else []
    parts: list[tuple[str, Sequence[float], Sequence[float], dict[str, Any]]] = [
        (
            f"first call {with_unit(first[0], 's')}" if first else "",
            *([0.0][: len(first)], first),
            {"color": look.worse, "marker": "*", "markersize": 10},
        ),
        (
            "warm-up",
            [float(1 + n * data.warmup_every) for n in range(len(data.warmup_s))],
            data.warmup_s,
            {"color": look.second, "marker": "s", "markersize": size},
        ),
        (
            *("timed, not steady", x[:steady_at], data.times_s[:steady_at]),
            {"color": look.main, "marker": "o", "markersize": size, "markerfacecolor": "none"},
        ),
        (
            "timed, steady" if data.steady_from is not None else "timed",
            *(x[steady_at:], data.times_s[steady_at:]),
            {"color": look.main, "marker": "o", "markersize": size},
        ),
    ]
    for name, where, times, how in parts:
        if times:
            own = [(at, one) for at, one in zip(where, times, strict=True) if one <= top]
            places, shown = [at for at, _ in own], scale.of(one for _, one in own)
            left.plot(places, shown, linestyle="", label=name, **how)
    _above(left, look, parts, top)
    if warm and x:
        left.axvspan(0.5, warm + 0.5, color=look.second, alpha=0.08, linewidth=0)
    if 0 < steady_at < len(x):
        left.axvline(
            x[steady_at] - data.times_every / 2, color=look.faint, linestyle=":", linewidth=1.2
        )
    _median(left, right, look, data, scale)
    _counts(right, look, scale.of(one for one in steady if one <= top))
    left.set_ylim(*scale.of((bottom, top)))
    left.set_ylabel(f"time of a step ({scale.unit})")
    left.set_xlabel("iteration, from the first call on")
    left.grid(visible=False, axis="x")
    right.grid(visible=False)
    right.set_xlabel(many(len(steady), "steady sample" if steady_at else "sample"))
    right.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False, which="both")
    right.spines[["left", "bottom"]].set_visible(False)
    kind = {"flat": "steady from the beginning", "none": "never steady"}
    kinds = kind.get(data.kind, data.kind.replace("_", " "))
    head(left, look, data.method, (data.series, kinds, *data.about))
    labels = left.get_legend_handles_labels()[1]
    figure.legend(loc="outside lower left", ncols=columns_of_legend(figure, labels))
    return figure


def _range(data: DistributionData) -> tuple[float, float]:
    """Return the ends of the axis, in seconds: those of the timed part, less what lies far out."""
    timed = sorted(data.times_s or data.warmup_s or (data.first_call_s or 1.0,))
    middle, most = median(timed), timed[int(0.98 * (len(timed) - 1))]
    low, high = timed[0], timed[-1]
    reach = max(most - low, 0.02 * middle)
    every = [*data.warmup_s, *timed, *([data.first_call_s] if data.first_call_s else [])]
    high = min(max(every), max(most + 1.5 * reach, 0.0))
    low = min(one for one in every if one <= high)
    pad = 0.08 * max(high - low, 0.02 * middle) or 1e-9
    return low - pad, high + pad


def _above(
    axes: Axes,
    look: Look,
    parts: Sequence[tuple[str, Sequence[float], Sequence[float], Any]],
    top: float,
) -> None:
    """Mark at the upper edge the samples that lie above the axis."""
    found = [
        (where, time)
        for _, places, times, _ in parts
        for where, time in zip(places, times, strict=True)
        if time > top
    ]
    if found:
        longest = with_unit(max(time for _, time in found), "s")
        axes.plot(
            [where for where, _ in found],
            [0.985] * len(found),
            transform=axes.get_xaxis_transform(),
            linestyle="",
            marker="^",
            markersize=6,
            color=look.worse,
            label=f"{len(found)} above the axis, up to {longest}",
        )


def _median(left: Axes, right: Axes, look: Look, data: DistributionData, scale: Scale) -> None:
    if data.median_s is None:
        return
    middle = data.median_s / scale.divisor
    name = f"median {with_unit(data.median_s, 's')}"
    for axes in (left, right):
        axes.axhline(middle, color=look.ink, linewidth=1.2, label=name, zorder=1)
        name = "_"
        if data.low_s is not None and data.high_s is not None:
            low, high = scale.of((data.low_s, data.high_s))
            axes.axhspan(low, high, color=look.main, alpha=0.15, linewidth=0, zorder=0)


def _counts(axes: Axes, look: Look, values: Sequence[float]) -> None:
    """Draw a histogram that lies on its side."""
    if not values or not min(values) < max(values):
        return
    axes.hist(
        values,
        bins=min(60, max(5, round(2 * len(values) ** (1 / 3)))),
        orientation="horizontal",
        color=look.main,
        alpha=0.75,
        edgecolor=look.ground,
        linewidth=0.5,
    )


@styled
def pairs(look: Look, *several: PairsData, width: int = WIDTH) -> Figure:
    """Draw the ratios of the pairs of `perfrun ab`, with their median and its interval."""
    figure = new_figure(330 * len(several) + 40, width)
    for axes, data in zip(_rows(figure, len(several)), several, strict=True):
        _pairs(axes, look, data)
    return figure


def _pairs(axes: Axes, look: Look, data: PairsData) -> None:
    axes.set_yscale("log")
    axes.axhline(1.0, color=look.ink, linewidth=1.2, linestyle="--", label="no difference")
    verdict = data.verdict
    colour = {"slower": look.worse, "faster": look.better}.get(verdict, look.main)
    if data.ratio is not None:
        axes.axhline(data.ratio, color=colour, linewidth=1.6, label="median")
        if data.low is not None and data.high is not None:
            axes.axhspan(
                data.low, data.high, color=colour, alpha=0.15, linewidth=0, label="95 % interval"
            )
    for first, disturbed, marker in (
        *(("a", False, "o"), ("b", False, "s"), ("a", True, "o"), ("b", True, "s")),
    ):
        own = [p for p in data.pairs if (p.first, p.disturbed) == (first, disturbed)]
        if own:
            axes.plot(
                [one.number for one in own],
                [one.ratio for one in own],
                linestyle="",
                marker=marker,
                markersize=6,
                color=look.main if first == "a" else look.second,
                markerfacecolor="none" if disturbed else None,
                label=f"{first.upper()} ran first{', disturbed' * disturbed}",
            )
    ratios = [one.ratio for one in data.pairs]
    ends = [*ratios, 1.0, *(end for end in (data.low, data.high) if end is not None)]
    low, high = min(ends), max(ends)
    room = max((high / low) ** 0.08, 1.005)
    axes.set_ylim(low / room, high * room)
    axes.set_yticks(_ratio_ticks(low / room, high * room))
    axes.yaxis.set_major_formatter(FuncFormatter(_change_label))
    axes.minorticks_off()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("pair")
    axes.set_ylabel(f"{clean(data.metric, 40).replace('_', ' ')}: B over A")
    head(
        axes,
        look,
        data.method,
        (verdict_text(data.ratio, data.low, data.high, verdict), *data.about),
    )
    _legend(axes, -0.2)


def _change_label(ratio: float, _: object) -> str:
    return "0 %" if abs(ratio - 1) < 1e-9 else change_text(ratio)


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Return round changes that lie in the range, 1 among them."""
    span = high - low
    step = 10.0 ** math.floor(math.log10(span))
    step *= next((n for n in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if span / (n * step) <= 7), 10.0)
    first, last = math.ceil((low - 1) / step), math.floor((high - 1) / step)
    return [1 + number * step for number in range(first, last + 1)] or [1.0]


@styled
def versus(look: Look, data: VersusData, *, width: int = WIDTH) -> Figure:
    """Draw a bar for each arm in each case, with its interval and value. A case has its scale."""
    labels = list(dict.fromkeys(bar.label for bars in data.cases.values() for bar in bars))
    counts = [len(bars) for bars in data.cases.values()]
    figure = new_figure(75 + sum(34 + 27 * count for count in counts), width)
    several = figure.subplots(len(counts), 1, squeeze=False, height_ratios=counts)[:, 0]
    for axes, (case, bars) in zip(several, data.cases.items(), strict=True):
        known = [bar for bar in bars if bar.value is not None]
        scale = Scale(data.metric, data.unit, [bar.value for bar in known if bar.value is not None])
        ends = [max(bar.value or 0.0, bar.high or 0.0) for bar in known]
        most = max(scale.of(ends), default=1.0) or 1.0
        for place, bar in enumerate(bars):
            colour = look.arms[labels.index(bar.label) % len(look.arms)]
            _bar(axes, look, bar, place, colour, scale)
        axes.set_yticks(range(len(bars)), [clean(bar.label, 32) for bar in bars])
        axes.set_ylim(len(bars) - 0.45, -0.55)
        axes.set_xlim(0, most * 1.15)
        axes.grid(visible=False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", bottom=False, labelbottom=False)
        axes.spines["bottom"].set_visible(False)
        if axes is not several[0]:
            axes.set_title(clean(case, 90), loc="left", fontsize=10, fontweight="bold", pad=4)
    figure.align_ylabels()
    name = Scale(data.metric, data.unit, []).metric.replace("_", " ")
    better = {"lower": "lower is better", "higher": "higher is better"}.get(data.direction, "")
    about = (f"{name}, {better}".strip(", "), "lines are 95 % intervals", *data.about)
    head(several[0], look, data.title, about, next(iter(data.cases)))
    return figure


def _bar(axes: Axes, look: Look, bar: Bar, place: int, colour: str, scale: Scale) -> None:
    how: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
    if bar.value is None:
        text = f"no figure: {bar.failure}" if bar.failure else "no figure"
        axes.annotate(clean(text, 70), (0, place), color=look.worse, **how)
        return
    value = end = bar.value / scale.divisor
    axes.barh(place, value, height=0.72, color=colour)
    if bar.low is not None and bar.high is not None:
        low, high = scale.of((bar.low, bar.high))
        end = max(value, high)
        axes.plot(
            *([low, high], [place, place]), color=look.ink, linewidth=1.6, marker="|", markersize=7
        )
    axes.annotate(f"{rounded(value)} {scale.unit}".rstrip(), (end, place), fontsize=9, **how)


@styled
def memory(look: Look, data: MemoryData, *, width: int = WIDTH) -> Figure:
    """Draw what a trial used over time: memory, then CPU, devices and power, with its phases."""
    heights = [2.2, *([1.0] * (len(data.panels) - 1))]
    figure = new_figure(int(110 + 120 * sum(heights)), width)
    several = figure.subplots(
        len(data.panels), 1, squeeze=False, sharex=True, height_ratios=heights
    )[:, 0]
    end = max([c.times[-1] for p in data.panels for c in p.curves], default=1.0)
    end = max([end, *(phase.end for phase in data.phases)])
    for axes, panel in zip(several, data.panels, strict=True):
        values = [value for curve in panel.curves for value in curve.values]
        top = max(values, default=0.0)
        scale = Scale("", panel.unit, [top])
        for number, curve in enumerate(panel.curves):
            peak = with_unit(max(curve.values), panel.unit)
            axes.plot(
                curve.times,
                scale.of(curve.values),
                color=look.arms[number % len(look.arms)],
                linewidth=1.6,
                linestyle=("-", "--", "-.", ":")[number % 4],
                label=f"{clean(curve.name, 40)}, peak {peak}",
            )
        axes.set_ylabel(f"{panel.name}\n({scale.unit})")
        axes.set_ylim(0, (top / scale.divisor or 1.0) * (1.18 if axes is several[0] else 1.1))
        axes.grid(visible=False, axis="x")
        axes.legend(loc="lower right", frameon=True, framealpha=0.8, edgecolor="none")
        for number, phase in enumerate(data.phases):
            if number:
                axes.axvline(phase.begin, color=look.faint, linewidth=0.8, linestyle=":")
            if number % 2:
                axes.axvspan(phase.begin, phase.end, color=look.faint, alpha=0.10, linewidth=0)
    _phase_names(several[0], look, data, end)
    several[-1].set_xlim(0, end)
    several[-1].set_xlabel("time since the worker's start (s)")
    head(several[0], look, data.method, data.about)
    return figure


def _phase_names(axes: Axes, look: Look, data: MemoryData, end: float) -> None:
    """Name the phases that are wide enough for their name."""
    for phase in data.phases:
        if (phase.end - phase.begin) / end < 0.011 * len(phase.name) + 0.01:
            continue
        axes.annotate(
            phase.name,
            ((phase.begin + phase.end) / 2, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, -3),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=9,
            color=look.faint,
        )
