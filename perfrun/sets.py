"""Two sets of readings compared: which figures, which are refused, what else differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfrun.counted import counted
from perfrun.derived import DerivedRatio, derived_ratios, judged_metrics
from perfrun.differences import Difference, differences, forbids, mixtures
from perfrun.errors import UsageError
from perfrun.summary_metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary_record import SummaryRecord

if TYPE_CHECKING:
    from perfrun.analysis.compare import Comparison


@dataclass(frozen=True, kw_only=True)
class Compared:
    """All that came out."""

    comparisons: tuple[Comparison, ...]
    differences: tuple[Difference, ...]
    only_base: tuple[str, ...]  # methods
    only_new: tuple[str, ...]
    trials: Mapping[str, int]  # failed, disturbed, and left_out for being disturbed
    derived: Mapping[tuple[str, str], tuple[DerivedRatio, ...]]  # by method and primary metric


@dataclass(frozen=True)
class Wanted:
    """Which methods and metrics are looked at."""

    methods: re.Pattern[str] | None = None
    metrics: re.Pattern[str] | None = None

    def method(self, name: str) -> bool:
        return self.methods is None or bool(self.methods.search(name))

    def metric(self, name: str, *, is_primary: bool) -> bool:
        """Whether a metric is judged: a derived one only when it is named."""
        return is_primary if self.metrics is None else bool(self.metrics.fullmatch(name))


def compare_sets(
    base: Sequence[SummaryRecord],
    new: Sequence[SummaryRecord],
    *,
    wanted: Wanted | None = None,
    allowed: Iterable[str] = (),
    min_effect: float | None = None,
) -> Compared:
    """Compare what both sets have. Raises UsageError for sets that have nothing in common.

    And for those that differ in hardware, driver or batch size, unless that is allowed.
    """
    from perfrun.analysis import compare as rule  # numpy and scipy

    wanted = wanted or Wanted()
    names = [{r.method for r in readings if wanted.method(r.method)} for readings in (base, new)]
    both = names[0] & names[1]
    if not both:
        raise UsageError(f"no method is in both sets: {listed(names[0])} and {listed(names[1])}")
    sides = [[r for r in readings if r.method in both] for readings in (base, new)]
    differing = differences(*sides)
    _refuse(differing, sides, set(allowed))
    pairings = []
    derived: dict[tuple[str, str], tuple[DerivedRatio, ...]] = {}
    for method in sorted(both):
        ours, theirs = ([r for r in side if r.method == method] for side in sides)
        primaries = judged_metrics((*ours, *theirs))
        for metric, direction in _metrics(ours, theirs):
            values = _values(ours, metric), _values(theirs, metric)
            if wanted.metric(metric, is_primary=metric in primaries) and all(values):
                derived[method, metric] = derived_ratios(ours, theirs, metric)
                pairings.append(
                    rule.Pairing(
                        method=method,
                        metric=metric,
                        direction=direction,
                        base=values[0],
                        new=values[1],
                    )
                )
    if not pairings:
        raise UsageError("no metric of a method has a value in both sets: did its trials pass?")
    effect = rule.MIN_EFFECT if min_effect is None else min_effect
    return Compared(
        comparisons=rule.compare(pairings, min_effect=effect),
        differences=differing,
        only_base=tuple(sorted(names[0] - both)),
        only_new=tuple(sorted(names[1] - both)),
        trials=_counts(sides),
        derived=derived,
    )


def _metrics(
    ours: Sequence[SummaryRecord], theirs: Sequence[SummaryRecord]
) -> list[tuple[str, Any]]:
    """The metrics that both have, the wall time first, with the direction that new ones say."""
    here = {name for reading in ours for name in reading.values}
    there = {name: d for reading in theirs for name, d in reading.directions.items()}
    first = (WALL_TIME, THROUGHPUT)

    def place(name: str) -> tuple[int, str]:
        return (first.index(name) if name in first else 3 if name == PEAK_RSS else 2), name

    return [(name, there[name]) for name in sorted(here & there.keys(), key=place)]


def _values(readings: Sequence[SummaryRecord], metric: str) -> tuple[float, ...]:
    known = [r for r in readings if metric in r.values]
    return tuple(r.values[metric] for r in counted(known))


def _counts(sides: Sequence[Sequence[SummaryRecord]]) -> dict[str, int]:
    counts = {"failed": 0, "disturbed": 0, "left_out": 0}
    for side in sides:
        for method in {reading.method for reading in side}:
            own = [reading for reading in side if reading.method == method]
            ran = [reading for reading in own if reading.ran]
            counts["failed"] += len(own) - len(ran)
            counts["disturbed"] += sum(reading.disturbed for reading in ran)
            counts["left_out"] += len(ran) - len(counted(ran))
    return counts


def _refuse(
    differing: Sequence[Difference], sides: Sequence[Sequence[SummaryRecord]], allowed: set[str]
) -> None:
    wrong = [d for d in differing if d.kind not in allowed and forbids(d)]
    if wrong:
        kinds = list(dict.fromkeys(d.kind for d in wrong))
        what = "; ".join(d.text for d in wrong[:3]) + (" ..." if len(wrong) > 3 else "")
        raise UsageError(
            f"BASE and NEW differ in {' and '.join(kinds)}: {what}; "
            f"--allow_different={','.join(kinds)} compares them all the same"
        )
    for side, name in zip(sides, ("BASE", "NEW"), strict=True):
        mixed = [fact for fact in mixtures(side) if fact[0] not in allowed]
        if mixed:
            kind, what = mixed[0]
            raise UsageError(
                f"{name} holds trials of several kinds: they differ in {kind} ({what}); choose "
                f"some of them, or say --allow_different={kind}"
            )


def listed(names: Iterable[str]) -> str:
    """The first five of some names, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - 5} more" if len(ordered) > 5 else ""
    return (", ".join(ordered[:5]) or "none") + more
