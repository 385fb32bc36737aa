"""Which revision changed a figure, when every answer is a noisy one. Numbers in, numbers out.

Revisions are numbered in order, 0 being good and the last one bad. The oracle is a pair of trials,
one of revision `a` and one of `b`, and says the logarithm of b over a. If revision c is the first
bad one, that scatters around the effect when a < c <= b and around 0 otherwise. So every pair tells
something of every candidate, and what is known is a probability for each (`analysis.culprits`). A
wrong turn costs pairs, not the answer; where it is clear, a pair a revision is enough.

Three stages. Good and bad are compared by the sequential test of `analysis.pairs`: no difference,
nothing to search. Then the pair is run that tells most of where the change is. When one candidate
has most of the probability, it is paired with the revision before it, and is named only when the
sequential test finds the change there too.
simulations/bisect.py measures how often that is right and what it costs.

`next_move` is a function of what was measured, and of nothing else: a search that was killed goes
on by calling it with the same pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from perfrun.analysis import pairs as paired
from perfrun.analysis.culprits import Belief, RevisionPair, believe
from perfrun.analysis.pairs import Judgement, judge, level, looks

Status = Literal["found", "range", "not_reproduced", "undecided"]

MAX_PAIRS = 600  # of a whole search
# Of good with bad, and of a candidate with the one before it; more where that may decide it.
MAX_TEST_PAIRS = 60
# Of the probability: then the candidate is paired with the revision before it. These pairs tell it
# from both of its neighbours at once, so beginning early saves some (simulations/bisect.py).
_LIKELY = 0.6
# Of the probability after that: then it is named; with the less only when the pairs are spent, or
# when what candidates foretell of a pair differs by so little of the noise (both squared).
_SURE, _ENOUGH = 0.98, 0.95
_LITTLE = 0.004
_CREDIBLE = 0.95  # of the probability is in the range that is named without a culprit
# A test that is not decided then goes on to these looks, unless it is hopeless. They have what the
# others leave of 5 % of false alarms: 4.2 % without them, 4.7 % with them (tests/unit).
_FURTHER = (90, 135, 200)
_FURTHER_LEVEL = 0.003
_HOPELESS = 2.0  # when so many times the allowed pairs would be needed
# Revisions that no pair was of are tried where they leave so much of the probability before them.
_PARTS = np.linspace(0, 1, 17)[1:-1]
_NEW = 0.8  # of what it tells, for a revision that was in no pair: it must be prepared
_STAY = 0.7  # of what the best pair would tell: then the last one is run again


@dataclass(frozen=True, kw_only=True)
class SearchRule:
    """What is asked of the search."""

    min_effect: float = paired.MIN_EFFECT  # relative: 0.02 for 2 %
    max_test_pairs: int = MAX_TEST_PAIRS
    max_pairs: int = MAX_PAIRS


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Run a pair of these two revisions."""

    a: int
    b: int
    why: Literal["verify", "search", "confirm"]


@dataclass(frozen=True, kw_only=True)
class End:
    """The search is over. The culprit is one of the revisions after `after` up to `last`.

    `found`: last is the culprit, and is after + 1.
    `range`: the change is between the two, and none of the revisions between can be tested.
    `undecided`: the pairs allowed are spent; the range has 95 % of the probability, or is the
    whole one, when they were not enough to see that good and bad differ.
    `not_reproduced`: good and bad surely differ by less than the smallest effect.
    """

    status: Status
    after: int
    last: int
    probability: float | None  # of that range
    change: Judgement | None  # `last` against `after`, where these were paired
    verified: Judgement  # bad against good


def next_move(
    count: int, measured: Sequence[RevisionPair], broken: AbstractSet[int], rule: SearchRule
) -> Ask | End:
    """Say which pair to run next, or what was found. `broken`: revisions that do not run.

    Neither 0 nor count - 1 may be broken, and count must be 2 or more.
    """
    bad = count - 1
    told = [pair for pair in measured if pair.a not in broken and pair.b not in broken]
    verified, decided = _sequential(_between(told, 0, bad), rule)
    if not decided and len(measured) < rule.max_pairs:
        return Ask(a=0, b=bad, why="verify")
    if not decided or verified.verdict not in ("faster", "slower"):
        return End(
            status="not_reproduced" if verified.verdict == "equivalent" else "undecided",
            after=0,
            last=bad,
            probability=None,
            change=verified,
            verified=verified,
        )
    testable = [index for index in range(count) if index not in broken]
    belief = believe(testable, told)
    spent = len(measured) >= rule.max_pairs
    move = _search(belief, told, verified, rule, spent=spent)
    if isinstance(move, Ask) and spent:
        return _range(belief, told, verified)
    return move


def _search(
    belief: Belief,
    told: Sequence[RevisionPair],
    verified: Judgement,
    rule: SearchRule,
    *,
    spent: bool,
) -> Ask | End:
    testable, weights = belief.testable, belief.shares
    best = int(np.argmax(weights))
    if weights[best] < _LIKELY:
        return _most_telling(belief, told)[0]
    after, last = testable[best], testable[best + 1]
    change, decided = _sequential(_between(told, after, last), rule)
    if not decided:
        return Ask(a=after, b=last, why="confirm")
    if weights[best] < _SURE:  # these pairs count, whichever way they went
        ask, worth = _most_telling(belief, told)
        if weights[best] < _ENOUGH or (worth > _LITTLE and not spent):
            return ask
    if change.verdict != verified.verdict:
        return _range(belief, told, verified)
    beside = _not_seen_beside(testable, best, told)
    if beside is not None and not (spent and weights[best] >= _SURE):  # strays are weighed, too
        return Ask(a=beside[0], b=beside[1], why="confirm")
    return End(
        status="found" if last == after + 1 else "range",
        after=after,
        last=last,
        probability=float(weights[best]),
        change=change,
        verified=verified,
    )


