"""Which revision changed a figure, when every answer is a noisy one. Numbers in, numbers out.

Revisions are numbered in order, 0 being good and the last one bad. The oracle is a pair of trials,
one of revision `a` and one of `b`, and says the logarithm of b over a. If revision c is the first
bad one, that scatters around the effect when a < c <= b and around 0 otherwise. So every pair tells
something of every candidate, and what is known is a probability for each: Horstein's probabilistic
bisection (IEEE Transactions on Information Theory 9, 1963; Waeber, Frazier and Henderson, SIAM
Journal on Control and Optimization 51, 2013), with the likelihood of the figures instead of a yes
or no. A wrong turn costs pairs, not the answer; where it is clear, a pair a revision is enough.

Three stages. Good and bad are compared by the sequential test of `analysis.pairs`: no difference,
nothing to search. Then revisions near the median of the probabilities are paired with good. When
one candidate has most of the probability, it is paired with the revision before it, and is named
only when the sequential test finds the change there too.
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
from perfrun.analysis.pairs import Judgement, judge, looks, walsh_averages
from perfrun.analysis.stats import Floats

Status = Literal["found", "range", "not_reproduced", "undecided"]

MAX_PAIRS = 600  # of a whole search
MAX_TEST_PAIRS = 60  # of good with bad, and of a candidate with the one before it
# Of the probability: then the candidate is paired with the revision before it. These pairs tell it
# from both of its neighbours at once, so beginning early saves some (simulations/bisect.py).
_LIKELY = 0.6
_ENOUGH = 0.95  # of the probability after that: then it is named
_CREDIBLE = 0.95  # of the probability is in the range that is named without a culprit
_OPEN = 0.15  # a revision is stayed at while it is good, or bad, with no less than this
_STAY_PAIRS = 8  # so many of one revision; more tell ever less, since revisions differ (_BETWEEN)
# Of Student's t: what is far off tells little. More of them for the location of many pairs made
# searches cheaper, and more of them wrong (simulations/bisect.py).
_DEGREES = 4.0
# Revisions differ a little without a cause, by the layout of their code for one.
_BETWEEN = 0.15  # as a share of the effect
_LEAST_NOISE = 1e-4  # figures that repeat exactly have some all the same
# Effects that are reckoned with, as multiples of the one seen between good and bad: the few pairs
# that were enough to tell these apart exaggerate.
_EFFECTS = np.linspace(0.3, 1.4, 12)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a pair of trials said."""

    a: int
    b: int
    log_ratio: float  # of b over a


@dataclass(frozen=True, kw_only=True)
class Rule:
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
    count: int, measured: Sequence[Pair], broken: AbstractSet[int], rule: Rule
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
    weights = probabilities(testable, told)
    move = _search(testable, weights, told, verified, rule)
    if isinstance(move, Ask) and len(measured) >= rule.max_pairs:
        return _range(testable, weights, told, verified)
    return move


def _search(
    testable: Sequence[int],
    weights: Floats,
    told: Sequence[Pair],
    verified: Judgement,
    rule: Rule,
) -> Ask | End:
    best = int(np.argmax(weights))
    elsewhere = _most_open(testable, weights, told)
    if weights[best] < _LIKELY:
        return elsewhere
    after, last = testable[best], testable[best + 1]
    change, decided = _sequential(_between(told, after, last), rule)
    if not decided:
        return Ask(a=after, b=last, why="confirm")
    if weights[best] < _ENOUGH:  # these pairs count, whichever way they went
        return elsewhere
    if change.verdict != verified.verdict:
        return _range(testable, weights, told, verified)
    return End(
        status="found" if last == after + 1 else "range",
        after=after,
        last=last,
        probability=float(weights[best]),
        change=change,
        verified=verified,
    )


def _sequential(log_ratios: Sequence[float], rule: Rule) -> tuple[Judgement, bool]:
    """What the pairs of two revisions say, and whether that is the last word."""
    asked = paired.Rule(max_pairs=rule.max_test_pairs, min_effect=rule.min_effect)
    told = tuple(log_ratios)
    for look in looks(asked.max_pairs):
        if look > len(told):
            return _judged(told, asked), False
        judgement = _judged(told[:look], asked)
        if judgement.verdict != "undecided":
            # All pairs there are make the better estimate, when they agree.
            whole = _judged(told, asked)
            return (whole if whole.verdict == judgement.verdict else judgement), True
    return _judged(told, asked), True


