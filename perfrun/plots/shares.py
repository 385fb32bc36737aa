"""The samples of several trials over each other: the share of steps that took at most so long.

Such curves lie over each other where histograms would hide each other, and need no bins.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfrun.plots.data import DistributionData, Overlaid
from perfrun.plots.style import Look, columns_of_legend, head, new_figure
from perfrun.plots.words import Scale, clean, facts_of, said_of

_STYLES = ("-", "--", ":", "-.")


def figure_of_trials(look: Look, several: Sequence[Overlaid], width: int) -> Figure:
    """Draw a diagram for each method, with a curve for each of its trials."""
    heights = [320 + 17 * len(data.trials) for data in several]
    figure = new_figure(sum(heights) + 40, width)
    rows = figure.subplots(len(several), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, data in zip(rows, several, strict=True):
        _draw(axes, look, data)
    return figure


def _draw(axes: Axes, look: Look, data: Overlaid) -> None:
    low, high = data.ends
    scale = Scale("", "s", [low, high])
    places = _places(data.trials)
    for one, (colour, style) in zip(data.trials, places, strict=True):
        times = sorted(one.steady_s)
        shares = [100 * number / len(times) for number in range(len(times) + 1)]
        axes.step(
            scale.of([times[0], *times]),
            shares,
            where="post",
            color=look.arms[colour % len(look.arms)],
            linestyle=_STYLES[style % len(_STYLES)],
            linewidth=1.6,
            label=clean(f"{data.name(one)}: {facts_of(one)}", 110),
        )
        if one.median_s is not None:
            axes.plot(
                scale.of([one.median_s]),
                [50],
                marker="o",
                markersize=4.5,
                color=look.arms[colour % len(look.arms)],
                label="_median",
            )
    axes.set_xlim(*scale.of((low, high)))
    axes.set_ylim(0, 102)
    axes.set_xlabel(f"time of a step ({scale.unit})")
    axes.set_ylabel("steps that took at most so long (%)")
    head(axes, look, data.method, said_of(data))
    labels = axes.get_legend_handles_labels()[1]
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.19),
        ncols=columns_of_legend(axes.figure, labels),
        borderaxespad=0,
    )


def _places(trials: Sequence[DistributionData]) -> list[tuple[int, int]]:
    """Return colour and style of each curve: trials of the same label share their colour."""
    labels = list(dict.fromkeys(one.label for one in trials))
    if not 1 < len(labels) < len(trials):
        return [(number, number // 6) for number in range(len(trials))]
    seen = [0] * len(labels)
    found = []
    for one in trials:
        colour = labels.index(one.label)
        found.append((colour, seen[colour]))
        seen[colour] += 1
    return found
