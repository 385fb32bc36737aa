"""One table value: aligned text, Markdown, and what a terminal draws say the same."""

from __future__ import annotations

import io

from rich.console import Console

from perfrun.reports.layout import drawn
from perfrun.reports.table import (
    Column,
    Table,
    TableCell,
    aligned,
    coloured,
    markdown_text,
    plain_text,
)

TABLE = Table(
    columns=(Column(heading="name"), Column(heading="figure", right=True)),
    rows=(("a_b|c", TableCell(("1 s", "20 ms"))), ("long [bold] name", coloured("3", "red"))),
    narrow=(("name",), ("figure",)),
)


def test_plain_text_is_aligned_and_a_cell_may_have_lines() -> None:
    assert plain_text(TABLE).splitlines() == [
        "name              figure",
        "------------------------",
        "a_b|c                1 s",
        "                   20 ms",
        "long [bold] name       3",
    ]
    assert aligned(TABLE)[1:] == plain_text(TABLE).splitlines()[2:]


def test_a_cell_means_nothing_to_markdown() -> None:
    assert markdown_text(TABLE).splitlines() == [
        "| name | figure |",
        "|---|---:|",
        "| a\\_b\\|c | 1 s 20 ms |",
        "| long \\[bold\\] name | 3 |",
    ]


def on_terminal(width: int) -> list[str]:
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        for part in drawn(TABLE, width):
            console.print(part)
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_a_terminal_shows_the_same_words_and_divides_what_is_too_wide() -> None:
    wide, narrow = on_terminal(80), on_terminal(24)
    assert wide[0] == "name figure"
    assert wide[2:] == ["a_b|c 1 s", "20 ms", "long [bold] name 3"]
    assert narrow[0] == "name"
    assert "figure" in narrow
    assert narrow[-1] == "3"


def test_a_table_without_rows_is_its_headings() -> None:
    table = Table(columns=TABLE.columns, rows=())
    assert plain_text(table).split() == ["name", "figure", "-" * 12]
    assert markdown_text(table).splitlines() == ["| name | figure |", "|---|---:|"]
