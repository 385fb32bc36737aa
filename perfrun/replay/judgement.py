"""Judge a replay: is the old value one that today's trials would give?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfrun.analysis.stats import ConfidenceInterval, median
from perfrun.compare.command import difference_row
from perfrun.compare.differences import Difference, differences, forbids
from perfrun.errors import UsageError
from perfrun.replay.prediction import FEWEST, prediction_interval
from perfrun.reports.table import Column, Table
from perfrun.summary.counted_trials import counted
from perfrun.summary.record import SummaryRecord
from perfrun.text import rounded, scale_of, spread

# Another machine of the same hardware is what a replay is for.
_IGNORED_NAMES = ("hostname",)
_MOST_ROWS = 30
_WIDE = 0.25  # half of an interval over the median
_SLACK = 1e-9  # relative; a value that is written and read is the same value


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The answer to whether a result was reproduced."""

    method: str
    metric: str
    unit: str
    old: float
    today: ConfidenceInterval  # in which one more trial of today is expected
    median: float  # of today's trials
    trials: int  # with any outcome
    used: int  # those that the interval is made of
    unmatched: tuple[Difference, ...]

    @property
    def is_reproduced(self) -> bool:
        """True when the old value lies in the interval."""
        slack = _SLACK * abs(self.old)
        return self.today.low - slack <= self.old <= self.today.high + slack

    @property
    def is_wide(self) -> bool:
        """True when so many values would be reproduced that it says little."""
        return self.today.half_width > _WIDE * abs(self.median)

    @property
    def line(self) -> str:
        """The answer in one line."""
        what = "lies in" if self.is_reproduced else "lies outside of"
        verdict = "reproduced" if self.is_reproduced else "not reproduced"
        if self.unmatched:
            count = len(self.unmatched)
            verdict += f", with {count} fact{'s' if count > 1 else ''} not matched"
        scale, name = scale_of(self.old, self.unit)
        old = f"{rounded(self.old / scale)} {name}".rstrip()
        # The same rounding as everywhere; of the median in it only the interval is wanted here.
        shown = spread(self.median, self.today.low, self.today.high, self.unit)
        return (
            f"old {self.metric} {old} {what} today's {self._interval(shown)}: {verdict} "
            f"({100 * self.today.confidence:g} % prediction interval of one trial, from "
            f"{self.used} of {self.trials} trials)"
        )

    def _interval(self, shown: str) -> str:
        middle, _, rest = shown.partition(" (")
        name = middle.partition(" ")[2]
        return (
            f"interval {' '.join(filter(None, (rest.rstrip(')') or middle, name if rest else '')))}"
        )

    @property
    def document(self) -> dict[str, Any]:
        """The keys of the answer in what `--format=json` prints."""
        return {
            "status": "reproduced" if self.is_reproduced else "not_reproduced",
            "method": self.method,
            "metric": self.metric,
            "unit": self.unit,
            "old": self.old,
            "low": self.today.low,
            "high": self.today.high,
            "confidence": self.today.confidence,
            "is_wide": self.is_wide,
            "median": self.median,
            "trials": self.trials,
            "used": self.used,
            "unmatched": [difference_row(one) for one in self.unmatched],
        }


def judge(
    old: SummaryRecord,
    new: Sequence[SummaryRecord],
    metric: str,
    allowed: Sequence[str] = (),
) -> Judgement:
    """Hold the old value against the new trials. Raises UsageError when they say nothing."""
    value = old_value(old, metric)
    unmatched = facts_not_matched(old, new)
    refuse_other_hardware(unmatched, allowed)
    known = [one for one in new if one.ran and metric in one.values]
    quiet = counted(known)  # too few of them say less than all
    values = [one.values[metric] for one in (quiet if len(quiet) >= FEWEST else known)]
    if len(values) < FEWEST:
        reasons = [f"{one.status.value}: {one.reason or 'no reason'}" for one in new if not one.ran]
        why = f" ({reasons[0]})" if reasons else ""
        raise UsageError(
            f"{old.method}: {len(values)} of {len(new)} trials gave {metric}{why}; "
            f"{FEWEST} are needed"
        )
    return Judgement(
        method=old.method,
        metric=metric,
        unit=old.metrics[metric].unit,
        old=value,
        today=prediction_interval(values),
        median=median(values),
        trials=len(new),
        used=len(values),
        unmatched=unmatched,
    )


def old_value(old: SummaryRecord, metric: str) -> float:
    """Return the recorded value. Raises UsageError when there is none."""
    if metric in old.values:
        return old.values[metric]
    if not old.ran:
        raise UsageError(
            f"{old.path}: the trial {old.status.value}, so it has no figure to be reproduced"
        )
    known = ", ".join(sorted(old.values)[:8]) or "none"
    raise UsageError(f"--metric={metric}: the result has no such metric; it has: {known}")


def facts_not_matched(old: SummaryRecord, new: Sequence[SummaryRecord]) -> tuple[Difference, ...]:
    """Return what was asked for by the old result and found to be another."""
    found = differences([old], new) if new else ()
    return tuple(one for one in found if one.name not in _IGNORED_NAMES)


def refuse_other_hardware(found: Sequence[Difference], allowed: Sequence[str]) -> None:
    """Raise UsageError where values may not be compared: hardware, driver, batch size, allocator.

    `allowed` are the kinds of which the user says that they may differ.
    """
    wrong = [one for one in found if one.kind not in allowed and forbids(one)]
    if wrong:
        kinds = list(dict.fromkeys(one.kind for one in wrong))
        what = "; ".join(one.text for one in wrong[:3]) + (" ..." if len(wrong) > 3 else "")
        raise UsageError(
            f"values of another {' and '.join(kinds)} are not compared: {what}; "
            f"--allow_different={','.join(kinds)} compares them all the same"
        )


def unmatched_table(found: Sequence[Difference]) -> Table:
    """Return the table of what was asked for and what was found."""
    rows = [(f"{one.kind} {one.name}", _shown(one.base), _shown(one.new)) for one in found]
    if len(rows) > _MOST_ROWS:
        rows[_MOST_ROWS:] = [(f"and {len(rows) - _MOST_ROWS} more", "", "")]
    return Table(
        columns=(Column(heading="not matched"), Column(heading="asked"), Column(heading="found")),
        rows=tuple(rows),
    )


def _shown(value: str | None) -> str:
    return "(none)" if value is None else value
