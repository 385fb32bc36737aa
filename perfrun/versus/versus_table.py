"""The table of `perfrun versus`, and the lines below it; all functions are pure."""

from __future__ import annotations

from collections.abc import Sequence

from perfrun.analysis.costs import Figure
from perfrun.reports.figures import percent, value_text
from perfrun.reports.table import Column, Table, coloured, markdown_text
from perfrun.shown import markdown
from perfrun.versus.answer import DECIDING, DEVICE_MEMORY, Cell, Ratio

_COLOURS = {"slower": "red", "faster": "green", "undecided": "yellow", "failed": "red"}
_NAMES = ("phase", "batch", "framework", "platform")
_LEFT = ("phase", "framework", "platform", "verdict")
_VERDICTS = ("cost / million", "trials", "ratio", "95 % interval", "verdict")
_FIRST = ("latency", "per second", "peak memory", "device memory")
_ALWAYS = ("batch", "framework", "latency", "per second", "peak memory", "params", "FLOPs")
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FIGURES = {  # of the table
    "latency": DECIDING,
    "per second": "throughput_per_s",
    "peak memory": "peak_memory_bytes",
    "device memory": DEVICE_MEMORY,
    "cold start": "cold_start_s",
    "import": "framework_import_s",
}


def versus_table(cells: Sequence[Cell], ratios: Sequence[Ratio]) -> Table:
    """Return a table with a row for each cell, without columns that say nothing."""
    decided = {
        (one.platform_name, one.case, one.label): one for one in ratios if one.figure == DECIDING
    }
    bases = {(one.platform_name, one.case, one.base) for one in ratios}
    places = [(cell.platform_name, cell.case, cell.label) for cell in cells]
    rows = [
        _row(cell, decided.get(place), place in bases)
        for cell, place in zip(cells, places, strict=True)
    ]
    styles = [_style(cell, decided.get(place)) for cell, place in zip(cells, places, strict=True)]
    names = [name for name in rows[0] if _says_something(name, {row[name] for row in rows})]
    return Table(
        columns=tuple(Column(heading=name, right=name not in _LEFT) for name in names),
        rows=tuple(
            tuple(coloured(row[name], style if name == "verdict" else "") for name in names)
            for row, style in zip(rows, styles, strict=True)
        ),
        narrow=(
            tuple(name for name in names if name not in _VERDICTS),
            tuple(name for name in names if name in (*_NAMES, *_VERDICTS)),
        ),
        narrower=(
            tuple(name for name in names if name in (*_NAMES, *_FIRST)),
            tuple(name for name in names if name not in (*_FIRST, *_VERDICTS)),
            tuple(name for name in names if name in (*_NAMES, *_VERDICTS)),
        ),
    )


def _says_something(name: str, texts: set[str]) -> bool:
    if name in ("phase", "platform"):
        return len(texts) > 1
    return name in (*_ALWAYS, "verdict") or bool(texts - {"-"})


def _row(cell: Cell, ratio: Ratio | None, is_base: bool) -> dict[str, str]:
    figures = {name: _median(cell.figures.get(figure), figure) for name, figure in _FIGURES.items()}
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
        "verdict": _verdict(cell, ratio, is_base),
    }


def _verdict(cell: Cell, ratio: Ratio | None, is_base: bool) -> str:
    if not cell.figures:
        return "failed" if cell.failure else "-"
    if ratio is None:
        return "base" if is_base else "-"
    if ratio.verdict == "equivalent":
        return f"equivalent (within {percent(ratio.margin)})"
    return ratio.verdict


def _style(cell: Cell, ratio: Ratio | None) -> str:
    verdict = "failed" if not cell.figures else ratio.verdict if ratio else ""
    return _COLOURS.get(verdict, "")


def markdown_page(title: str, table: Table, notes: Sequence[str]) -> str:
    """Return a page in Markdown: the title, the table, and the notes as a list."""
    listed = "".join(f"- {markdown(note)}\n" for note in notes)
    return f"# {markdown(title)}\n\n{markdown_text(table)}\n{listed}"


def failure_lines(cells: Sequence[Cell]) -> list[str]:
    """Return the failures and their reasons; cases with the same failure share a line."""
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
    """Return the reasons why ratios of the table are undecided."""
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
    """Return the versions of each arm's software."""
    found: dict[str, None] = {}
    for cell in cells:
        if cell.software:
            texts = ", ".join(f"{name} {version}" for name, version in cell.software.items())
            found[f"{cell.label}: {texts}."] = None
    return list(found)


def _median(figure: Figure | None, name: str) -> str:
    return value_text(figure.median if figure else None, name)


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
