"""A table as a value, and the same value as text: aligned lines for logs, Markdown for pages.

Each command makes a `Table` of what it has found, by a function of that alone; a terminal draws it
(`reports.terminal`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from perfrun.dataclass import dataclass

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A heading, the side on which the cells are aligned, and what a narrow terminal does to them.

    `share` is the column's part of the width, beside the shares of others; a `whole` column keeps
    its lines as long as it can, and no column becomes narrower than `least`.
    """

    heading: str
    right: bool = False
    share: int | None = None
    whole: bool = False
    least: int | None = None


@dataclass(frozen=True)
class TableCell:
    """A cell of several lines, or in colours: `styles` are those of its lines, in rich's words."""

    lines: tuple[str, ...]
    styles: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns and rows. `narrow` are the headings of the tables into which it can be divided."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | TableCell, ...], ...]
    narrow: tuple[tuple[str, ...], ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.heading for column in self.columns)

    def widths(self) -> list[int]:
        """The width of each column, so that nothing is wrapped."""
        lines = [self.headings, *(line for row in self.rows for line in _lines(row))]
        return [max(map(len, column)) for column in zip(*lines, strict=True)]

    def part(self, headings: Sequence[str]) -> Table:
        """The table of these columns alone."""
        places = [at for at, name in enumerate(self.headings) if name in headings]
        return Table(
            columns=tuple(self.columns[at] for at in places),
            rows=tuple(tuple(row[at] for at in places) for row in self.rows),
        )


def coloured(text: str, style: str) -> TableCell:
    """A cell of one line."""
    return TableCell((text,), (style,))


def as_cell(cell: str | TableCell) -> TableCell:
    """The cell of a text."""
    return cell if isinstance(cell, TableCell) else TableCell((cell,))


def plain_text(table: Table) -> str:
    """Aligned text, as wide as it needs to be: a log can be searched, not resized."""
    heads, *lines = aligned(table)
    widths = table.widths()
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([heads, rule, *lines]) + "\n"


def aligned(table: Table) -> list[str]:
    """The headings and the lines of the rows, without a rule between them."""
    widths = table.widths()
    lines = [table.headings, *(line for row in table.rows for line in _lines(row))]
    return [
        "  ".join(
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(line, widths, table.columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def markdown_text(table: Table) -> str:
    """A table of GitHub's Markdown, whose cells mean nothing to Markdown."""
    rule = "|".join("---:" if column.right else "---" for column in table.columns)
    heads, *rows = (
        f"| {' | '.join(escaped(' '.join(as_cell(cell).lines)) for cell in row)} |"
        for row in (table.headings, *table.rows)
    )
    return "\n".join([heads, f"|{rule}|", *rows]) + "\n"


def escaped(text: str) -> str:
    """Text that means nothing to Markdown, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _lines(row: Sequence[str | TableCell]) -> list[tuple[str, ...]]:
    """The lines of a row: as many as its highest cell has."""
    return list(zip_longest(*(as_cell(cell).lines for cell in row), fillvalue=""))