@lru_cache(maxsize=1024)  # a search asks the same again at each of its moves
def _judged(log_ratios: tuple[float, ...], asked: paired.Rule) -> Judgement:
    # Which direction is the better one is for the report: here a change is a change.
    return judge(log_ratios, "lower", asked)


def probabilities(testable: Sequence[int], told: Sequence[Pair]) -> Floats:
    """How likely the first bad revision is after testable[i] and not after testable[i + 1].

    Every revision is as likely as another before anything was measured.
    """
    groups = _groups(told)
    noise = _noise(list(groups.values()))
    effect = _location(groups[testable[0], testable[-1]])
    effects = effect * _EFFECTS
    between = _BETWEEN * abs(effect)
    place = {index: at for at, index in enumerate(testable)}
    # One row an interval of testable revisions, filled by sums over differences.
    steps = np.zeros((len(testable), len(effects)))
    for (a, b), log_ratios in groups.items():
        spread = math.hypot(noise / math.sqrt(len(log_ratios)), between)
        found = _location(log_ratios)
        gain = _log_likelihood((found - effects) / spread) - _log_likelihood(found / spread)
        low, high = sorted((place[a], place[b]))
        steps[low] += gain
        steps[high] -= gain
    likelihoods = np.cumsum(steps, axis=0)[:-1]
    prior = np.log(np.diff(testable))[:, None]
    weights = np.exp(likelihoods + prior - np.max(likelihoods + prior))
    shares: Floats = weights.sum(axis=1) / weights.sum()
    return shares


def _log_likelihood(errors: Floats | float) -> Floats:
    """Student's t, but for what all errors share."""
    found: Floats = -(_DEGREES + 1) / 2 * np.log1p(np.square(np.asarray(errors)) / _DEGREES)
    return found


def _groups(told: Sequence[Pair]) -> dict[tuple[int, int], list[float]]:
    groups: dict[tuple[int, int], list[float]] = {}
    for pair in told:
        groups.setdefault((pair.a, pair.b), []).append(pair.log_ratio)
    return groups


def _between(told: Sequence[Pair], a: int, b: int) -> list[float]:
    return [pair.log_ratio for pair in told if (pair.a, pair.b) == (a, b)]


def _location(log_ratios: Sequence[float]) -> float:
    return float(np.median(walsh_averages(np.asarray(log_ratios))))


def _noise(groups: Sequence[Sequence[float]]) -> float:
    """Standard deviation of a pair, from how far the pairs of the same revisions are apart."""
    residuals = [
        (np.asarray(group) - np.median(group)) * math.sqrt(len(group) / (len(group) - 1))
        for group in groups
        if len(group) > 2
    ]
    return max(1.4826 * float(np.median(np.abs(np.concatenate(residuals)))), _LEAST_NOISE)


def _most_open(testable: Sequence[int], weights: Floats, told: Sequence[Pair]) -> Ask:
    """The pair of which it is least known whether the first bad revision is between its two."""
    asked = {pair: len(log_ratios) for pair, log_ratios in _groups(told).items()}
    good, bad = testable[0], np.cumsum(weights)  # at i: how likely testable[i + 1] is bad
    last = told[-1]
    if last.a == good and last.b != testable[-1] and asked[good, last.b] < _STAY_PAIRS:
        known = bad[testable.index(last.b) - 1]
        if _OPEN <= known <= 1 - _OPEN:  # to change the revision takes time
            return Ask(a=good, b=last.b, why="search")
    best = int(np.argmax(weights))
    options = [(good, revision) for revision in testable[1:-1]]
    options.append((testable[best], testable[best + 1]))
    inside = np.append(bad[:-1], weights[best])
    again = np.array([asked.get(option, 0) for option in options])
    a, b = options[int(np.argmax(inside * (1 - inside) / (1 + again / _STAY_PAIRS)))]
    return Ask(a=a, b=b, why="search")


def _range(
    testable: Sequence[int], weights: Floats, told: Sequence[Pair], verified: Judgement
) -> End:
    """The smallest run of revisions that has 95 % of the probability."""
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
        change=judge(there, "lower", paired.Rule()) if there else None,
        verified=verified,
    )
