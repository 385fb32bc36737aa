"""Compute how likely each revision is the first bad one, from pairs of trials of two revisions.

If revision c is the first bad one, the pairs of a and b scatter around the effect when
a < c <= b, and around 0 otherwise. So every pair carries information about every candidate:
Horstein's probabilistic bisection (IEEE Transactions on Information Theory 9, 1963; Waeber, Frazier
and Henderson, SIAM Journal on Control and Optimization 51, 2013), with the likelihood of the
figures instead of a yes or no.

Revisions also differ without a cause, by the layout of their code for one. Each revision has a
hidden deviation that all of its pairs share, and the posterior is that of a linear mixed model
(Laird and Ware, Biometrics 38, 1982). In it the pairs of the same two revisions are one figure,
their weighted mean. The size of the deviations and the effect are unknown too, and are integrated
over.

The weights are those of Student's t (Lange, Little and Taylor, Journal of the American Statistical
Association 84, 1989). Its scale and degrees of freedom are fitted to the differences between pairs
of the same revisions. An outlier has little weight, and less the more outliers there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfrun.analysis.pairs import walsh_averages
from perfrun.analysis.stats import Floats

# Standard deviations of revisions that differ without a cause, as shares of the effect, and the
# prior probability of each.
_BETWEEN = np.array([0.05, 0.1, 0.15, 0.2])
_BETWEEN_PRIOR = np.log([0.3, 0.35, 0.25, 0.1])
# The prior probability that a revision is an outlier, which differs by as much as the effect.
_OUTLIER = 0.005
_OUTLIER_BY = 1.0  # standard deviation, as a share of the effect
# Prior mean and standard deviation of the effect, as shares of the one measured between good and
# bad: the few pairs that were enough to tell these apart exaggerate.
_EFFECT, _EFFECT_SPREAD = 0.9, 0.5
_LEAST_NOISE = 1e-4  # also of figures that repeat exactly
_DEGREES = np.array([2.0, 3.0, 4.0, 6.0, 10.0, 20.0])
_USUAL = 4.0  # degrees of freedom with the largest prior probability
_SCALES = np.geomspace(0.6, 1.5, 16)  # to try, as multiples of a robust estimate


@dataclass(frozen=True, kw_only=True)
class RevisionPair:
    """The figure of a pair of trials."""

    a: int
    b: int
    log_ratio: float  # of b over a


@dataclass(frozen=True, kw_only=True)
class PairNoise:
    """The distribution of pairs of the same two revisions around their mean: Student's t."""

    scale: float
    degrees: float

    @property
    def variance(self) -> float:
        """The variance of a location estimated by one pair: the inverse of Fisher's information."""
        return self.scale**2 * (self.degrees + 3) / (self.degrees + 1)


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """The posterior over the revisions that can be tested, given the pairs."""

    testable: tuple[int, ...]
    # At i: the probability that the first bad one is after testable[i], not after testable[i + 1].
    probabilities: Floats
    noise: PairNoise
    between: float  # standard deviation of revisions that differ without a cause
    paired: tuple[int, ...]  # the revisions that are in a pair
    # At i: on condition that the first bad one is after paired[i] and not after paired[i + 1]:
    effects: Floats  # the expected effect
    levels: Floats  # [revision, i]: the expected deviation of each revision
    covariance: Floats  # of these deviations

    def information(self, revisions: Sequence[int]) -> Floats:
        """Return the information about the candidates in one more pair of any two revisions.

        That is the variance of the expected figure over the candidates, relative to the noise. It
        is at [i, j] for i < j, else 0; the revisions are in order.
        """
        cuts = sorted({*revisions, *self.paired})
        sums = np.concatenate(([0.0], np.cumsum(self.probabilities)))
        probabilities = np.diff(sums[np.searchsorted(self.testable, cuts)])
        row = np.searchsorted(self.paired, cuts[:-1], side="right") - 1
        known = np.searchsorted(cuts, self.paired)
        levels = np.zeros((len(cuts), len(row)))
        levels[known] = self.levels[:, row]
        after = np.arange(len(cuts))[:, None] > np.arange(len(row))
        levels += after * self.effects[row]
        levels -= (levels @ probabilities)[:, None]
        explained = _difference_variances((levels * probabilities) @ levels.T)
        covariance = np.eye(len(cuts)) * self.between**2
        covariance[np.ix_(known, known)] = self.covariance
        found = np.triu(explained / (self.noise.variance + _difference_variances(covariance)), 1)
        wanted = np.searchsorted(cuts, revisions)
        information: Floats = found[np.ix_(wanted, wanted)]
        return information


