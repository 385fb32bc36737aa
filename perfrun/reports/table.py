"""A table as a value, and its forms as text: aligned lines for logs, Markdown for pages.

Each command makes a `Table` of its results; `reports.terminal` draws it on a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from perfrun.dataclass import dataclass
from perfrun.shown import cell as cleaned
from perfrun.shown import markdown, width


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: a terminal may wrap one of `prose` rather than divide the table."""

    heading: str
    right: bool = False
    prose: bool = False


@dataclass(frozen=True)
class TableCell:
    """A cell of several lines or with colours: `styles` are rich's names, one for each line."""

    lines: tuple[str, ...]
    styles: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns and rows.

    `narrow` has the headings of the tables into which it can be divided, `narrower` those for a
    terminal on which these do not fit.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | TableCell, ...], ...]
    narrow: tuple[tuple[str, ...], ...] = ()
    narrower: tuple[tuple[str, ...], ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of all columns."""
        return tuple(cleaned(column.heading) for column in self.columns)

    def widths(self, width_of: Callable[[str], int] = width) -> list[int]:
        """Return the width of each column at which nothing is wrapped."""
        lines = [self.headings, *(line for row in self.rows for line in _lines(row))]
        return [max(map(width_of, column)) for column in zip(*lines, strict=True)]

    def part(self, headings: Sequence[str]) -> Table:
        """Return a table of these columns only."""
        places = [at for at, name in enumerate(self.headings) if name in headings]
        return Table(
            columns=tuple(self.columns[at] for at in places),
            rows=tuple(tuple(row[at] for at in places) for row in self.rows),
        )


def coloured(text: str, style: str) -> TableCell:
    """Return a cell of one line in a style."""
    return TableCell((text,), (style,))


def as_cell(cell: str | TableCell) -> TableCell:
    """Return a text or a cell as a cell that can be shown: its text may come from anywhere."""
    if isinstance(cell, TableCell):
        return TableCell(tuple(map(cleaned, cell.lines)), cell.styles)
    return TableCell((cleaned(cell),))


def plain_text(table: Table) -> str:
    """Return the table as aligned text of any width: a log can be searched, but not resized."""
    heads, *lines = aligned(table)
    widths = table.widths()
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([heads, rule, *lines]) + "\n"


def aligned(table: Table) -> list[str]:
    """Return the line of headings and the lines of the rows, aligned."""
    widths = table.widths()
    lines = [table.headings, *(line for row in table.rows for line in _lines(row))]
    return [
        "  ".join(
            _padded(text, room, right=column.right)
            for text, room, column in zip(line, widths, table.columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def _padded(text: str, room: int, *, right: bool) -> str:
    blanks = " " * (room - width(text))
    return blanks + text if right else text + blanks


def markdown_text(table: Table) -> str:
    """Return the table in GitHub's Markdown, with escaped cells."""
    rule = "|".join("---:" if column.right else "---" for column in table.columns)
    heads, *rows = (
        f"| {' | '.join(markdown(' '.join(as_cell(cell).lines)) for cell in row)} |"
        for row in (table.headings, *table.rows)
    )
    return "\n".join([heads, f"|{rule}|", *rows]) + "\n"


def _lines(row: Sequence[str | TableCell]) -> list[tuple[str, ...]]:
    """Return the lines of a row; its highest cell determines how many there are."""
    return list(zip_longest(*(as_cell(cell).lines for cell in row), fillvalue=""))
