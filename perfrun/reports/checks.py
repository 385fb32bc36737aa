"""The table of `perfrun doctor`. Values in, text out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfrun.checks.check import Check, Presence
from perfrun.reports.table import Cell, Column, Table, coloured

_COLUMNS = (
    Column(heading="wanted", share=2),
    Column(heading="state", share=1),
    Column(heading="what there is", share=3),
    Column(heading="why it matters", share=4),
)
_COLOURS = {Presence.FOUND: "green", Presence.MISSING: "yellow", Presence.UNKNOWN: "dim"}


def checks_table(checks: Sequence[Check], needed: Collection[str]) -> Table:
    """A row for each check."""
    return Table(
        columns=_COLUMNS,
        rows=tuple((c.wanted, _state(c, needed), c.value or "-", c.why) for c in checks),
    )


def _state(check: Check, needed: Collection[str]) -> Cell:
    """Found, missing or cannot tell, and whether the run cannot do without."""
    words = check.presence.words
    if check.presence is Presence.MISSING and check.name in needed:
        return coloured(f"{words}, needed", "red")
    return coloured(words, _COLOURS[check.presence])


def mending(checks: Sequence[Check]) -> str:
    """The commands that mend what is missing, each whole on its line; empty when there are none."""
    mends = [(check.wanted, check.mend) for check in checks if check.mend]
    width = max((len(wanted) for wanted, _ in mends), default=0)
    lines = [f"  {wanted:<{width}}  {mend}" for wanted, mend in mends]
    return "\n".join(["", "To mend what is missing:", *lines, ""]) if lines else ""
