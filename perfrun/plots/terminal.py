"""Pictures as text, for a terminal of any width: the same data as the figures.

Curves and points are drawn by plotext, bars and histograms by the blocks of `perfrun show`. There
are no colours, so the text can go into a file, a log or a message.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from perfrun.errors import UsageError
from perfrun.plots.data import (
    DistributionData,
    HistoryData,
    MemoryData,
    Overlaid,
    PairsData,
    VersusData,
)
from perfrun.plots.words import (
    Scale,
    change_text,
    clean,
    facts_of,
    listed,
    many,
    said_of,
    verdict_text,
)
from perfrun.show.histogram import histogram, histogram_lines
from perfrun.shown import width as columns_of
from perfrun.text import rounded, with_unit

NARROWEST, WIDEST = 40, 200  # columns
_HEIGHT = 15  # lines of a diagram
_LOWER = 8
_LETTERS = "abcdefghijklmnopqrstuvwxyz"  # of the trials of a diagram
_ASCII = str.maketrans(
    "\u250c\u2510\u2514\u2518\u2500\u2502\u252c\u2534\u251c\u2524\u253c", "++++-|+++++"
)
_BLOCKS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"  # eighths of a character


class Medium(NamedTuple):
    """What a terminal can show."""

    width: int  # columns
    blocks: bool  # False where it shows ASCII only


def check_library() -> None:
    """Import plotext. Raises UsageError where it is not installed."""
    try:
        import plotext  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"perfrun plot: pictures on a terminal need the Python package plotext ({error}); "
            f"install it with `{sys.executable} -m pip install 'plotext>=6.1,<7'`"
        ) from None


class _Canvas:
    """One diagram of plotext. Its figure is one for the whole process, so it is emptied first."""

    def __init__(self, medium: Medium, height: int) -> None:
        import plotext

        self._library, self._medium = plotext, medium
        self._figure: Any = plotext.figure
        self._figure.clear()
        plotext.terminal.limit(False, False)
        self._figure.plot_size(medium.width, height)
        self._figure.theme("colorless")

    def points(
        self, x: Sequence[float], y: Sequence[float], ascii_marker: str, marker: str
    ) -> None:
        if x:
            shown = marker if self._medium.blocks else ascii_marker
            self._figure.draw(self._figure.signal(list(x), list(y), marker=shown))

    def curve(self, x: Sequence[float], y: Sequence[float]) -> None:
        signal = self._figure.signal(
            list(x), list(y), marker="braille" if self._medium.blocks else "*"
        )
        signal.lines(True)
        self._figure.draw(signal)

    def vertical(self, x: float) -> None:
        self._figure.line(x, orientation="vertical")

    def horizontal(self, y: float) -> None:
        self._figure.line(y, orientation="horizontal")

    def ticks(self, axis: str, places: Sequence[float], names: Sequence[str]) -> None:
        self._figure.ruler(axis).ticks(list(places), list(names))

    def limits(self, axis: str, low: float, high: float) -> None:
        self._figure.ruler(axis).lim(low, high)

    def lines(self) -> list[str]:
        """Return the diagram; no line is wider than the terminal."""
        text = self._library.uncolorize(self._figure.build())
        self._figure.clear()
        if not self._medium.blocks:
            text = text.translate(_ASCII)
        return [line.rstrip() for line in text.splitlines() if line.strip()]


def history(data: HistoryData, medium: Medium) -> list[str]:
    """Return the lines of a history, with its changes and cuts named below the diagram."""
    scale = Scale(data.metric, data.unit, [one.value for one in data.observations])
    canvas = _Canvas(medium, _HEIGHT)
    if data.in_order_of_time:
        x = [one.time for one in data.observations]
    else:
        x = [float(number) for number in range(1, len(data.observations) + 1)]
    kinds: Mapping[bool, tuple[str, str]] = {True: ("o", "\u25cf"), False: ("x", "\u00d7")}
    values = scale.of(one.value for one in data.observations)
    for counts, (plain, marker) in kinds.items():
        own = [n for n, one in enumerate(data.observations) if one.counts == counts]
        dense = counts and len(x) > medium.width
        canvas.points(
            [x[n] for n in own], [values[n] for n in own], plain, "braille" if dense else marker
        )
    marks = [
        (shift.first, f"{change_text(shift.ratio)} {shift.direction}") for shift in data.shifts
    ]
    marks += [(cut.first, clean(cut.text, 60)) for cut in data.cuts if cut.begins_anew]
    others = [cut for cut in data.cuts if not cut.begins_anew]
    marks += [(cut.first, clean(cut.text, 60)) for cut in others[:5]]
    marks.sort()
    for first, _ in marks:
        canvas.vertical((x[first - 1] + x[first]) / 2 if first else x[first])
    _value_ticks(canvas, values)
    _time_ticks(canvas, x, medium, is_time=data.in_order_of_time)
    better = {"lower": "lower is better", "higher": "higher is better"}.get(data.direction, "")
    left_out = sum(not one.counts for one in data.observations)
    cross = kinds[False][medium.blocks]
    notes = [f"{cross} {many(left_out, 'disturbed observation')}, not counted"] if left_out else []
    if len(others) > 5:
        notes.append(f"{len(others)} changes of {clean(others[0].kind, 30)}, the first five shown")
    return [
        *_head(data.method, (scale.label, better, *data.about), medium),
        *canvas.lines(),
        *(f"  {_day(data, first)}  {text}" for first, text in marks),
        *(f"  {note}" for note in notes),
    ]


def _day(data: HistoryData, first: int) -> str:
    return f"{datetime.fromtimestamp(data.observations[first].time):%Y-%m-%d}"


def _head(title: str, about: Sequence[str], medium: Medium) -> list[str]:
    lines = [clean(title, medium.width), listed(about, medium.width)]
    return [line for line in lines if line]


def _value_ticks(canvas: _Canvas, values: Sequence[float], *, zero: bool = False) -> None:
    """Put round numbers on the axis of values, and let it show all of them."""
    low, high = min(values), max(values)
    low = 0.0 if zero else low
    reach = (high - low) or abs(high) * 0.04 or 1.0
    low, high = (low if zero else low - 0.05 * reach), high + 0.05 * reach
    step = _step(high - low, 4)
    places = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    canvas.limits("y", low, high)
    canvas.ticks("y", places, [rounded(place, 5) for place in places])


def _step(span: float, most: int) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that fits so often into the span."""
    lead = 10.0 ** math.floor(math.log10(span / most))
    return next((n * lead for n in (1, 2, 5) if span / (n * lead) <= most), 10 * lead)


