"""The table of `perfrun versus`: for a terminal, a log, a Markdown page. Values in, text out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfrun.reports.comparison import shown_value
from perfrun.reports.statistics import percent
from perfrun.versus.answer import DECIDING, Ratio
from perfrun.versus.cells import DEVICE_MEMORY, Cell

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

    from perfrun.analysis.costs import Figure

_COLOURS = {"slower": "red", "faster": "green", "undecided": "yellow", "failed": "red"}
_LEFT = ("phase", "framework", "platform", "verdict")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FIGURES = {  # of the table
    "latency": DECIDING,
    "per second": "throughput_per_s",
    "peak memory": "peak_memory_bytes",
    "device memory": DEVICE_MEMORY,
    "cold start": "cold_start_s",
    "import": "framework_import_s",
}


class VersusTable:
    """Rows and headings, with what there is nothing of left out."""

    def __init__(self, cells: Sequence[Cell], ratios: Sequence[Ratio]) -> None:
        self._ratios = {
            (one.platform_name, one.case, one.label): one
            for one in ratios
            if one.figure == DECIDING
        }
        self._bases = {(one.platform_name, one.case, one.base) for one in ratios}
        shown = [self._row(cell) for cell in cells]
        always = ("batch", "framework", "latency", "per second", "peak memory", "params", "FLOPs")
        self.headings = [
            name
            for name in shown[0]
            if name in (*always, "verdict") or len({row[name] for row in shown} - {"-"}) > 0
        ]
        for name in ("phase", "platform"):
            if len({row[name] for row in shown}) < 2:
                self.headings.remove(name)
        self.rows = [tuple(row[name] for name in self.headings) for row in shown]
        self.styles = [self._style(cell) for cell in cells]

    def _row(self, cell: Cell) -> dict[str, str]:
        ratio = self._ratios.get((cell.platform_name, cell.case, cell.label))
        figures = {
            name: _median(cell.figures.get(figure), figure) for name, figure in _FIGURES.items()
        }
        figures["per second"] = figures["per second"].removesuffix(" 1/s")
        interval = ratio and ratio.low is not None and f"{ratio.low:.3f}..{ratio.high:.3f}"
        return {
            "phase": cell.case.phase,
            "batch": str(cell.case.batch_size),
            "framework": cell.label,
            "platform": cell.platform_name,
            **figures,
            "params": _scaled(cell.counts.get("parameters")),
            "FLOPs": _scaled(cell.counts.get("flops_per_example")),
            "cost / million": _cost(cell.cost_per_million),
            "trials": f"{cell.ran}" if cell.ran == cell.trials else f"{cell.ran} of {cell.trials}",
            "ratio": f"{ratio.ratio:.3f}" if ratio and ratio.ratio is not None else "-",
            "95 % interval": interval or "-",
            "verdict": self._verdict(cell, ratio),
        }

    def _verdict(self, cell: Cell, ratio: Ratio | None) -> str:
        if not cell.figures:
            return "failed" if cell.failure else "-"
        if ratio is None:
            is_base = (cell.platform_name, cell.case, cell.label) in self._bases
            return "base" if is_base else "-"
        if ratio.verdict == "equivalent":
            return f"equivalent (within {percent(ratio.margin)})"
        return ratio.verdict

    def _style(self, cell: Cell) -> str:
        ratio = self._ratios.get((cell.platform_name, cell.case, cell.label))
        verdict = "failed" if not cell.figures else ratio.verdict if ratio else ""
        return _COLOURS.get(verdict, "")

    def _widths(self) -> list[int]:
        lines = [tuple(self.headings), *self.rows]
        return [max(len(line[at]) for line in lines) for at in range(len(self.headings))]

    def plain(self) -> str:
        """Aligned text, as wide as it needs to be."""
        lines = [tuple(self.headings), *self.rows]
        widths = self._widths()
        texts = [
            "  ".join(
                cell.ljust(width) if name in _LEFT else cell.rjust(width)
                for name, cell, width in zip(self.headings, line, widths, strict=True)
            ).rstrip()
            for line in lines
        ]
        texts.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
        return "\n".join(texts) + "\n"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw one table; where the terminal is too narrow, figures and verdicts one by one."""
        if sum(self._widths()) + 3 * len(self.headings) <= options.max_width:
            yield self._drawn(self.headings)
            return
        verdicts = ("cost / million", "trials", "ratio", "95 % interval", "verdict")
        yield self._drawn([name for name in self.headings if name not in verdicts])
        yield ""
        named = ("phase", "batch", "framework", "platform", *verdicts)
        yield self._drawn([name for name in self.headings if name in named])

    def _drawn(self, headings: Sequence[str]) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in headings:
            table.add_column(name, justify="left" if name in _LEFT else "right", overflow="fold")
        for cells, style in zip(self.rows, self.styles, strict=True):
            row = dict(zip(self.headings, cells, strict=True))
            table.add_row(
                *(Text(row[name], style=style if name == "verdict" else "") for name in headings)
            )
        return table

    def markdown(self) -> str:
        """A table of GitHub's Markdown."""
        rule = "|".join("---" if name in _LEFT else "---:" for name in self.headings)
        lines = [" | ".join(map(_escaped, row)) for row in (self.headings, *self.rows)]
        return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {x} |" for x in lines[1:])]) + "\n"


def markdown_page(title: str, table: VersusTable, notes: Sequence[str]) -> str:
    """The table with its title, and what else there is to know as a list."""
    listed = "".join(f"- {_escaped(note)}\n" for note in notes)
    return f"# {_escaped(title)}\n\n{table.markdown()}\n{listed}"


def failure_lines(cells: Sequence[Cell]) -> list[str]:
    """What failed, and why: one line for the same failure of several cases."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        if cell.failure:
            key = (cell.platform_name, cell.label, cell.failure)
            found.setdefault(key, []).append(cell.case.name)
    everywhere = len({cell.platform_name for cell in cells}) < 2
    return [
        f"{'' if everywhere else f'{platform}: '}{label} ({'; '.join(cases)}): {failure}"
        for (platform, label, failure), cases in found.items()
    ]


def undecided_lines(ratios: Sequence[Ratio]) -> list[str]:
    """Why ratios of the table were not decided."""
    found: dict[tuple[str, str], list[str]] = {}
    everywhere = len({one.platform_name for one in ratios}) < 2
    for one in ratios:
        if one.figure == DECIDING and one.reason and one.pairs:
            label = one.label if everywhere else f"{one.platform_name}: {one.label}"
            found.setdefault((label, one.reason), []).append(one.case.name)
    together: dict[tuple[str, str], list[str]] = {}
    for (label, why), cases in found.items():
        together.setdefault(("; ".join(cases), why), []).append(label)
    return [f"{', '.join(labels)} ({cases}): {why}" for (cases, why), labels in together.items()]


def software_lines(cells: Sequence[Cell]) -> list[str]:
    """The versions of each contender."""
    found: dict[str, None] = {}
    for cell in cells:
        if cell.software:
            texts = ", ".join(f"{name} {version}" for name, version in cell.software.items())
            found[f"{cell.label}: {texts}."] = None
    return list(found)


def _median(figure: Figure | None, name: str) -> str:
    return shown_value(figure.median if figure else None, name)


def _scaled(value: float | None) -> str:
    if value is None:
        return "-"
    scale, letter = next((each for each in _SCALES if value >= each[0]), (1.0, ""))
    return f"{value / scale:.4g} {letter}".rstrip()


def _cost(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    if figure.low is None:
        return f"{figure.median:.4g}"
    return f"{figure.median:.4g} ({figure.low:.4g}..{figure.high:.4g})"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
