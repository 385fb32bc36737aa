"""The chances of a false alarm do not add up over all that one `perfrun versus` judges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfrun.analysis.pairs import FALSE_ALARMS
from simulations.noises import NOISES
from simulations.versus import FIGURES, family_alarms

RUNS = 1500
LUCK = 2.6 * math.sqrt(FALSE_ALARMS * (1 - FALSE_ALARMS) / RUNS)  # 1 in 200


@pytest.mark.parametrize(("ratios", "rounds"), [(1, 8), (1, 30), (3, 12), (3, 30)])
def test_at_most_five_calls_in_a_hundred_say_anything_of_what_is_the_same(
    ratios: int, rounds: int
) -> None:
    found = family_alarms(
        np.random.default_rng(1), RUNS, ratios, rounds, corrected_for=ratios * FIGURES
    )
    assert found <= FALSE_ALARMS + LUCK


@pytest.mark.parametrize("noise", NOISES)
def test_whatever_the_noise(noise: str) -> None:
    found = family_alarms(
        np.random.default_rng(2), RUNS, 2, 20, corrected_for=2 * FIGURES, noise=noise
    )
    assert found <= FALSE_ALARMS + LUCK


def test_shared_by_the_ratios_alone_they_did() -> None:
    generator = np.random.default_rng(3)
    assert family_alarms(generator, RUNS, 1, 8, corrected_for=1) > 2 * FALSE_ALARMS
    assert family_alarms(generator, RUNS, 1, 30, corrected_for=1) > FALSE_ALARMS + LUCK
