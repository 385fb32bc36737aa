"""The table of `perfrun compare` and `perfrun ab`: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfrun.compare.differences import Difference
from perfrun.reports.figures import percent, ratio_text, value_text
from perfrun.reports.table import Column, Table, coloured
from perfrun.summary.derived_metrics import DerivedRatio, derived_text
from perfrun.summary.metrics import THROUGHPUT, WALL_TIME

if TYPE_CHECKING:
    from perfrun.analysis.two_sets import Comparison

_COLUMNS = (
    Column(heading="method"),
    Column(heading="metric"),
    Column(heading="base", right=True),
    Column(heading="new", right=True),
    Column(heading="new / base (95 %)"),
    Column(heading="trials", right=True),
    Column(heading="verdict"),
)
_NARROW = (
    ("method", "metric", "new / base (95 %)", "verdict"),
    ("method", "metric", "base", "new", "trials"),
)
_COLOURS = {"slower": "red", "faster": "green", "equivalent": "", "undecided": "yellow"}


def comparison_table(found: Sequence[Comparison]) -> Table:
    """Return a row for each method and metric; only a method's first row names it."""
    rows = []
    before = None
    for one in found:
        rows.append(
            (
                one.method if one.method != before else "",
                one.metric,
                value_text(one.base_median, one.metric),
                value_text(one.new_median, one.metric),
                _ratio(one),
                f"{one.n_base} / {one.n_new}",
                coloured(verdict_text(one), _COLOURS[one.verdict]),
            )
        )
        before = one.method
    return Table(columns=_COLUMNS, rows=tuple(rows), narrow=_NARROW)


def _ratio(one: Comparison) -> str:
    if one.ratio is None:
        return "-"
    low, high = (one.interval.low, one.interval.high) if one.interval else (None, None)
    return ratio_text(one.ratio, low, high)


def verdict_text(one: Comparison) -> str:
    """Return the verdict; of a metric that is no time, `better` or `worse`."""
    if one.verdict == "equivalent":
        return f"equivalent \u00b1{percent(one.margin)}"
    if one.verdict == "undecided":
        return one.verdict
    if one.metric.rpartition("/")[2] in (WALL_TIME, THROUGHPUT):
        return one.verdict
    return "worse" if one.verdict == "slower" else "better"


def reason_lines(found: Sequence[Comparison]) -> list[str]:
    """Return the reasons why figures are undecided, each once, with the figures."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.verdict == "undecided" and one.reason:
            reasons.setdefault(one.reason, []).append(one.metric)
    return [
        f"Undecided: {reason} ({metrics[0] if len(metrics) == 1 else f'{len(metrics)} figures'})."
        for reason, metrics in reasons.items()
    ]


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


def environment_lines(differing: Sequence[Difference]) -> list[str]:
    """Return the differences of the environment: `torch 2.12 -> 2.13; nothing else.`"""
    if not differing:
        return ["Environment: no difference found."]
    texts = [difference.text for difference in differing]
    if len(texts) <= 3:
        return [f"Environment: {'; '.join(texts)}; nothing else."]
    return [f"Environment: {len(texts)} differences:", *(f"  {text}" for text in texts)]
