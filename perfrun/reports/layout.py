"""A table on a terminal of any width: each character of each value is there.

A table that fits is drawn with its columns side by side. One that does not is divided, if it says
how; else each row becomes a block: its first cell on a line of its own, the others in columns below
or, on a narrow terminal, one a line. Only then is a value wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from perfrun.reports.table import Table, TableCell, as_cell

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as DrawnTable

_GAP = 3  # characters between two columns, as rich draws them
_INDENT = "  "
_PROSE = 24  # characters to which a column of prose may shrink
_LEAST = 20  # columns; a terminal that says it has fewer gets lines of this length
_Rows = Sequence[tuple[TableCell, ...]]


def drawn(table: Table, width: int) -> list[RenderableType]:
    """Return what rich is to print, one after the other."""
    width = max(width, _LEAST)
    if _width(table) <= width:
        return [_grid(table)]
    for division in filter(None, (table.narrow, table.narrower)):
        parts = [table.part(headings) for headings in division]
        if all(_width(part) <= width for part in parts):
            first, *others = map(_grid, parts)
            return [first, *(each for other in others for each in ("", other))]
    parts = [table.part(headings) for headings in table.narrow]
    if parts and all(_stands_below(part, width) for part in parts):
        return [*_blocks(parts[0], width), *_after_a_blank(parts[1:], width)]
    return [*_blocks(table, width)]


def _after_a_blank(parts: Sequence[Table], width: int) -> list[Text]:
    return [line for part in parts for line in (Text(), *_blocks(part, width))]


def _width(table: Table, *, wraps: bool = True) -> int:
    """Return the least width at which the columns stand side by side."""
    widths = [
        min(natural, _PROSE) if wraps and column.prose else natural
        for natural, column in zip(table.widths(cell_len), table.columns, strict=True)
    ]
    return sum(widths) + _GAP * (len(widths) - 1)


def _grid(table: Table) -> DrawnTable:
    from rich import box
    from rich.table import Table as DrawnTable

    made = DrawnTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    natural = table.widths(cell_len)
    for column, heading, widest in zip(table.columns, table.headings, natural, strict=True):
        made.add_column(
            Text(heading),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.prose,
            min_width=min(widest, _PROSE) if column.prose else widest,
        )
    for row in table.rows:
        made.add_row(*(Text("\n").join(_texts(as_cell(cell))) for cell in row))
    return made


def _stands_below(table: Table, width: int) -> bool:
    """Return True when all columns but the first have room side by side."""
    rest = table.part(table.headings[1:])
    return len(rest.columns) > 1 and len(_INDENT) + _width(rest, wraps=False) <= width


def _blocks(table: Table, width: int) -> list[Text]:
    rest = table.part(table.headings[1:])
    heads = [as_cell(row[0]) for row in table.rows]
    if _stands_below(table, width):
        return _in_columns(table.headings[0], heads, rest, width)
    lines: list[Text] = []
    for head, row in zip(heads, rest.rows, strict=True):
        lines += [Text()] if lines else []
        lines += _folded(_texts(head), width, bold=True) if "".join(head.lines) else []
        lines += _labelled(rest.headings, tuple(map(as_cell, row)), width)
    return lines


def _in_columns(heading: str, heads: Sequence[TableCell], rest: Table, width: int) -> list[Text]:
    """Return a line for the first cell of each row, and the others in columns below it."""
    widths = rest.widths(cell_len)
    title = _side_by_side([Text(text, style="bold") for text in rest.headings], widths, rest)
    lines = [Text(heading, style="bold"), title, Text("\u2500" * width)]
    for head, row in zip(heads, rest.rows, strict=True):
        if "".join(head.lines):  # a row may belong to the name above
            lines += _folded(_texts(head), width)
        cells = [_texts(as_cell(cell)) for cell in row]
        lines += [
            _side_by_side(texts, widths, rest) for texts in zip_longest(*cells, fillvalue=Text())
        ]
    return lines


def _side_by_side(texts: Sequence[Text], widths: Sequence[int], table: Table) -> Text:
    line = Text(_INDENT)
    for at, (text, width, column) in enumerate(zip(texts, widths, table.columns, strict=True)):
        padding = " " * (width - cell_len(text.plain))
        line.append(" " * _GAP if at else "")
        line.append_text(Text(padding) + text if column.right else text + Text(padding))
    line.rstrip()
    return line


def _labelled(headings: Sequence[str], cells: tuple[TableCell, ...], width: int) -> list[Text]:
    """Return a line for each cell, with its heading before it or, without room, above it."""
    room = max(map(cell_len, headings), default=0)
    is_above = room > width // 2
    lines: list[Text] = []
    for heading, cell in zip(headings, cells, strict=True):
        label = Text(heading + " " * (room - cell_len(heading)) + "  ")
        if is_above:
            lines += [Text(_INDENT) + part for part in _folded([Text(heading)], width - 2)]
            label = Text(_INDENT)
        for value in _folded(_texts(cell), width - len(_INDENT) - cell_len(label.plain)):
            line = Text(_INDENT) + label + value
            line.rstrip()
            lines.append(line)
            label = Text(" " * cell_len(label.plain))
    return lines


def _texts(cell: TableCell) -> list[Text]:
    pairs = zip_longest(cell.lines, cell.styles, fillvalue="")
    return [Text(line, style=style) for line, style in pairs]


def _folded(texts: Sequence[Text], width: int, *, bold: bool = False) -> list[Text]:
    """Return the texts in lines of this width: cut at blanks, and else anywhere."""
    lines = []
    for text in texts:
        for part in fold(text.plain, width) or [""]:
            lines.append(Text(part, style="bold" if bold else text.style))
    return lines


def fold(text: str, width: int) -> list[str]:
    """Return the text in pieces that take at most this width; only blanks at cuts are left out."""
    lines = []
    width = max(width, 2)  # a wide character needs as much
    while cell_len(text) > width:
        at = _fitting(text, width)
        blank = text.rfind(" ", 1, at + 1)
        if blank > at // 2 and text[:blank].strip():
            at = blank
        lines.append(text[:at].rstrip(" "))
        text = text[at:].lstrip(" ")
    return [*lines, text] if text or not lines else lines


def _fitting(text: str, width: int) -> int:
    """Return how many characters of the text take at most this width."""
    taken = 0
    for at, character in enumerate(text):
        taken += cell_len(character)
        if taken > width:
            return max(at, 1)
    return len(text)


def cut_at_start(text: str, width: int) -> str:
    """Return the end of a text that takes at most this width, with a mark where it was cut."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[1:]
    return f"\u2026{text}"
