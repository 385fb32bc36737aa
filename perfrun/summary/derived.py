"""Derived metrics beside their primary one: shown with it and counted with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from perfrun.analysis.directions import Direction
from perfrun.summary.counted import counted
from perfrun.summary.record import SummaryRecord

_MOST_SHOWN = 4
_FIRST = ("throughput", "latency_p90_s", "latency_p99_s")


@dataclass(frozen=True, kw_only=True)
class DerivedRatio:
    """How a derived metric stands where its primary one was judged."""

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
    """The metrics that are derived from a primary one on both sides, by name."""
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
    """The metrics that are judged unless others are named: primary in one of the trials."""
    return dict.fromkeys(name for one in records for name in one.primaries)


def derived_rows(found: Iterable[DerivedRatio]) -> list[Mapping[str, Any]]:
    """The key `derived` of a judged metric in JSON."""
    return [{"metric": d.metric, "ratio": d.ratio, "direction": d.direction} for d in found]


def derived_text(found: Sequence[DerivedRatio]) -> str:
    """As people read it: `throughput 0.909, latency_p90_s 1.103`."""
    shown = sorted(found, key=lambda one: (_place(one.metric), one.metric))
    texts = [f"{one.metric} {one.ratio:.3f}" for one in shown[:_MOST_SHOWN]]
    more = len(shown) - _MOST_SHOWN
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def _place(metric: str) -> int:
    own = metric.rpartition("/")[2]
    return _FIRST.index(own) if own in _FIRST else len(_FIRST)
