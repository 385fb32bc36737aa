"""Tables and lines for a notebook: HTML without a script, and plain text for a terminal.

Names and messages are written by others. They are cleaned as for every table, escaped for HTML, and
kept from MathJax, which looks for formulas in whatever a notebook shows.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import replace

from perfrun.reports.table import Column, Table, as_cell, plain_text
from perfrun.shown import line

MOST_ROWS = 50  # that a notebook shows; a data frame has all
_IGNORED = "tex2jax_ignore mathjax_ignore"


def as_html(table: Table, notes: Sequence[str] = (), title: str = "") -> str:
    """Return a table with a line above and lines below it as HTML."""
    kept, hidden = _cut(table)
    heads = "".join(
        f"<th{_style(column)}>{escaped(one)}</th>"
        for column, one in zip(kept.columns, kept.headings, strict=True)
    )
    rows = "".join(_row(kept, row) for row in kept.rows)
    above = f"<div>{escaped(line(title))}</div>" if title else ""
    below = "".join(f"<div>{escaped(line(one))}</div>" for one in (*hidden, *notes))
    drawn = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="{_IGNORED}">{above}{drawn if kept.rows else ""}{below}</div>'


def as_text(table: Table, notes: Sequence[str] = (), title: str = "") -> str:
    """Return a table with a line above and lines below it as text."""
    kept, hidden = _cut(table)
    above = [line(title)] if title else []
    drawn = [plain_text(kept).rstrip("\n")] if kept.rows else []
    return "\n".join([*above, *drawn, *(line(one) for one in (*hidden, *notes))])


def escaped(text: str) -> str:
    """Return a text for HTML. A formula's delimiters stand alone, so that none begins there."""
    return re.sub(r"[$\\]", lambda found: f"<span>{found[0]}</span>", html.escape(text))


def _cut(table: Table) -> tuple[Table, list[str]]:
    more = len(table.rows) - MOST_ROWS
    if more <= 0:
        return table, []
    return replace(table, rows=table.rows[:MOST_ROWS]), [f"... and {more} more rows"]


def _row(table: Table, row: Sequence[object]) -> str:
    cells = []
    for column, cell in zip(table.columns, row, strict=True):
        lines = "<br>".join(escaped(one) for one in as_cell(cell).lines)  # type: ignore[arg-type]
        cells.append(f"<td{_style(column)}>{lines}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _style(column: Column) -> str:
    aligned = "right" if column.right else "left"
    return f' style="text-align: {aligned}; padding: 0.1em 0.6em"'
