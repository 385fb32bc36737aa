"""Find the revision that changed a figure, when every measurement is a noisy one.

Revisions are numbered in order, 0 being good and the last one bad. A measurement is a pair of
trials, one of revision `a` and one of `b`, and gives the logarithm of b over a. If revision c is
the first bad one, that scatters around the effect when a < c <= b and around 0 otherwise. So every
pair carries information about every candidate, and the state of the search is a probability for
each (`analysis.culprits`). A misleading pair costs further pairs, not the right answer; where the
effect is clear, one pair a revision is enough.

The search has three stages. Good and bad are compared by the sequential test of `analysis.pairs`;
without a difference there is nothing to search. Then the pair is run that has the most information
about where the change is. When one candidate has most of the probability, it is paired with the
revision before it, and is named only when the sequential test finds the change there too.
simulations/bisect.py measures how often that is right and what it costs.

`next_move` is a function of the measured pairs and of nothing else: a search that was killed goes
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

from perfrun.analysis.culprits import Posterior, RevisionPair, posterior_of
from perfrun.analysis.pairs import (
    MIN_EFFECT,
    Judgement,
    PairRule,
    interim_analyses,
    judge,
    level,
)

Status = Literal["found", "range", "not_reproduced", "undecided"]

MAX_PAIRS = 600  # of a whole search
# Of good with bad, and of a candidate with the one before it; `_FURTHER` allows more.
MAX_TEST_PAIRS = 60
# Probability from which on the candidate is paired with the revision before it. These pairs
# distinguish it from both of its neighbours, so beginning early saves some (simulations/bisect.py).
_LIKELY = 0.6
# Probability from which on it is named after that; the lower one is enough only when the pairs are
# spent, or when the best pair has less than this information (variance over that of the noise).
_SURE, _ENOUGH = 0.98, 0.95
_LITTLE_INFORMATION = 0.004
_CREDIBLE = 0.95  # probability of the range that is named without a culprit
# A test that is undecided then goes on to these analyses, unless it is hopeless. They use what the
# others leave of the 5 % of false alarms: 4.2 % without them, 4.7 % with them (tests/unit).
_FURTHER = (90, 135, 200)
_FURTHER_LEVEL = 0.003
_HOPELESS = 2.0  # times the allowed pairs would be needed
# Shares of the probability that lie before the revisions to consider, besides those in pairs.
_PARTS = np.linspace(0, 1, 17)[1:-1]
_NEW = 0.8  # weight of the information, for a revision in no pair yet: it must be prepared
_STAY = 0.7  # of the best pair's information: then the last pair is run again


@dataclass(frozen=True, kw_only=True)
class SearchRule:
    """The limits of a search."""

    min_effect: float = MIN_EFFECT  # relative: 0.02 for 2 %
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
    `undecided`: the allowed pairs are spent. The range has 95 % of the probability, or holds all
    revisions when the pairs were not enough to see that good and bad differ.
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
    """Return the pair to run next, or the result. `broken`: revisions that do not run.

    Neither 0 nor count - 1 may be broken, and count must be 2 or more.
    """
    bad = count - 1
    usable = [pair for pair in measured if pair.a not in broken and pair.b not in broken]
    verified, decided = _sequential(_between(usable, 0, bad), rule)
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
    posterior = posterior_of(testable, usable)
    spent = len(measured) >= rule.max_pairs
    move = _search(posterior, usable, verified, rule, spent=spent)
    if isinstance(move, Ask) and spent:
        return _range(posterior, usable, verified)
    return move


def _search(
    posterior: Posterior,
    measured: Sequence[RevisionPair],
    verified: Judgement,
    rule: SearchRule,
    *,
    spent: bool,
) -> Ask | End:
    testable, weights = posterior.testable, posterior.probabilities
    best = int(np.argmax(weights))
    if weights[best] < _LIKELY:
        return _most_informative(posterior, measured)[0]
    after, last = testable[best], testable[best + 1]
    change, decided = _sequential(_between(measured, after, last), rule)
    if not decided:
        return Ask(a=after, b=last, why="confirm")
    if weights[best] < _SURE:  # these pairs count, whatever they show
        ask, information = _most_informative(posterior, measured)
        if weights[best] < _ENOUGH or (information > _LITTLE_INFORMATION and not spent):
            return ask
    if change.verdict != verified.verdict:
        return _range(posterior, measured, verified)
    beside = _unmeasured_neighbours(testable, best, measured)
    if beside is not None and not (
        spent and weights[best] >= _SURE
    ):  # the posterior allows for outliers
        return Ask(a=beside[0], b=beside[1], why="confirm")
    return End(
        status="found" if last == after + 1 else "range",
        after=after,
        last=last,
        probability=float(weights[best]),
        change=change,
        verified=verified,
    )


def _unmeasured_neighbours(
    testable: Sequence[int], best: int, measured: Sequence[RevisionPair]
) -> tuple[int, int] | None:
    """Return a pair with a neighbour of the candidate or of the one before it, if none was run.

    The candidate, or the one before it, may be an outlier: then its neighbours show that.
    """
    after, last = testable[best : best + 2]
    good, bad = testable[0], testable[-1]
    if best + 2 < len(testable) - 1 and not any(
        p.a <= after and last < p.b < bad for p in measured
    ):
        return after, testable[best + 2]
    if best > 1 and not any(good < p.a < after and last <= p.b for p in measured):
        return testable[best - 1], last
    return None


def interim_levels(rule: SearchRule) -> tuple[tuple[int, float], ...]:
    """Return the numbers of pairs after which two revisions are judged, each with its level."""
    usual = level(rule.max_test_pairs)
    first = [(count, usual) for count in interim_analyses(rule.max_test_pairs)]
    return (*first, *((count, _FURTHER_LEVEL) for count in _FURTHER if count > rule.max_test_pairs))


def _sequential(log_ratios: Sequence[float], rule: SearchRule) -> tuple[Judgement, bool]:
    """Judge the pairs of two revisions; the second value is True when the test has ended."""
    asked = PairRule(max_pairs=rule.max_test_pairs, min_effect=rule.min_effect)
    numbers = tuple(log_ratios)
    plan = interim_levels(rule)
    for count, nominal in plan:
        if count > len(numbers):
            return _judged(numbers, asked, nominal), False
        judgement = _judged(numbers[:count], asked, nominal)
        if judgement.verdict != "undecided":
            # All pairs together give the better estimate, when they agree.
            whole = _judged(numbers, asked, nominal)
            return (whole if whole.verdict == judgement.verdict else judgement), True
        if count >= asked.max_pairs and _is_hopeless(judgement, rule):
            break
    return _judged(numbers, asked, plan[-1][1]), True


def _is_hopeless(judgement: Judgement, rule: SearchRule) -> bool:
    """True when the allowed pairs would not decide the test, if they went on like this."""
    assert judgement.interval is not None
    assert judgement.ratio is not None
    half = math.log(judgement.interval.high / judgement.interval.low) / 2
    effect = abs(math.log(judgement.ratio))
    # The half-width at which the interval leaves out 0, or lies within the smallest effect.
    wanted = max(effect, math.log1p(rule.min_effect) - effect)
    if wanted <= 0:  # no effect was measured, and any effect counts
        return True
    return judgement.pairs * (half / wanted) ** 2 > _HOPELESS * _FURTHER[-1]


@lru_cache(maxsize=1024)  # a search judges the same pairs again at each move
def _judged(log_ratios: tuple[float, ...], asked: PairRule, nominal: float) -> Judgement:
    # The direction only matters for the report: here any change is a change.
    return judge(log_ratios, "lower", asked, nominal)


def _between(measured: Sequence[RevisionPair], a: int, b: int) -> list[float]:
    return [pair.log_ratio for pair in measured if (pair.a, pair.b) == (a, b)]


def _most_informative(posterior: Posterior, measured: Sequence[RevisionPair]) -> tuple[Ask, float]:
    """Return the pair with the most information, and how much it has.

    Revisions in earlier pairs are considered, and a few more. The last pair is kept while it is
    nearly as good, because preparing other revisions takes time.
    """
    testable, best = posterior.testable, int(np.argmax(posterior.probabilities))
    halves = np.searchsorted(
        np.cumsum(posterior.probabilities), _PARTS - 1e-9
    )  # whatever the rounding
    new = {testable[int(at) + 1] for at in halves}.union(testable[max(0, best - 1) : best + 3])
    among = sorted(new.union(posterior.paired))
    fresh = np.where(np.isin(among, posterior.paired), 1.0, _NEW)
    information = posterior.information(among) * fresh[:, None] * fresh
    low, high = np.unravel_index(int(np.argmax(information)), information.shape)
    most = float(information[low, high])
    a, b = measured[-1].a, measured[-1].b
    if information[among.index(a), among.index(b)] < _STAY * most:
        a, b = among[low], among[high]
    return Ask(a=a, b=b, why="search"), most


def _range(posterior: Posterior, measured: Sequence[RevisionPair], verified: Judgement) -> End:
    """Return the smallest range of revisions that has 95 % of the probability."""
    testable, weights = posterior.testable, posterior.probabilities
    sums = np.concatenate(([0.0], np.cumsum(weights)))
    begin, end = 0, len(weights)
    for low in range(len(weights)):
        high = int(np.searchsorted(sums, sums[low] + _CREDIBLE - 1e-12))
        if high < len(sums) and testable[high] - testable[low] < testable[end] - testable[begin]:
            begin, end = low, high
    after, last = testable[begin], testable[end]
    there = _between(measured, after, last)
    return End(
        status="undecided",
        after=after,
        last=last,
        probability=float(sums[end] - sums[begin]),
        change=judge(there, "lower", PairRule()) if there else None,
        verified=verified,
    )