def posterior_of(testable: Sequence[int], measured: Sequence[RevisionPair]) -> Posterior:
    """Return the posterior; good and bad must have been paired.

    The prior probability is the same for every revision.
    """
    groups: dict[tuple[int, int], list[float]] = {}
    for pair in measured:
        groups.setdefault((pair.a, pair.b), []).append(pair.log_ratio)
    noise = _fitted_noise(list(groups.values()))
    verified = np.asarray(groups[testable[0], testable[-1]])
    effect = float(np.median(walsh_averages(verified)))
    # Candidates between the same two paired revisions are equally likely: they are one row.
    paired = tuple(sorted({index for ends in groups for index in ends}))
    model = _model(paired, groups, noise, effect)
    sizes = np.square(_BETWEEN * max(abs(effect), _LEAST_NOISE))  # variances that are tried
    logs = _log_evidence(model, sizes)
    evidence = np.exp(logs - np.max(logs))  # sizes, rows
    row = np.searchsorted(paired, testable[:-1], side="right") - 1
    density = evidence.sum(axis=0)[row] * np.diff(testable)
    # One size of the deviations is enough for the expected figures.
    by_size = evidence @ np.diff(paired)
    between = float(by_size @ sizes / by_size.sum())
    effects, levels, covariance = _expectations(model, between)
    return Posterior(
        testable=tuple(testable),
        probabilities=density / density.sum(),
        noise=noise,
        between=math.sqrt(between),
        paired=paired,
        effects=effects,
        levels=levels,
        covariance=covariance,
    )


@dataclass(frozen=True, kw_only=True)
class _Model:
    """Figures = effect x inside + members @ deviations of revisions + noise of variance 1.

    All are in the basis in which the covariance of the figures is diagonal for any variance of the
    deviations: 1 + variance x factors.
    """

    figures: Floats  # one for each group of pairs
    inside: Floats  # groups, rows of candidates
    members: Floats  # groups, revisions
    factors: Floats
    effect: float  # measured between good and bad


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
    """Return the weighted mean and the precision of each group of pairs.

    With these, a normal distribution distinguishes the effect from 0 as Student's t does.
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
    """Return the log likelihood of the pairs, up to a constant: [size, row].

    Effect and deviations are integrated over. At most one revision is an outlier; two are too rare.
    """
    weights = 1 / (1 + sizes[:, None] * model.factors)  # sizes, groups
    mean, precision = _prior(model.effect)
    # Quadratic forms of figures and steps, without an outlier, ...
    plain = weights @ np.square(model.figures)
    cross = weights @ (model.inside * model.figures[:, None])
    steps = weights @ np.square(model.inside)
    # ... and with each revision as the outlier: [size, row, revision], by the formula of Sherman
    # and Morrison.
    members = model.members[:, 1:-1]  # good and bad are none: they have been seen to differ
    weighted = weights[:, :, None] * members
    more = np.square(_OUTLIER_BY * model.effect)
    grown = 1 + more * (weights @ np.square(members))
    figures = np.einsum("g,sgp->sp", model.figures, weighted)
    inside = model.inside.T @ weighted
    share = (more / grown)[:, None, :]
    plains = plain[:, None, None] - share * np.square(figures)[:, None, :]
    crosses = cross[:, :, None] - share * inside * figures[:, None, :]
    stepses = steps[:, :, None] - share * np.square(inside)
    usual = _over_effects(plain[:, None], cross, steps, mean, precision) + math.log1p(-_OUTLIER)
    outliers = _over_effects(plains, crosses, stepses, mean, precision)
    outliers += math.log(_OUTLIER) - np.log(grown)[:, None, :] / 2
    either = np.logaddexp(usual, np.logaddexp.reduce(outliers, axis=2))
    found: Floats = either + (_BETWEEN_PRIOR + np.log(weights).sum(axis=1) / 2)[:, None]
    return found


def _over_effects(
    plain: Floats, cross: Floats, steps: Floats, mean: float, precision: float
) -> Floats:
    """Return the log likelihood integrated over the effect, whose prior is normal."""
    sharp = steps + precision
    found: Floats = (np.square(cross + mean * precision) / sharp - plain - np.log(sharp)) / 2
    return found


def _prior(effect: float) -> tuple[float, float]:
    """Return prior mean and precision of the effect."""
    return _EFFECT * effect, (_EFFECT_SPREAD * max(abs(effect), _LEAST_NOISE)) ** -2


def _expectations(model: _Model, between: float) -> tuple[Floats, Floats, Floats]:
    """Return expected effects, expected deviations and their covariance, as in `Posterior`."""
    weights = 1 / (1 + between * model.factors)
    mean, precision = _prior(model.effect)
    effects = weights @ (model.inside * model.figures[:, None]) + mean * precision
    effects /= weights @ np.square(model.inside) + precision
    members = (weights[:, None] * model.members).T
    levels = between * members @ (model.figures[:, None] - model.inside * effects)
    covariance = between * np.eye(len(members)) - between**2 * members @ model.members
    return effects, levels, covariance


def _difference_variances(covariance: Floats) -> Floats:
    """Return the variance of the difference of any two."""
    own = np.diag(covariance)
    found: Floats = own[:, None] + own - 2 * covariance
    return found


def _fitted_noise(groups: Sequence[Sequence[float]]) -> PairNoise:
    """Fit the noise to the residuals of pairs of the same revisions, by penalised likelihood."""
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
        likelihood = len(residuals) * float(logs[at]) - abs(math.log2(degrees / _USUAL))
        if likelihood > best[0]:
            best = (likelihood, PairNoise(scale=float(scales[at]), degrees=float(degrees)))
    return best[1]


@lru_cache(maxsize=4096)  # each pair changes only one of a search's groups
def _residuals(group: tuple[float, ...]) -> Floats:
    found: Floats = np.asarray(group) - np.median(group)
    return found * math.sqrt(len(group) / (len(group) - 1))
