"""What pairs of trials say: numbers from their summaries, verdicts from `analysis.pairs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfrun.derived import judged_metrics
from perfrun.errors import UsageError
from perfrun.pairing import Decided, Decider, Pair, PairResult, log_ratios
from perfrun.summary_record import SummaryRecord

if TYPE_CHECKING:
    from perfrun.analysis.compare import Comparison
    from perfrun.analysis.directions import Direction
    from perfrun.analysis.pairs import Rule


def decider(rule: Rule) -> Decider:
    """What `run_pairs` asks after each pair: answers at the rule's looks, which keeps its level."""
    from perfrun.analysis import pairs  # numpy

    looks = frozenset(pairs.looks(rule.max_pairs))

    def make(methods: int) -> Decided:
        shared = shared_rule(rule, methods)

        def decided(found: Sequence[float], direction: Direction) -> bool:
            if len(found) not in looks:
                return False
            return pairs.judge(found, direction, shared).verdict != "undecided"

        return decided

    return make


def shared_rule(rule: Rule, methods: int) -> Rule:
    """The rule of methods that are decided together. Raises UsageError for too few pairs."""
    from perfrun.analysis import pairs

    shared = replace(rule, methods=max(1, methods))
    if not pairs.can_decide(shared):
        enough = next(
            count
            for count in range(rule.max_pairs, 10_000)
            if pairs.can_decide(replace(shared, max_pairs=count))
        )
        raise UsageError(
            f"--max_pairs={rule.max_pairs}: cannot decide {methods} methods, whose chances of a "
            f"false alarm add up; give {enough} or more"
        )
    return shared


def comparisons(result: PairResult, rule: Rule, metric: str) -> tuple[Comparison, ...]:
    """Judge each primary metric of each method, and the one that decided, which comes first."""
    found = []
    rule = shared_rule(rule, len(result.pairs))
    for method, pairs in result.pairs.items():
        names = sorted(judged_metrics(one for pair in pairs for one in (pair.a, pair.b)))
        for name in (metric, *(name for name in names if name != metric)):
            found.append(_comparison(method, name, pairs, rule, result.stopped_by[method]))
    return tuple(found)


def _comparison(
    method: str, metric: str, pairs: Sequence[Pair], rule: Rule, stopped_by: str
) -> Comparison:
    from perfrun.analysis.compare import Comparison
    from perfrun.analysis.directions import direction_of
    from perfrun.analysis.pairs import judge
    from perfrun.analysis.stats import median
    from perfrun.analysis.two_samples import cliffs_delta

    stated = [pair.b.directions[metric] for pair in pairs if metric in pair.b.directions]
    direction = stated[-1] if stated else direction_of(metric)
    found = judge(log_ratios(pairs, metric), direction, rule)
    sides = [[r.values[metric] for r in side if metric in r.values] for side in _sides(pairs)]
    delta = cliffs_delta(sides[1], sides[0]) if min(map(len, sides)) > 1 else None
    return Comparison(
        method=method,
        metric=metric,
        direction=direction,
        ratio=found.ratio,
        interval=found.interval,
        verdict=found.verdict,
        reason=_reason(pairs, found.pairs, stopped_by) if found.verdict == "undecided" else None,
        n_base=len(sides[0]),
        n_new=len(sides[1]),
        base_median=median(sides[0]) if sides[0] else None,
        new_median=median(sides[1]) if sides[1] else None,
        cliffs_delta=delta.estimate if delta else None,
        p_value=found.p_value,
        detectable_effect=None,
        margin=rule.min_effect,
    )


def _sides(pairs: Sequence[Pair]) -> tuple[list[SummaryRecord], list[SummaryRecord]]:
    return [pair.a for pair in pairs], [pair.b for pair in pairs]


def _reason(pairs: Sequence[Pair], with_ratio: int, stopped_by: str) -> str:
    """Why nothing is decided: failures first, since they are what there is to mend."""
    for name, readings in zip("ab", _sides(pairs), strict=True):
        failed = [reading for reading in readings if not reading.ran]
        if failed and with_ratio < len(pairs):
            return f"{name} {failed[-1].status.value} in {len(failed)} of {len(readings)} trials"
    if with_ratio == 0:
        return "no pair has this metric"
    return {
        "max_pairs": "all pairs are spent",
        "time_budget": "the time is spent",
        "interrupted": "interrupted",
    }.get(stopped_by, "the interval leaves it open")
