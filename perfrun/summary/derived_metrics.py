"""Compute and show the derived metrics of a judged primary metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from perfrun.analysis.directions import Direction
from perfrun.summary.counted_trials import counted
from perfrun.summary.record import SummaryRecord

_MOST_SHOWN = 4
_FIRST = ("throughput", "latency_p90_s", "latency_p99_s")


@dataclass(frozen=True, kw_only=True)
class DerivedRatio:
    """The ratio of a derived metric between two sets of trials."""

    metric: str
    direction: Direction
    ratio: float  # new over base, of medians


def derived_ratios(
    base: Sequence[SummaryRecord],
    new: Sequence[SummaryRecord],
    primary: str,
    *,
    count_disturbed: bool = False,
) -> tuple[DerivedRatio, ...]:
    """Return the ratio of each metric that both sides derive from a primary one."""
    here, there = ({name for one in side for name in one.derived(primary)} for side in (base, new))
    found = []
    for name in sorted(here & there):
        sides = []
        for side in (base, new):
            known = [one for one in side if name in one.values]
            used = known if count_disturbed else counted(known)
            sides.append(median([one.values[name] for one in used]))
        direction = next(one.directions[name] for one in reversed(new) if name in one.directions)
        if sides[0] > 0:
            found.append(DerivedRatio(metric=name, direction=direction, ratio=sides[1] / sides[0]))
    return tuple(found)


def judged_metrics(records: Iterable[SummaryRecord]) -> dict[str, None]:
    """Return the metrics that are judged by default: those primary in at least one trial."""
    return dict.fromkeys(name for one in records for name in one.primaries)


def derived_rows(found: Iterable[DerivedRatio]) -> list[Mapping[str, Any]]:
    """Return the JSON key `derived` of a judged metric."""
    return [{"metric": d.metric, "ratio": d.ratio, "direction": d.direction} for d in found]


def derived_text(found: Sequence[DerivedRatio]) -> str:
    """Return a text for people: `throughput 0.909, latency_p90_s 1.103`."""
    shown = sorted(found, key=lambda one: (_rank(one.metric), one.metric))
    texts = [f"{one.metric} {one.ratio:.3f}" for one in shown[:_MOST_SHOWN]]
    more = len(shown) - _MOST_SHOWN
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def _rank(metric: str) -> int:
    own = metric.rpartition("/")[2]
    return _FIRST.index(own) if own in _FIRST else len(_FIRST)