def _not_seen_beside(
    testable: Sequence[int], best: int, told: Sequence[RevisionPair]
) -> tuple[int, int] | None:
    """A pair of the candidate's side with the next but one of the other, where none is told yet.

    The candidate, or the one before it, may be off by itself: then its neighbours show that.
    """
    after, last = testable[best : best + 2]
    good, bad = testable[0], testable[-1]
    if best + 2 < len(testable) - 1 and not any(p.a <= after and last < p.b < bad for p in told):
        return after, testable[best + 2]
    if best > 1 and not any(good < p.a < after and last <= p.b for p in told):
        return testable[best - 1], last
    return None


def looks_with_levels(rule: SearchRule) -> tuple[tuple[int, float], ...]:
    """After how many pairs two revisions are judged, and at which level each time."""
    usual = level(rule.max_test_pairs)
    first = [(look, usual) for look in looks(rule.max_test_pairs)]
    return (*first, *((look, _FURTHER_LEVEL) for look in _FURTHER if look > rule.max_test_pairs))


def _sequential(log_ratios: Sequence[float], rule: SearchRule) -> tuple[Judgement, bool]:
    """What the pairs of two revisions say, and whether that is the last word."""
    asked = paired.PairRule(max_pairs=rule.max_test_pairs, min_effect=rule.min_effect)
    told = tuple(log_ratios)
    plan = looks_with_levels(rule)
    for look, nominal in plan:
        if look > len(told):
            return _judged(told, asked, nominal), False
        judgement = _judged(told[:look], asked, nominal)
        if judgement.verdict != "undecided":
            # All pairs there are make the better estimate, when they agree.
            whole = _judged(told, asked, nominal)
            return (whole if whole.verdict == judgement.verdict else judgement), True
        if look >= asked.max_pairs and _is_hopeless(judgement, rule):
            break
    return _judged(told, asked, plan[-1][1]), True


def _is_hopeless(judgement: Judgement, rule: SearchRule) -> bool:
    """Whether as many pairs as are allowed would not do, if they went on like this."""
    assert judgement.interval is not None
    assert judgement.ratio is not None
    half = math.log(judgement.interval.high / judgement.interval.low) / 2
    effect = abs(math.log(judgement.ratio))
    # How narrow the interval must get to leave out 0, or to lie within the smallest effect.
    wanted = max(effect, math.log1p(rule.min_effect) - effect)
    if wanted <= 0:  # no effect at all was seen, and the smallest one counts
        return True
    return judgement.pairs * (half / wanted) ** 2 > _HOPELESS * _FURTHER[-1]


@lru_cache(maxsize=1024)  # a search asks the same again at each of its moves
def _judged(log_ratios: tuple[float, ...], asked: paired.PairRule, nominal: float) -> Judgement:
    # Which direction is the better one is for the report: here a change is a change.
    return judge(log_ratios, "lower", asked, nominal)


def _between(told: Sequence[RevisionPair], a: int, b: int) -> list[float]:
    return [pair.log_ratio for pair in told if (pair.a, pair.b) == (a, b)]


def _most_telling(belief: Belief, told: Sequence[RevisionPair]) -> tuple[Ask, float]:
    """The pair that tells most, of the revisions that were paired and a few more; and how much.

    The pair that was run last is stayed at while it is nearly as good: to change takes time.
    """
    testable, best = belief.testable, int(np.argmax(belief.shares))
    halves = np.searchsorted(np.cumsum(belief.shares), _PARTS - 1e-9)  # whatever rounding does
    new = {testable[int(at) + 1] for at in halves}.union(testable[max(0, best - 1) : best + 3])
    among = sorted(new.union(belief.paired))
    fresh = np.where(np.isin(among, belief.paired), 1.0, _NEW)
    worth = belief.worth(among) * fresh[:, None] * fresh
    low, high = np.unravel_index(int(np.argmax(worth)), worth.shape)
    most = float(worth[low, high])
    a, b = told[-1].a, told[-1].b
    if worth[among.index(a), among.index(b)] < _STAY * most:
        a, b = among[low], among[high]
    return Ask(a=a, b=b, why="search"), most


def _range(belief: Belief, told: Sequence[RevisionPair], verified: Judgement) -> End:
    """The smallest run of revisions that has 95 % of the probability."""
    testable, weights = belief.testable, belief.shares
    sums = np.concatenate(([0.0], np.cumsum(weights)))
    begin, end = 0, len(weights)
    for low in range(len(weights)):
        high = int(np.searchsorted(sums, sums[low] + _CREDIBLE - 1e-12))
        if high < len(sums) and testable[high] - testable[low] < testable[end] - testable[begin]:
            begin, end = low, high
    after, last = testable[begin], testable[end]
    there = _between(told, after, last)
    return End(
        status="undecided",
        after=after,
        last=last,
        probability=float(sums[end] - sums[begin]),
        change=judge(there, "lower", paired.PairRule()) if there else None,
        verified=verified,
    )
