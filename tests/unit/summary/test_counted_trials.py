"""The choice of the trials that enter the figures of a set."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perfrun.summary.counted_trials import counted


@dataclass(frozen=True)
class One:
    disturbed: bool


@pytest.mark.parametrize(
    ("quiet", "disturbed", "count"),
    [(0, 0, 0), (3, 0, 3), (3, 1, 3), (2, 2, 2), (1, 2, 3), (0, 3, 3)],
)
def test_disturbed_trials_are_left_out_unless_they_are_the_most(
    quiet: int, disturbed: int, count: int
) -> None:
    trials = [One(disturbed=True)] * disturbed + [One(disturbed=False)] * quiet
    assert len(counted(trials)) == count
