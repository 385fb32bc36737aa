"""The predicted cost of a search, held against the simulation of its rule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfrun.analysis.search_cost import expected_trials, noise_of
from simulations.bisect import gaussian, simulate


@pytest.mark.parametrize(
    ("revisions", "noise", "searches"), [(1, 0.05, 2), (3, 0.1, 4), (30, 0.1, 4), (30, 0.5, 6)]
)
def test_a_search_costs_about_what_is_predicted(
    revisions: int, noise: float, searches: int
) -> None:
    effect = 0.1
    spread = noise * math.log1p(effect)
    found = simulate(revisions, effect, spread, gaussian, 0.0, searches, between=0.002)
    ratio = float(np.mean(found.trials)) / expected_trials(revisions, noise)
    assert 0.7 < ratio < 1.4, found.trials


def test_the_noise_is_a_share_of_the_change() -> None:
    random = np.random.default_rng(1)
    trials = random.normal(0, 0.02, (2000, 2))
    ratios = 0.1 + trials[:, 1] - trials[:, 0]
    assert noise_of(list(ratios)) == pytest.approx(0.2, rel=0.1)
    assert noise_of([0.1]) is None
    assert noise_of([0.0, 0.0, 0.0]) is None
