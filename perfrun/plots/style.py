"""How pictures look: two themes, fonts, the head of a figure. Only matplotlib's objects are used.

pyplot is not: it keeps figures alive, and looks for a display. Colours are those of Okabe and Ito,
which people with any colour vision tell apart, brighter ones on a dark ground; no meaning is in a
colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from perfrun.plots.words import clean, listed

Theme = Literal["light", "dark"]
DPI = 100
WIDTH = 1000  # pixels of a figure, unless asked otherwise
_P = ParamSpec("_P")


@dataclass(frozen=True, kw_only=True)
class Look:
    """The colours of a theme."""

    ground: str
    ink: str
    faint: str
    grid: str
    main: str
    second: str
    worse: str
    better: str
    cut: str
    arms: tuple[str, ...]  # of bars and curves, in order


LOOKS: dict[Theme, Look] = {
    "light": Look(
        ground="#ffffff",
        ink="#1f2328",
        faint="#6b7280",
        grid="#e5e7eb",
        main="#0072b2",
        second="#e69f00",
        worse="#c04a00",
        better="#00795a",
        cut="#6b7280",
        arms=("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"),
    ),
    "dark": Look(
        ground="#14171c",
        ink="#e6e8eb",
        faint="#9aa3af",
        grid="#2a2f37",
        main="#56b4e9",
        second="#e69f00",
        worse="#ff8a4c",
        better="#3ecf9a",
        cut="#9aa3af",
        arms=("#56b4e9", "#e69f00", "#2fc596", "#e09bc4", "#a9d6f5", "#f0e442"),
    ),
}


def settings(look: Look) -> dict[str, Any]:
    """Return matplotlib's settings. A `$` in a name is a dollar, and no formula."""
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": look.faint,
        "axes.facecolor": look.ground,
        "axes.grid": True,
        "axes.labelcolor": look.ink,
        "axes.labelsize": 10,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.formatter.useoffset": False,
        "axes.unicode_minus": False,
        "figure.dpi": DPI,
        "figure.facecolor": look.ground,
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "grid.color": look.grid,
        "grid.linewidth": 0.8,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "path.simplify": False,
        "savefig.facecolor": look.ground,
        "svg.fonttype": "none",  # text stays text: it can be searched, and read aloud
        "svg.hashsalt": "perfrun",
        "text.color": look.ink,
        "text.parse_math": False,
        "text.usetex": False,
        "xtick.color": look.faint,
        "xtick.labelcolor": look.ink,
        "ytick.color": look.faint,
        "ytick.labelcolor": look.ink,
    }


def styled(
    draw: Callable[Concatenate[Look, _P], Figure],
) -> Callable[..., Figure]:
    """Make a function that draws in a look one that takes `theme` and leaves no setting behind.

    The user's own matplotlibrc has no part in it: a picture is the same everywhere.
    """

    @wraps(draw)
    def drawn(*args: Any, theme: Theme = "light", **named: Any) -> Figure:
        look = LOOKS[theme]
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(settings(look))
            return draw(look, *args, **named)

    return drawn


def new_figure(height: int, width: int = WIDTH) -> Figure:
    """Return an empty figure of so many pixels."""
    figure = Figure(figsize=(width / DPI, height / DPI), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def head(axes: Any, look: Look, title: str, about: tuple[str, ...], below: str = "") -> None:
    """Write a title over the axes, a fainter line below it, and the axes' own title below that."""
    room = _characters(axes)
    above = 16 * bool(below)
    texts = (
        (clean(title, int(room * 0.8)), 24 + above, {"fontsize": 12, "fontweight": "bold"}),
        (listed(about, room), 9 + above, {"fontsize": 9, "color": look.faint}),
        (clean(below, int(room * 0.8)), 5, {"fontweight": "bold"}),
    )
    for text, points, how in texts:
        if text:
            own: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
            own |= {"annotation_clip": False, "xytext": (0, points)}
            # What is written takes room above the axes, and none beside them.
            axes.annotate(text, (0, 1), **own, **how).set_in_layout(False)
            axes.annotate(" ", (0, 1), **own, **how)


def columns_of_legend(figure: Any, labels: Sequence[str]) -> int:
    """Return how many columns of a legend go into the width of a figure."""
    longest = max((len(label) for label in labels), default=1)
    return max(1, int(figure.get_figwidth() * DPI * 0.85 / (6.4 * longest + 55)))


def _characters(axes: Any) -> int:
    """Return about how many characters of the small font go into the width of the figure."""
    return int(axes.get_figure().get_figwidth() * DPI * 0.92 / 6.3)
