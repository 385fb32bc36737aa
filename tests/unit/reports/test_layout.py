"""Tables on terminals of any width: every character of every value is drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from perfrun.reports.layout import drawn, fold
from perfrun.reports.table import Column, Table, TableCell, as_cell, coloured, plain_text

WIDTHS = (60, 80, 120, 200)
HOSTILE = (
    "benchmarks.python.interpreter.Interpreter.attribute_access",
    "[bold]m[/bold].Class.[red]",
    "\u65b9\u6cd5.\u30af\u30e9\u30b9." + "\u6e2c" * 90,
    "m." + "x" * 300,
    "e\u0301" * 70 + " \U0001f600" * 20,
    "a \x1b[2Jb\rc\nd\u202e" * 9,
    "",
)


def on_screen(table: Table, width: int) -> list[str]:
    """Return the lines of a terminal of this width."""
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        for part in drawn(table, width):
            console.print(part)
    return captured.get().splitlines()


def packed(text: str) -> str:
    return "".join(text.split())


def assert_whole(table: Table, widths: Sequence[int] = WIDTHS) -> None:
    """Find each line of each cell, in whatever pieces, and nothing beyond the terminal's edge."""
    for width in widths:
        lines = on_screen(table, width)
        assert all(cell_len(line) <= width for line in lines), width
        # Side by side a value is in one line; below each other its pieces follow each other.
        together = packed("".join(lines))
        for row in table.rows:
            for text in (line for cell in row for line in as_cell(cell).lines):
                assert packed(text) in together, (width, text)


@pytest.mark.parametrize("name", HOSTILE)
def test_every_character_of_every_value_is_drawn_at_any_width(name: str) -> None:
    columns = ("method", "trials", "outcome", "wall time (95 % interval)", "metrics", "memory")
    figures = TableCell(("achieved 35.9 GFLOP/s (28.9..38.3)", "first call 546.9 ms", name))
    row = (name, "3", coloured("out_of_bounds", "red"), "4.93 ms (4.81..5.12)", figures, "15 MiB")
    table = Table(
        columns=tuple(Column(heading=one, right=one == "trials") for one in columns),
        rows=(row, ("m.C.m", "1", "passed", "-", "-", "-")),
    )
    assert_whole(table, (20, 40, *WIDTHS))
    assert_whole(table.part(columns[:1]))
    assert_whole(table.part(columns[:2]))


def test_a_name_too_long_for_the_columns_gets_a_line_of_its_own_above_them() -> None:
    table = Table(
        columns=(
            Column(heading="method"),
            Column(heading="trials", right=True),
            Column(heading="x"),
        ),
        rows=(("package.module.Class." + "m" * 50, "3", TableCell(("one", "two"))),),
    )
    assert on_screen(table, 75) == [
        "method",
        "  trials   x",
        "\u2500" * 75,
        "package.module.Class." + "m" * 50,
        "       3   one",
        "           two",
    ]


def test_on_a_narrow_terminal_each_value_has_a_line_with_its_heading() -> None:
    table = Table(
        columns=(Column(heading="method"), Column(heading="trials"), Column(heading="metrics")),
        rows=(("m.C.m", "3", TableCell(("one " * 12, "two"))), ("m.C.n", "1", "-")),
    )
    assert on_screen(table, 30) == [
        "m.C.m",
        "  trials   3",
        "  metrics  one one one one one",
        "           one one one one one",
        "           one one",
        "           two",
        "",
        "m.C.n",
        "  trials   1",
        "  metrics  -",
    ]


def test_prose_is_wrapped_where_its_table_fits() -> None:
    prose = "a sentence that says why something matters " * 3
    table = Table(
        columns=(Column(heading="wanted"), Column(heading="why", prose=True)),
        rows=(("governor", prose),),
    )
    for width in WIDTHS:
        shown = [line.removeprefix("governor").strip() for line in on_screen(table, width)[2:]]
        assert " ".join(" ".join(shown).split()) == prose.strip()
    lines = on_screen(table, 60)
    assert lines[2].startswith("governor   a sentence")
    assert lines[3].startswith("           ")
    assert " ".join(" ".join(lines[2:]).split()) == f"governor {prose.strip()}"


def test_plain_text_is_aligned_by_the_width_of_its_characters() -> None:
    table = Table(
        columns=(Column(heading="name"), Column(heading="n", right=True)),
        rows=(("\u65b9\u6cd5", "1"), ("e\u0301e", "10"), ("abcd", "2")),
    )
    assert plain_text(table).splitlines()[2:] == ["\u65b9\u6cd5   1", "e\u0301e    10", "abcd   2"]


@given(st.text(), st.integers(2, 40))
def test_what_is_folded_loses_nothing_but_blanks_at_the_cuts(text: str, width: int) -> None:
    pieces = fold(text, width)
    assert all(cell_len(piece) <= width for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
