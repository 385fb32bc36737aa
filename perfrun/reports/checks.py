"""The table of `perfrun doctor`. Values in, text out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from perfrun.checks.check import Check, Presence

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = ("wanted", "state", "what there is", "why it matters")
_COLOURS = {Presence.FOUND: "green", Presence.MISSING: "yellow", Presence.UNKNOWN: "dim"}


def state(check: Check, needed: Collection[str]) -> str:
    """Found, missing or cannot tell, and whether the run cannot do without."""
    lacking = check.presence is Presence.MISSING and check.name in needed
    return f"{check.presence.words}, needed" if lacking else check.presence.words


def rows(checks: Sequence[Check], needed: Collection[str]) -> list[tuple[str, str, str, str]]:
    """The cells of the table."""
    return [(c.wanted, state(c, needed), c.value or "-", c.why) for c in checks]


def plain_checks(checks: Sequence[Check], needed: Collection[str]) -> str:
    """The table as aligned text, as wide as it needs to be."""
    lines = [HEADINGS, *rows(checks, needed)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    texts = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    texts.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(texts) + "\n"


def mending(checks: Sequence[Check]) -> str:
    """The commands that mend what is missing, each whole on its line; empty when there are none."""
    mends = [(check.wanted, check.mend) for check in checks if check.mend]
    width = max((len(wanted) for wanted, _ in mends), default=0)
    lines = [f"  {wanted:<{width}}  {mend}" for wanted, mend in mends]
    return "\n".join(["", "To mend what is missing:", *lines, ""]) if lines else ""


def drawn_checks(checks: Sequence[Check], needed: Collection[str]) -> Table:
    """The table, for rich to draw."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, ratio in zip(HEADINGS, (2, 1, 3, 4), strict=True):
        table.add_column(name, overflow="fold", ratio=ratio)
    for check, cells in zip(checks, rows(checks, needed), strict=True):
        style = "red" if cells[1].endswith("needed") else _COLOURS[check.presence]
        table.add_row(*(Text(cell, style=style if n == 1 else "") for n, cell in enumerate(cells)))
    return table
