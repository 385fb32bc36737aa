"""How likely each revision is the first bad one, after some pairs. Numbers in, numbers out.

If revision c is the first bad one, the pairs of a and b scatter around the effect when
a < c <= b, and around 0 otherwise. So every pair tells something of every candidate:
Horstein's probabilistic bisection (IEEE Transactions on Information Theory 9, 1963; Waeber, Frazier
and Henderson, SIAM Journal on Control and Optimization 51, 2013), with the likelihood of the
figures instead of a yes or no.

Revisions also differ without a cause, by the layout of their code for one. That is a hidden number
of each revision, which all of its pairs have in common, and the belief is of all of them together:
a linear mixed model (Laird and Ware, Biometrics 38, 1982), of which the pairs of the same two
revisions are one figure, their weighted mean. How large these numbers are is weighed along with the
candidates, and so is the effect.

The weights are those of Student's t (Lange, Little and Taylor, Journal of the American Statistical
Association 84, 1989), whose scale and degrees of freedom come from how far the pairs of the same
revisions are apart: what is far off tells little, and the more often pairs are, the less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfrun.analysis.pairs import walsh_averages
from perfrun.analysis.stats import Floats

# What revisions differ by without a cause: standard deviations, as shares of the effect, and how
# likely each is before it is seen.
_BETWEEN = np.array([0.05, 0.1, 0.15, 0.2])
_BETWEEN_PRIOR = np.log([0.3, 0.35, 0.25, 0.1])
# And once in a while a lot: one revision by as much as the effect.
_STRAY = 0.005
_STRAY_BY = 1.0  # standard deviation, as a share of the effect
# Of the effect, as a share of the one seen between good and bad: the few pairs that were enough to
# tell these apart exaggerate.
_EFFECT, _EFFECT_SPREAD = 0.9, 0.5
_LEAST_NOISE = 1e-4  # figures that repeat exactly have some all the same
_DEGREES = np.array([2.0, 3.0, 4.0, 6.0, 10.0, 20.0])
# Before any pair: as if so many had been seen that have 4 degrees of freedom.
_USUAL, _USUAL_PAIRS = 4.0, 10.0
_SCALES = np.geomspace(0.6, 1.5, 16)  # that are tried, as multiples of a robust estimate


@dataclass(frozen=True, kw_only=True)
class RevisionPair:
    """What a pair of trials said."""

    a: int
    b: int
    log_ratio: float  # of b over a


@dataclass(frozen=True, kw_only=True)
class PairNoise:
    """How pairs of the same two revisions scatter: Student's t."""

    scale: float
    degrees: float

    @property
    def variance(self) -> float:
        """Of what a pair tells of a location: the inverse of Fisher's information."""
        return self.scale**2 * (self.degrees + 3) / (self.degrees + 1)


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What the pairs say of the revisions that can be tested."""

    testable: tuple[int, ...]
    # At i: how likely the first bad one is after testable[i] and not after testable[i + 1].
    shares: Floats
    noise: PairNoise
    between: float  # standard deviation of what revisions differ by without a cause
    paired: tuple[int, ...]  # the revisions that have been in a pair
    # At i: if the first bad one is after paired[i] and not after paired[i + 1],
    effects: Floats  # the effect that is expected
    levels: Floats  # [revision, i]: and what each revision differs by itself
    doubts: Floats  # covariance of these

    def worth(self, revisions: Sequence[int]) -> Floats:
        """How much one more pair of any two of the revisions, in order, tells of the candidates.

        That is how far what it is expected to say differs from candidate to candidate, compared
        with the noise: [i, j] for i < j, else 0.
        """
        cuts = sorted({*revisions, *self.paired})
        sums = np.concatenate(([0.0], np.cumsum(self.shares)))
        shares = np.diff(sums[np.searchsorted(self.testable, cuts)])
        row = np.searchsorted(self.paired, cuts[:-1], side="right") - 1
        known = np.searchsorted(cuts, self.paired)
        levels = np.zeros((len(cuts), len(row)))
        levels[known] = self.levels[:, row]
        after = np.arange(len(cuts))[:, None] > np.arange(len(row))
        levels += after * self.effects[row]
        levels -= (levels @ shares)[:, None]
        told = _of_differences((levels * shares) @ levels.T)
        doubts = np.eye(len(cuts)) * self.between**2
        doubts[np.ix_(known, known)] = self.doubts
        found = np.triu(told / (self.noise.variance + _of_differences(doubts)), 1)
        wanted = np.searchsorted(cuts, revisions)
        worth: Floats = found[np.ix_(wanted, wanted)]
        return worth


def believe(testable: Sequence[int], told: Sequence[RevisionPair]) -> Belief:
    """Say how likely each candidate is; good and bad must have been paired.

    Every revision is as likely as another before anything was measured.
    """
    groups: dict[tuple[int, int], list[float]] = {}
    for pair in told:
        groups.setdefault((pair.a, pair.b), []).append(pair.log_ratio)
    noise = _noise(list(groups.values()))
    verified = np.asarray(groups[testable[0], testable[-1]])
    effect = float(np.median(walsh_averages(verified)))
    # Candidates between the same two of all that were paired are as likely as each other: a row.
    paired = tuple(sorted({index for ends in groups for index in ends}))
    model = _model(paired, groups, noise, effect)
    sizes = np.square(_BETWEEN * max(abs(effect), _LEAST_NOISE))  # variances that are tried
    logs = _log_evidence(model, sizes)
    evidence = np.exp(logs - np.max(logs))  # sizes, rows
    row = np.searchsorted(paired, testable[:-1], side="right") - 1
    density = evidence.sum(axis=0)[row] * np.diff(testable)
    # For what is expected of a pair, one size of the differences will do.
    by_size = evidence @ np.diff(paired)
    between = float(by_size @ sizes / by_size.sum())
    effects, levels, doubts = _expected(model, between)
    return Belief(
        testable=tuple(testable),
        shares=density / density.sum(),
        noise=noise,
        between=math.sqrt(between),
        paired=paired,
        effects=effects,
        levels=levels,
        doubts=doubts,
    )


@dataclass(frozen=True, kw_only=True)
class _Model:
    """Figures = effect x inside + members @ what revisions differ by + noise of variance 1.

    All in the basis in which the covariance of the figures is diagonal, however much revisions
    differ: 1 + their variance x factors.
    """

    figures: Floats  # a group of pairs each
    inside: Floats  # groups, rows of candidates
    members: Floats  # groups, revisions
    factors: Floats
    effect: float  # seen between good and bad


def _model(
    paired: Sequence[int],
    groups: Mapping[tuple[int, int], Sequence[float]],
    noise: PairNoise,
    effect: float,
) -> _Model:
    means, precisions = _summed(list(groups.values()), noise, effect)
    a, b = np.searchsorted(paired, np.array(list(groups)).T)
    rows, each = np.arange(len(paired) - 1), np.arange(len(groups))
    inside = ((a[:, None] <= rows) & (rows < b[:, None])).astype(float)
    members = np.zeros((len(groups), len(paired)))
    members[each, a], members[each, b] = -1.0, 1.0
    roots = np.sqrt(precisions)
    factors, basis = np.linalg.eigh(roots[:, None] * (members @ members.T) * roots)
    turn = basis.T * roots
    return _Model(
        figures=turn @ means,
        inside=turn @ inside,
        members=turn @ members,
        factors=np.maximum(factors, 0.0),
        effect=effect,
    )


def _summed(
    groups: Sequence[Sequence[float]], noise: PairNoise, effect: float
) -> tuple[Floats, Floats]:
    """Mean and precision of each group, with weights of its pairs.

    With these, a normal law tells the effect from none as well as Student's t does.
    """
    counts = np.array([len(group) for group in groups])
    numbers = np.concatenate([np.asarray(group) for group in groups])
    begins = np.concatenate(([0], np.cumsum(counts)[:-1]))
    within = np.square((numbers - effect) / noise.scale)
    more = (np.square(numbers / noise.scale) - within) / (noise.degrees + within)
    slope = np.ones(len(more))  # of log(1 + more), from 0
    np.divide(np.log1p(more), more, out=slope, where=np.abs(more) > 1e-9)
    weights = (noise.degrees + 1) / (noise.degrees + within) * slope
    sums = np.add.reduceat(weights, begins)
    return np.add.reduceat(weights * numbers, begins) / sums, sums / noise.scale**2


def _log_evidence(model: _Model, sizes: Floats) -> Floats:
    """The logarithm of how likely the pairs are, but for a constant: [size, row].

    Effect and deviations are integrated over. One revision or none is stray; two are too rare.
    """
    weights = 1 / (1 + sizes[:, None] * model.factors)  # sizes, groups
    mean, precision = _prior(model.effect)
    # Quadratic forms of figures and steps, without a stray revision, ...
    plain = weights @ np.square(model.figures)
    cross = weights @ (model.inside * model.figures[:, None])
    steps = weights @ np.square(model.inside)
    # ... and what each of them takes away: [size, row, revision]. Sherman and Morrison's formula.
    members = model.members[:, 1:-1]  # good and bad are not: they have been seen to differ
    weighted = weights[:, :, None] * members
    more = np.square(_STRAY_BY * model.effect)
    grown = 1 + more * (weights @ np.square(members))
    figures = np.einsum("g,sgp->sp", model.figures, weighted)
    inside = model.inside.T @ weighted
    share = (more / grown)[:, None, :]
    plains = plain[:, None, None] - share * np.square(figures)[:, None, :]
    crosses = cross[:, :, None] - share * inside * figures[:, None, :]
    stepses = steps[:, :, None] - share * np.square(inside)
    usual = _integrated(plain[:, None], cross, steps, mean, precision) + math.log1p(-_STRAY)
    strays = _integrated(plains, crosses, stepses, mean, precision)
    strays += math.log(_STRAY) - np.log(grown)[:, None, :] / 2
    either = np.logaddexp(usual, np.logaddexp.reduce(strays, axis=2))
    found: Floats = either + (_BETWEEN_PRIOR + np.log(weights).sum(axis=1) / 2)[:, None]
    return found


def _integrated(
    plain: Floats, cross: Floats, steps: Floats, mean: float, precision: float
) -> Floats:
    """Over the effect, whose prior is normal."""
    sharp = steps + precision
    found: Floats = (np.square(cross + mean * precision) / sharp - plain - np.log(sharp)) / 2
    return found


def _prior(effect: float) -> tuple[float, float]:
    """Mean and precision of the effect."""
    return _EFFECT * effect, (_EFFECT_SPREAD * max(abs(effect), _LEAST_NOISE)) ** -2


def _expected(model: _Model, between: float) -> tuple[Floats, Floats, Floats]:
    """Effects and deviations that the pairs let expect, as `Belief` has them."""
    weights = 1 / (1 + between * model.factors)
    mean, precision = _prior(model.effect)
    effects = weights @ (model.inside * model.figures[:, None]) + mean * precision
    effects /= weights @ np.square(model.inside) + precision
    members = (weights[:, None] * model.members).T
    levels = between * members @ (model.figures[:, None] - model.inside * effects)
    doubts = between * np.eye(len(members)) - between**2 * members @ model.members
    return effects, levels, doubts


def _of_differences(covariance: Floats) -> Floats:
    """The variance of the difference of any two."""
    own = np.diag(covariance)
    found: Floats = own[:, None] + own - 2 * covariance
    return found


def _noise(groups: Sequence[Sequence[float]]) -> PairNoise:
    """Fit it to how far the pairs of the same revisions are apart, by maximum likelihood."""
    residuals = np.concatenate([_residuals(tuple(group)) for group in groups if len(group) > 1])
    rough = max(1.4826 * float(np.median(np.abs(residuals))), _LEAST_NOISE)
    scales = rough * _SCALES
    squares = np.square(residuals[:, None] / scales)  # pairs, scales
    best = (-math.inf, PairNoise(scale=rough, degrees=_USUAL))
    for degrees in _DEGREES:
        constant = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
        constant -= math.log(degrees) / 2
        logs = constant - np.log(scales) - (degrees + 1) / 2 * np.log1p(squares / degrees).mean(0)
        at = int(np.argmax(logs))
        likelihood = len(residuals) * float(logs[at]) - _doubt(float(degrees))
        if likelihood > best[0]:
            best = (likelihood, PairNoise(scale=float(scales[at]), degrees=float(degrees)))
    return best[1]


def _doubt(degrees: float) -> float:
    return abs(math.log2(degrees / _USUAL))


@lru_cache(maxsize=4096)  # of a search's groups, one changes with each pair
def _residuals(group: tuple[float, ...]) -> Floats:
    found: Floats = np.asarray(group) - np.median(group)
    return found * math.sqrt(len(group) / (len(group) - 1))
