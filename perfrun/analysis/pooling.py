"""Improve the estimates of each series' noise by those of the other series of its suite.

Sixty nights show spread and memory of a series only roughly; hundreds of such series show how much
spreads and memories differ. What the estimates differ by beyond their sampling errors is true. So
each estimate is moved to the mean of all by the share that is error (empirical Bayes: Efron and
Morris, JASA 68, 1973). In a suite whose series differ much nothing moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfrun.analysis.noise import Baseline

Floats = NDArray[np.float64]

FEWEST_TO_POOL = 30  # series; fewer say too little about how much they differ
# Sampling variances, times the number of observations: of the logarithm of a spread of clipped
# values, and of a memory of 0.
_SPREAD_ERROR = 0.75
_MEMORY_ERROR = 1.2
_MARGIN = 0.85
_LEAST_MARGIN = 0.06
_MOST_MEMORY = 0.8
_MOST_FREEDOM = 300.0  # that the suite adds


class Pooled(NamedTuple):
    """A baseline with the noise of its suite, and the degrees of freedom that this adds."""

    baseline: Baseline
    freedom: Floats


class _Shrunk(NamedTuple):
    values: Floats
    errors: Floats  # standard errors
    between: float  # variance between the series


def pooled(baseline: Baseline) -> Pooled:
    """Return the baselines of the series of a suite, a row each, with pooled memory and spread."""
    count = baseline.noise_count
    if len(count) < FEWEST_TO_POOL:
        return Pooled(baseline, np.zeros(len(count)))
    estimated = baseline.estimated_memory
    memories = _shrunk(estimated, _MEMORY_ERROR * (1 - estimated**2) / count, count)
    margin = np.maximum(_MARGIN * memories.errors, _LEAST_MARGIN)
    memory = np.clip(memories.values + margin, 0, _MOST_MEMORY)
    spreads = _shrunk(np.log(baseline.scale * baseline.spread), _SPREAD_ERROR / count, count)
    # A prior of this variance is worth so many degrees of freedom (of a logarithm: 1 / (2 d)).
    freedom = min(0.5 / max(spreads.between, 1e-9), _MOST_FREEDOM)
    made = baseline._replace(
        memory=memory,
        fresh=1 - memory**2,
        spread=np.exp(spreads.values) / baseline.scale,
    )
    return Pooled(made, np.full(len(count), freedom))


def _shrunk(estimates: Floats, variances: Floats, weights: Floats) -> _Shrunk:
    """Move estimates with these sampling variances to their mean, as far as these explain."""
    mean = float(np.average(estimates, weights=weights))
    excess = np.average(np.square(estimates - mean) - variances, weights=weights)
    between = max(0.0, float(excess))
    own = between / (between + variances)
    of_mean = float(np.mean(variances)) / len(estimates)
    return _Shrunk(
        values=mean + own * (estimates - mean),
        errors=np.sqrt(own * variances + np.square(1 - own) * of_mean),
        between=between,
    )
