"""Predict the trials of a search among ordered revisions, from the simulation of its rule.

Two sequential tests and the halving between them are needed however clear the change is; noise adds
its square. The numbers are fitted to simulations/bisect.py, with 1 to 1,000 revisions after the
good one and a noise of up to the change itself: single searches scatter by a half around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfrun.analysis.stats import median

_ONE_TEST, _TWO_TESTS = 16.0, 32.0  # trials: eight pairs are the fewest that a test decides from
_HALVING = 2.5  # trials for each halving of the revisions
_NOISE, _NOISE_HALVING = 20.0, 36.0  # the same, where a trial's noise is as large as the change


def expected_trials(revisions: int, noise: float = 0.0) -> int:
    """Return how many trials a search among so many revisions after the good one takes.

    `noise` is the standard deviation of a trial as a share of the change.
    """
    halvings = math.log2(max(revisions, 1))
    clear = _ONE_TEST if revisions < 2 else _TWO_TESTS + _HALVING * halvings
    return math.ceil(clear + (_NOISE + _NOISE_HALVING * halvings) * noise**2)


def noise_of(log_ratios: Sequence[float]) -> float | None:
    """Return a trial's noise as a share of the change, from pairs of good and bad.

    None where it cannot be told: fewer than two pairs, or no change at all.
    """
    if len(log_ratios) < 2:
        return None
    change = median(log_ratios)
    spread = 1.4826 * median([abs(one - change) for one in log_ratios])
    return spread / math.sqrt(2) / abs(change) if change else None
