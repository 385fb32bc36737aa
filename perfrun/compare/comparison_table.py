"""The table of `perfrun compare` and `perfrun ab`: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfrun.analysis.directions import unit_of
from perfrun.compare.differences import Difference
from perfrun.reports.figures import percent
from perfrun.reports.table import Column, Table, coloured
from perfrun.summary.derived_metrics import DerivedRatio, derived_text
from perfrun.summary.metrics import THROUGHPUT, WALL_TIME
from perfrun.text import with_unit

if TYPE_CHECKING:
    from perfrun.analysis.two_sets import Comparison

_COLUMNS = (
    Column(heading="method"),
    Column(heading="metric"),
    Column(heading="base", right=True),
    Column(heading="new", right=True),
    Column(heading="new / base", right=True),
    Column(heading="95 % interval"),
    Column(heading="trials", right=True),
    Column(heading="verdict"),
)
_COLOURS = {"slower": "red", "faster": "green", "equivalent": "", "undecided": "yellow"}


def comparison_table(found: Sequence[Comparison]) -> Table:
    """Return a row for each method and metric; only a method's first row names it."""
    rows = []
    before = None
    for one in found:
        low_high = f"{one.interval.low:.3f}..{one.interval.high:.3f}" if one.interval else "-"
        rows.append(
            (
                one.method if one.method != before else "",
                one.metric,
                shown_value(one.base_median, one.metric),
                shown_value(one.new_median, one.metric),
                "-" if one.ratio is None else f"{one.ratio:.3f}",
                low_high,
                f"{one.n_base} / {one.n_new}",
                coloured(verdict_text(one), _COLOURS[one.verdict]),
            )
        )
        before = one.method
    return Table(columns=_COLUMNS, rows=tuple(rows))


def verdict_text(one: Comparison) -> str:
    """Return the verdict; of a metric that is no time, `better` or `worse`."""
    if one.verdict == "equivalent":
        return f"equivalent (within {percent(one.margin)})"
    if one.verdict == "undecided":
        return f"undecided: {one.reason}"
    if one.metric.rpartition("/")[2] in (WALL_TIME, THROUGHPUT):
        return one.verdict
    return "worse" if one.verdict == "slower" else "better"


def shown_value(value: float | None, metric: str) -> str:
    """Return a value with four digits, in a suitable unit."""
    if value is None:
        return "-"
    return with_unit(value, unit_of(metric.rpartition("/")[2]))


def derived_lines(
    found: Sequence[Comparison], derived: Mapping[tuple[str, str], Sequence[DerivedRatio]]
) -> list[str]:
    """Return a line with the derived metrics of each metric that is faster or slower."""
    lines = []
    for one in found:
        own = derived.get((one.method, one.metric), ())
        if own and one.verdict in ("faster", "slower"):
            lines.append(f"With {one.metric} of {one.method}: {derived_text(own)}.")
    return lines


def environment_line(differing: Sequence[Difference]) -> str:
    """Return the differences of the environment: `torch 2.12 -> 2.13; nothing else.`"""
    if not differing:
        return "Environment: no difference found."
    texts = [difference.text for difference in differing]
    if len(texts) <= 3:
        return f"Environment: {'; '.join(texts)}; nothing else."
    return "\n".join([f"Environment: {len(texts)} differences:", *(f"  {text}" for text in texts)])
