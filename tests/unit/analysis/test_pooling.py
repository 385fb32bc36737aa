"""Noise that the series of a suite share."""

from __future__ import annotations

import numpy as np

from perfrun.analysis.noise import Baseline, Floats, estimated_baselines, windows_before
from perfrun.analysis.pooling import FEWEST_TO_POOL, pooled
from simulations.detect import gaussian
from simulations.noises import drifting


def baselines(table: Floats) -> Baseline:
    """Return the baselines of whole series of 60 observations, a row each."""
    count = len(table)
    logs = np.log(table).ravel()
    ends = np.arange(60, 60 * count + 1, 60)
    return estimated_baselines(
        windows_before(logs, np.zeros(len(logs)), ends, ends - 60, ends - 60)
    )


def test_equal_noise_is_estimated_by_the_whole_suite() -> None:
    own = baselines(gaussian(np.random.default_rng(1), (200, 60), 0.02))
    made, freedom = pooled(own)
    spreads = made.scale * made.spread
    assert np.std(np.log(spreads)) < 0.3 * np.std(np.log(own.scale * own.spread))
    assert abs(np.median(spreads) / 0.02 - 1) < 0.1
    assert np.std(made.memory) < 0.3 * np.std(own.memory)
    assert (freedom > 100).all()


def test_memories_of_two_kinds_stay_apart() -> None:
    generator = np.random.default_rng(2)
    kinds = [gaussian(generator, (150, 60), 0.02), drifting(generator, (50, 60), 0.02)]
    made, _ = pooled(baselines(np.concatenate(kinds)))
    assert np.median(made.memory[:150]) < 0.2
    assert np.median(made.memory[150:]) > 0.45


def test_spreads_that_differ_much_are_left_as_they_are() -> None:
    generator = np.random.default_rng(3)
    spreads = generator.choice((0.005, 0.01, 0.02, 0.03), 200)
    own = baselines(np.concatenate([gaussian(generator, (1, 60), one) for one in spreads]))
    made, freedom = pooled(own)
    assert np.max(np.abs(np.log(made.spread / own.spread))) < 0.15
    assert (freedom < 10).all()


def test_a_few_series_say_nothing_of_each_other() -> None:
    own = baselines(gaussian(np.random.default_rng(4), (FEWEST_TO_POOL - 1, 60), 0.02))
    made, freedom = pooled(own)
    assert made is own
    assert not freedom.any()
