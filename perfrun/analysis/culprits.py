"""How likely each revision is the first bad one, after some pairs. Numbers in, numbers out.

If revision c is the first bad one, the pairs of a and b scatter around the effect when
a < c <= b, and around 0 otherwise. So every pair tells something of every candidate:
Horstein's probabilistic bisection (IEEE Transactions on Information Theory 9, 1963; Waeber, Frazier
and Henderson, SIAM Journal on Control and Optimization 51, 2013), with the likelihood of the
figures instead of a yes or no.

The likelihood is Student's t (Lange, Little and Taylor, Journal of the American Statistical
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

# Revisions differ a little without a cause, by the layout of their code for one.
_BETWEEN = 0.15  # standard deviation of a pair's location, as a share of the effect
# And once in a while a lot: then the pairs of that revision say nothing.
_STRAY = 0.01
_LEAST_NOISE = 1e-4  # figures that repeat exactly have some all the same
# Effects that are reckoned with, as multiples of the one seen between good and bad: the few pairs
# that were enough to tell these apart exaggerate.
_EFFECTS = np.linspace(0.3, 1.4, 12)
# Of good, in standard deviations: all pairs against it have that in common.
_DEVIATIONS = np.linspace(-2.5, 2.5, 5)
_DEGREES = np.array([2.0, 3.0, 4.0, 6.0, 10.0, 20.0])
# Before any pair: as if so many had been seen that have 4 degrees of freedom.
_USUAL, _USUAL_PAIRS = 4.0, 10.0
_SCALES = np.geomspace(0.6, 1.5, 16)  # that are tried, as multiples of a robust estimate


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a pair of trials said."""

    a: int
    b: int
    log_ratio: float  # of b over a


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How pairs of the same two revisions scatter: Student's t."""

    scale: float
    degrees: float


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What the pairs say of the revisions that can be tested."""

    testable: tuple[int, ...]
    # At i: how likely the first bad one is after testable[i] and not after testable[i + 1].
    shares: Floats
    noise: Noise
    between: float  # standard deviation of what two revisions differ by without a cause

    def worth(self, inside: Floats, pairs: Floats) -> Floats:
        """How much one more pair tells of whether the change is between its two revisions.

        `inside` is how likely it is, `pairs` how many there are. More pairs of the same two tell
        ever less of it, since they say more and more exactly what these two differ by.
        """
        known = 1 + pairs * (self.between / self.noise.scale) ** 2
        found: Floats = inside * (1 - inside) / np.square(known)
        return found


def believe(testable: Sequence[int], told: Sequence[Pair]) -> Belief:
    """Say how likely each candidate is; good and bad must have been paired.

    Every revision is as likely as another before anything was measured.
    """
    groups: dict[tuple[int, int], list[float]] = {}
    for pair in told:
        groups.setdefault((pair.a, pair.b), []).append(pair.log_ratio)
    noise = _noise(list(groups.values()))
    verified = np.asarray(groups[testable[0], testable[-1]])
    effect = float(np.median(walsh_averages(verified)))
    between = _BETWEEN * abs(effect)
    # Every column is a possible effect together with a possible deviation of good itself, which is
    # in all pairs against it.
    effects = np.repeat(effect * _EFFECTS, len(_DEVIATIONS))
    shifts = np.tile(between / math.sqrt(2) * _DEVIATIONS, len(_EFFECTS))
    none, some = _likelihoods(groups, testable[0], effects, shifts, noise, between)
    strays = np.array([ends != (testable[0], testable[-1]) for ends in groups])
    none[strays], some[strays] = _with_strays(none[strays], some[strays])
    # Candidates between the same two of all that were paired are as likely as each other: they have
    # one row, filled by sums over differences.
    paired = sorted({index for ends in groups for index in ends})
    row = {index: at for at, index in enumerate(paired)}
    steps = np.zeros((len(paired), len(effects)))
    for ends, gain in zip(groups, some - none, strict=True):
        low, high = sorted(row[index] for index in ends)
        steps[low] += gain
        steps[high] -= gain
    prior = -np.tile(np.square(_DEVIATIONS) / 2, len(_EFFECTS))
    likelihoods = np.cumsum(steps, axis=0)[:-1] + none.sum(axis=0) + prior
    density = np.exp(likelihoods - np.max(likelihoods)).sum(axis=1)
    weights = density[np.searchsorted(paired, testable[:-1], side="right") - 1] * np.diff(testable)
    shares = weights / weights.sum()
    return Belief(testable=tuple(testable), shares=shares, noise=noise, between=between)


def _with_strays(without: Floats, within: Floats) -> tuple[Floats, Floats]:
    """Pairs of a stray revision are as likely with the change as without."""
    either = np.logaddexp(without, within) + math.log(_STRAY / 2)
    kept = math.log1p(-_STRAY)
    return np.logaddexp(kept + without, either), np.logaddexp(kept + within, either)


def _likelihoods(
    groups: Mapping[tuple[int, int], Sequence[float]],
    good: int,
    effects: Floats,
    shifts: Floats,
    noise: Noise,
    between: float,
) -> tuple[Floats, Floats]:
    """For each group and column the logarithms of how likely its pairs are without and with it."""
    counts = np.array([len(group) for group in groups.values()])
    numbers = np.concatenate([np.asarray(group) for group in groups.values()])
    against_good = np.array([pair[0] == good for pair in groups])
    own = np.where(against_good, between / math.sqrt(2), between)
    # With this scale the mean of a group is as uncertain as noise and what revisions differ by
    # make it together.
    scales = np.repeat(np.sqrt(noise.scale**2 + counts * own**2), counts)[:, None]
    shifted = numbers[:, None] - np.repeat(against_good, counts)[:, None] * shifts
    begins = np.concatenate(([0], np.cumsum(counts)[:-1]))
    power = -(noise.degrees + 1) / 2

    def sums(errors: Floats) -> Floats:
        logs = power * np.log1p(np.square(errors / scales) / noise.degrees)
        found: Floats = np.add.reduceat(logs, begins, axis=0)
        return found

    return sums(shifted), sums(shifted - effects)


def _noise(groups: Sequence[Sequence[float]]) -> Noise:
    """Fit it to how far the pairs of the same revisions are apart, by maximum likelihood."""
    residuals = np.concatenate([_residuals(tuple(group)) for group in groups if len(group) > 1])
    rough = max(1.4826 * float(np.median(np.abs(residuals))), _LEAST_NOISE)
    scales = rough * _SCALES
    squares = np.square(residuals[:, None] / scales)  # pairs, scales
    best = (-math.inf, Noise(scale=rough, degrees=_USUAL))
    for degrees in _DEGREES:
        constant = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
        constant -= math.log(degrees) / 2
        logs = constant - np.log(scales) - (degrees + 1) / 2 * np.log1p(squares / degrees).mean(0)
        at = int(np.argmax(logs))
        likelihood = len(residuals) * float(logs[at]) - _doubt(float(degrees))
        if likelihood > best[0]:
            best = (likelihood, Noise(scale=float(scales[at]), degrees=float(degrees)))
    return best[1]


def _doubt(degrees: float) -> float:
    return abs(math.log2(degrees / _USUAL))


@lru_cache(maxsize=4096)  # of a search's groups, one changes with each pair
def _residuals(group: tuple[float, ...]) -> Floats:
    found: Floats = np.asarray(group) - np.median(group)
    return found * math.sqrt(len(group) / (len(group) - 1))
