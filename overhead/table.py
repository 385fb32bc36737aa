"""Rows of the result: their figures, their goals, and the formats in which they are printed.

A row holds the raw values; medians, ratios and verdicts are derived when it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any

from perfrun.analysis.stats import exact_median_interval


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median and the extremes of some values."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Return the median, the smallest and the largest of some values."""
    return Spread(median=median(values), low=min(values), high=max(values), count=len(values))


def ratios(values: Sequence[float], references: Sequence[float]) -> tuple[float, ...]:
    """Divide each value by the reference that was measured beside it.

    What slows the machine down for a while falls on both sides of a pair.
    """
    return tuple(value / reference for value, reference in zip(values, references, strict=True))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval that covers the true median at least 95 times in 100.

    With fewer than six values no part of their range does; then it is their range.
    """
    found = exact_median_interval(values)
    return (found.low, found.high) if found else (min(values), max(values))


class Rule(Enum):
    """The condition that a goal sets for a row."""

    RATIO_AT_MOST = "ratio <= {limit:g}"  # the median of the pairwise ratios
    RATIO_OF_MEDIANS_AT_MOST = "ratio of the medians <= {limit:g}"
    RATIO_WITHIN = "ratio within {limit:.0%} of 1"  # every pair
    RATIO_NOT_ABOVE_ONE = "not above 1"  # the interval of the median ratio reaches down to 1
    VALUE_AT_MOST = "<= {limit:g} {unit}"  # the median
    EVERY_VALUE_AT_MOST = "each <= {limit:g} {unit}"
    VALUE_AT_LEAST = ">= {limit:g} {unit}"  # the median


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One limit. docs/research/performance.md says where it comes from."""

    rule: Rule
    limit: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. Values and references were measured in turns and form pairs."""

    what: str
    unit: str
    values: tuple[float, ...] = ()  # perfrun's
    reference: str = ""  # what the values are held against
    references: tuple[float, ...] = ()  # in the same unit
    goal: Goal | None = None
    skipped: str | None = None  # why there are no values

    @property
    def pair_ratios(self) -> tuple[float, ...]:
        """Return each value over its reference; empty when they do not form pairs."""
        if not self.values or len(self.values) != len(self.references):
            return ()
        return ratios(self.values, self.references)

    @property
    def met(self) -> bool | None:
        """Return True when the goal is met; None without a goal or without values."""
        if self.goal is None or not self.values:
            return None
        return _is_met(self, self.goal)


def ratio_of_medians(row: Row) -> float:
    """Return the median of the values over the median of the references."""
    return median(row.values) / median(row.references)


def _is_met(row: Row, goal: Goal) -> bool:
    if goal.rule is Rule.RATIO_AT_MOST:
        return median(row.pair_ratios) <= goal.limit
    if goal.rule is Rule.RATIO_OF_MEDIANS_AT_MOST:
        return ratio_of_medians(row) <= goal.limit
    if goal.rule is Rule.RATIO_WITHIN:
        return all(abs(ratio - 1) <= goal.limit for ratio in row.pair_ratios)
    if goal.rule is Rule.RATIO_NOT_ABOVE_ONE:
        return median_interval(row.pair_ratios)[0] <= goal.limit
    if goal.rule is Rule.VALUE_AT_LEAST:
        return median(row.values) >= goal.limit
    if goal.rule is Rule.EVERY_VALUE_AT_MOST:
        return max(row.values) <= goal.limit
    return median(row.values) <= goal.limit


HEADINGS = ("what", "perfrun", "reference in the same run", "ratio", "goal", "met")


def cells(row: Row) -> tuple[str, str, str, str, str, str]:
    """Return the row as text, a cell for each heading."""
    if row.skipped:
        return (row.what, f"skipped: {row.skipped}", "", "", _goal_text(row), "-")
    reference = ""
    if row.references:
        reference = f"{row.reference}: {spread_text(spread(row.references), row.unit)}"
    ratio = spread_text(spread(row.pair_ratios), "x") if row.pair_ratios else ""
    if row.goal and row.goal.rule is Rule.RATIO_NOT_ABOVE_ONE:
        low, high = median_interval(row.pair_ratios)
        ratio += f"; median in {low:.4f}..{high:.4f}"
    if row.goal and row.goal.rule is Rule.RATIO_OF_MEDIANS_AT_MOST:
        ratio += f"; of the medians {ratio_of_medians(row):.3f}"
    met = {True: "yes", False: "no", None: "-"}[row.met]
    own = spread_text(spread(row.values), row.unit) if row.values else ""
    return (row.what, own, reference, ratio, _goal_text(row), met)


def _goal_text(row: Row) -> str:
    if row.goal is None:
        return ""
    return row.goal.rule.value.format(limit=row.goal.limit, unit=row.unit)


def spread_text(values: Spread, unit: str) -> str:
    """Return `median unit (smallest..largest)`; one value stands alone."""
    text = f"{figure(values.median)} {unit}"
    if values.count == 1:
        return text
    return f"{text} ({figure(values.low)}..{figure(values.high)})"


def figure(value: float) -> str:
    """Return a number with about four significant figures and without an exponent."""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:.{digits}f}" if size >= 0.1 or value == 0 else f"{value:.4f}"


def as_text(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """Return the table with aligned columns, then a line for each fact about the machine."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    # The reason of a skipped row may fill the empty columns after it.
    measured = [HEADINGS, *(cells(row) for row in rows if not row.skipped)]
    widths = [max(len(line[column]) for line in measured) for column in range(len(HEADINGS))]
    widths[0] = max(len(line[0]) for line in lines)
    shown = [_aligned(line, widths) for line in lines]
    shown.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{name}: {value}" for name, value in facts.items()]
    return "\n".join([*shown, "", *notes]) + "\n"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
    return "  ".join(padded).rstrip()


def as_markdown(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """Return the table as Markdown, for docs/research/performance.md."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    shown = ["| " + " | ".join(line) + " |" for line in lines]
    shown.insert(1, "|" + "---|" * len(HEADINGS))
    notes = [f"- {name}: {value}" for name, value in facts.items()]
    return "\n".join([*shown, "", *notes]) + "\n"


def as_json(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """Return all rows as JSON, with the raw values."""
    return json.dumps({"rows": [_document(row) for row in rows], **facts}, indent=2) + "\n"


def _document(row: Row) -> dict[str, Any]:
    return {
        "what": row.what,
        "unit": row.unit,
        "values": list(row.values),
        "reference": row.reference or None,
        "references": list(row.references),
        "ratios": list(row.pair_ratios),
        "median_ratio": spread(row.pair_ratios).median if row.pair_ratios else None,
        "goal": _goal_text(row) or None,
        "met": row.met,
        "skipped": row.skipped,
    }
