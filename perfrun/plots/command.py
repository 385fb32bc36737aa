"""`perfrun plot KIND SELECTION`: a picture of a history, a distribution, pairs and others."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.options.parsers import CommandParser, parse_word, parse_workspace, shown
from perfrun.reports.sparkline import can_show_blocks
from perfrun.shown import cell, say, write_json, write_lines
from perfrun.text import columns

KINDS = ("history", "distribution", "pairs", "versus", "memory")
THEMES = ("light", "dark")
_ABOUT = "Draw results as SVG or PNG, or as text on the terminal."
_EPILOG = """\
  perfrun plot history pkg.module.Class.method -o history.svg
  perfrun plot distribution last
  perfrun plot distribution pkg.module.Class.method -o distribution.svg
  perfrun plot pairs last -o pairs.png
  perfrun plot versus last -o frameworks.svg --theme=dark
  perfrun plot memory last -o memory.svg

SELECTION is a folder, or a run, label, execution id, commit, date or baseline of the workspace's
results, or `last` (the default); for history, distribution and memory also a method (* for any
text). Without -o the picture is text on the terminal; --format=json prints the values that it is
made of.

Exit status: 0, or 2 when there is nothing to draw. All of it is in docs/guides/plotting.md.
"""
_MOST_PANELS = 8  # histories or methods in one picture
_MOST_TRIALS = 8  # of a method in one distribution
_PIXELS = re.compile(r"(\d{3,4})", re.ASCII)
_DEFAULT_METRIC = "wall_time"


def parser() -> CommandParser:
    """Return the parser of `perfrun plot`."""
    made = CommandParser("perfrun plot", _ABOUT, _EPILOG)
    made.add_argument("kind", metavar="KIND", help=f"what to draw: {', '.join(KINDS)}")
    made.add_argument("selection", metavar="SELECTION", nargs="?", default="last", help="of what")
    made.add_argument("-o", "--output", metavar="FILE", help="write FILE.svg or FILE.png")
    made.switch("--terminal", "draw as text, beside a file too")
    theme = partial(parse_word, words=THEMES)
    made.flag("--theme", "|".join(THEMES), "colours of a file", theme, THEMES[0])
    made.flag("--width", "PIXELS", "of a file, 400 to 4000 (default 1000)", _parse_pixels, 1000)
    made.flag("--metric", "NAME", "the metric to draw (default wall_time; of versus latency_s)")
    made.flag("--series", "NAME", "of distribution: the series of the trial's Benchmark.measure")
    made.switch("--zero", "of history: let the axis of values begin at zero")
    made.add_workspace()
    made.add_store()
    made.add_format(("text", "json"))
    made.add_clone()
    return made


def _parse_pixels(text: str, flag: str) -> int:
    if not _PIXELS.fullmatch(text) or not 400 <= int(text) <= 4000:
        raise UsageError(f"{flag}={shown(text)}: must be a whole number from 400 to 4000")
    return int(text)


def plot_command(argv: Sequence[str]) -> int:
    """Run `perfrun plot`; return its exit status."""
    given = parser().parse_intermixed_args(list(argv))
    if given.kind not in KINDS:
        raise UsageError(f"perfrun plot: {shown(given.kind)!r} is none of {', '.join(KINDS)}")
    _check_flags(given)
    path = Path(given.output) if given.output else None
    as_json = given.format == "json"
    on_terminal = given.terminal or (path is None and not as_json)
    if given.terminal and as_json:
        raise UsageError("perfrun plot: --terminal and --format=json: one of them at a time")
    _check_place(path, on_terminal=on_terminal)
    several = _first_panels(_DATA[given.kind](given))
    if path is not None:
        _write(given, several, path)
    if as_json:
        from dataclasses import asdict  # for `perfrun plot --help` it would be 10 ms

        write_json({"kind": given.kind, "pictures": [asdict(one) for one in several]})
    elif on_terminal:
        _print(given.kind, several)
    return 0


def _first_panels(several: Sequence[Any]) -> Sequence[Any]:
    """Return what goes into one picture; trials of the same method share a panel."""
    panels = list(dict.fromkeys(getattr(one, "panel", at) for at, one in enumerate(several)))
    if len(panels) <= _MOST_PANELS:
        return several
    say(f"{len(panels)} are there; the first {_MOST_PANELS} are drawn: select fewer")
    kept = panels[:_MOST_PANELS]
    return [one for at, one in enumerate(several) if getattr(one, "panel", at) in kept]


def _check_flags(given: Any) -> None:
    """Raise UsageError for a flag that has no effect on this kind."""
    unused = {
        "--series": given.series and given.kind != "distribution",
        "--zero": given.zero and given.kind != "history",
        "--clone": given.clone and given.kind != "history",
        "--metric": given.metric and given.kind in ("distribution", "memory"),
        "--store": given.store and given.kind in ("pairs", "versus"),
    }
    for flag, is_unused in unused.items():
        if is_unused:
            raise UsageError(f"perfrun plot: {flag} has no effect on {given.kind}; leave it out")


def _check_place(path: Path | None, *, on_terminal: bool) -> None:
    """Say what is missing before results are read."""
    from perfrun.plots import picture

    if path is not None:
        picture.check_path(path)
        picture.check_library()
    if on_terminal:
        from perfrun.plots import terminal

        terminal.check_library()


def _histories(given: Any) -> Sequence[Any]:
    from perfrun.plots.selected import selected_histories

    return selected_histories(given, given.metric or _DEFAULT_METRIC)


def _distributions(given: Any) -> Sequence[Any]:
    from perfrun.plots.selected import newest_of_each, selected_trials
    from perfrun.plots.trials import distribution

    return newest_of_each(
        selected_trials(given),
        lambda one: distribution(one, given.series),
        _MOST_TRIALS,
        _MOST_PANELS,
    )


def _memories(given: Any) -> Sequence[Any]:
    from perfrun.plots.selected import read_again, selected_trials
    from perfrun.plots.trials import memory

    records = selected_trials(given)
    newest = records[-1]
    if len(records) > 1:
        say(f"the newest of {len(records)} trials is drawn: {cell(newest.execution_id)}")
    return [memory(read_again(newest))]


def _pairs(given: Any) -> Sequence[Any]:
    from perfrun.plots.answers import pairs

    return pairs(parse_workspace(given.workspace), given.selection, given.metric)


def _versus(given: Any) -> Sequence[Any]:
    from perfrun.plots.answers import versus

    return versus(parse_workspace(given.workspace), given.selection, given.metric)


_DATA: dict[str, Callable[[Any], Sequence[Any]]] = {
    "history": _histories,
    "distribution": _distributions,
    "pairs": _pairs,
    "versus": _versus,
    "memory": _memories,
}


def _write(given: Any, several: Sequence[Any], path: Path) -> None:
    from perfrun.plots import figures, picture

    named = {"zero": True} if given.zero else {}
    draw = getattr(figures, given.kind)
    figure = draw(*several, theme=given.theme, width=given.width, **named)
    picture.save(picture.rendered(figure, picture.check_path(path)), path)
    say(str(path))


def _print(kind: str, several: Sequence[Any]) -> None:
    from perfrun.plots.data import overlaid
    from perfrun.plots.terminal import DRAWN, NARROWEST, WIDEST, Medium

    medium = Medium(
        width=min(max(columns() - 1, NARROWEST), WIDEST), blocks=can_show_blocks(sys.stdout)
    )
    if kind == "distribution" and len(several) > 1:
        kind, several = "distributions", overlaid(several)
    for number, data in enumerate(several):
        write_lines([*([""] if number else []), *DRAWN[kind](data, medium)])