def _time_ticks(canvas: _Canvas, x: Sequence[float], medium: Medium, *, is_time: bool) -> None:
    count = max(2, medium.width // 20)
    low, high = x[0], x[-1]
    if not low < high:
        low, high = low - 1.0, high + 1.0
    canvas.limits("x", low, high)
    if not is_time:
        step = _step(high - low, count)
        numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
        canvas.ticks("x", [n * step for n in numbers], [rounded(n * step) for n in numbers])
        return
    places = [low + (high - low) * n / (count - 1) for n in range(count)]
    form = "%Y-%m-%d" if high - low > 2 * 86400 else "%d. %H:%M"
    canvas.ticks("x", places, [f"{datetime.fromtimestamp(place):{form}}" for place in places])


def distribution(data: DistributionData, medium: Medium) -> list[str]:
    """Return the samples in their order, and a histogram of the steady ones."""
    steady = data.steady_s
    scale = Scale("", "s", steady)
    warm = len(data.warmup_s) * data.warmup_every
    x = [1.0 + warm + n * data.times_every for n in range(len(data.times_s))]
    canvas = _Canvas(medium, _HEIGHT)
    shown = scale.of(data.times_s)
    canvas.points(x, shown, "o", "braille" if len(x) > medium.width else "\u25cf")
    if data.median_s is not None:
        canvas.horizontal(data.median_s / scale.divisor)
    if 0 < data.first_steady < len(x):
        canvas.vertical(x[data.first_steady])
    _value_ticks(canvas, shown)
    _time_ticks(canvas, x, medium, is_time=False)
    facts = [
        f"first call {with_unit(data.first_call_s, 's')}" if data.first_call_s else "",
        f"warm-up {many(warm, 'iteration')}" if warm else "",
        f"steady from iteration {data.steady_from}" if data.steady_from else data.kind,
        f"median {with_unit(data.median_s, 's')}" if data.median_s is not None else "",
    ]
    bins = histogram(steady)
    label = f"time of a step ({scale.unit}), by iteration"
    return [
        *_head(data.method, (data.series, *data.about), medium),
        *_head(label, facts, medium),
        *canvas.lines(),
        *(
            [f"{many(len(steady), 'steady sample' if data.first_steady else 'sample')}:"]
            if bins
            else []
        ),
        *histogram_lines(bins, medium.width, blocks=medium.blocks),
    ]


def distributions(data: Overlaid, medium: Medium) -> list[str]:
    """Return the share of steps that took at most so long, with a letter for each trial."""
    low, high = data.ends
    scale = Scale("", "s", [low, high])
    canvas = _Canvas(medium, _HEIGHT + 4)
    names = []
    for one, letter in zip(data.trials, _LETTERS, strict=False):
        times = sorted(one.steady_s)
        inside = [at for at, time in enumerate(times) if time <= high]
        chosen = inside[:: max(1, len(inside) // medium.width)]
        shares = [100 * (at + 1) / len(times) for at in chosen]
        canvas.points(scale.of(times[at] for at in chosen), shares, letter, letter)
        names.append(clean(f"{letter} {data.name(one)}: {facts_of(one)}", medium.width - 2))
    _value_ticks(canvas, [0.0, 100.0])
    _time_ticks(canvas, scale.of((low, high)), medium, is_time=False)
    return [
        *_head(data.method, said_of(data), medium),
        clean(f"% of steps that took at most so long ({scale.unit})", medium.width),
        *canvas.lines(),
        *(f"  {name}" for name in names),
    ]


def pairs(data: PairsData, medium: Medium) -> list[str]:
    """Return the changes from A to B in percent, pair by pair."""
    canvas = _Canvas(medium, _HEIGHT)
    shown = [100 * (one.ratio - 1) for one in data.pairs]
    canvas.horizontal(0.0)
    for end in (data.low, data.high):
        if end is not None:
            canvas.horizontal(100 * (end - 1))
    for first, marker in (("a", "\u25cf"), ("b", "\u25a0")):
        own = [n for n, one in enumerate(data.pairs) if one.first == first]
        numbers = [float(data.pairs[n].number) for n in own]
        canvas.points(numbers, [shown[n] for n in own], first.upper(), marker)
    ends = [100 * (end - 1) for end in (data.low, data.high) if end is not None]
    _value_ticks(canvas, [*shown, 0.0, *ends])
    numbers = [float(one.number) for one in data.pairs]
    canvas.limits("x", min(numbers) - 0.5, max(numbers) + 0.5)
    step = max(1, round(_step(max(numbers) + 1 - min(numbers), max(2, medium.width // 10))))
    places = [n for n in numbers if n % step == 0] or numbers[:1]
    canvas.ticks("x", places, [f"{place:.0f}" for place in places])
    told = verdict_text(data.ratio, data.low, data.high, data.verdict)
    metric = clean(data.metric, 40).replace("_", " ")
    by = (
        "\u25cf A ran first, \u25a0 B ran first"
        if medium.blocks
        else "A, B: the arm that ran first"
    )
    return [
        *_head(data.method, (f"{metric}: {told}", *data.about), medium),
        clean(f"B over A in %, by pair; {by}", medium.width),
        *canvas.lines(),
    ]


def versus(data: VersusData, medium: Medium) -> list[str]:
    """Return a bar for each arm in each case; a case has its own scale."""
    better = {"lower": "lower is better", "higher": "higher is better"}.get(data.direction, "")
    name = Scale(data.metric, data.unit, []).metric.replace("_", " ")
    lines = _head(data.title, (f"{name}, {better}".strip(", "), *data.about), medium)
    for case, bars in data.cases.items():
        known = [bar.value for bar in bars if bar.value is not None]
        scale, most = Scale(data.metric, data.unit, known), max(known, default=1.0) or 1.0
        names = [clean(bar.label, medium.width // 3) for bar in bars]
        longest = max(map(columns_of, names))
        texts = [_value(bar.value, bar.low, bar.high, scale) for bar in bars]
        room = medium.width - longest - max(map(len, texts)) - 4
        lines += ["", clean(case, medium.width)]
        for bar, label, text in zip(bars, names, texts, strict=True):
            pad = " " * (longest - columns_of(label))
            if bar.value is None:
                why = f"no figure: {bar.failure}" if bar.failure else "no figure"
                lines.append(f"  {label}{pad} {clean(why, medium.width - longest - 3)}")
            else:
                drawn = _bar(bar.value / most * max(1, room), blocks=medium.blocks)
                lines.append(f"  {label}{pad} {drawn} {text}")
    return lines


def _value(value: float | None, low: float | None, high: float | None, scale: Scale) -> str:
    if value is None:
        return ""
    wide = ""
    if low is not None and high is not None:
        wide = f" ({rounded(low / scale.divisor, 3)}..{rounded(high / scale.divisor, 3)})"
    return f"{rounded(value / scale.divisor)} {scale.unit}{wide}"


def _bar(length: float, *, blocks: bool) -> str:
    if not blocks:
        return "#" * max(1, round(length))
    whole, rest = divmod(max(1, round(8 * length)), 8)
    return "\u2588" * whole + (_BLOCKS[rest] if rest else "")


def memory(data: MemoryData, medium: Medium) -> list[str]:
    """Return a diagram for each unit: memory, then CPU, devices and power."""
    lines = _head(data.method, data.about, medium)
    for number, panel in enumerate(data.panels):
        top = max(value for curve in panel.curves for value in curve.values)
        scale = Scale("", panel.unit, [top])
        canvas = _Canvas(medium, _HEIGHT if number == 0 else _LOWER)
        for curve in panel.curves:
            canvas.curve(curve.times, scale.of(curve.values))
        for phase in data.phases:
            if phase.begin > 0:
                canvas.vertical(phase.begin)
        _value_ticks(canvas, [top / scale.divisor or 1.0], zero=True)
        end = max(curve.times[-1] for curve in panel.curves)
        _time_ticks(canvas, (0.0, end or 1.0), medium, is_time=False)
        peaks = [
            f"{clean(one.name, 40)}, peak {with_unit(max(one.values), panel.unit)}"
            for one in panel.curves
        ]
        lines += [
            "",
            listed([f"{panel.name} ({scale.unit}): {peaks[0]}", *peaks[1:]], medium.width),
        ]
        lines += canvas.lines()
    parts = [f"{phase.name} {rounded(phase.begin, 3)} s" for phase in data.phases]
    lines.append("by seconds since the worker's start")
    return [*lines, listed([f"begin of {parts[0]}", *parts[1:]], medium.width)] if parts else lines


DRAWN: Mapping[str, Callable[[Any, Medium], list[str]]] = {
    "history": history,
    "distribution": distribution,
    "distributions": distributions,
    "pairs": pairs,
    "versus": versus,
    "memory": memory,
}
