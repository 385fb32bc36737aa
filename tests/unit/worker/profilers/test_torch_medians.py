"""The times of operators in a profile: what disturbs few steps does not count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfrun.worker.profilers.torch import median_times


def event(name: str, at: int, us: float, shapes: object = ()) -> Any:
    return SimpleNamespace(
        key=name,
        self_cpu_time_total=us,
        input_shapes=shapes,
        time_range=SimpleNamespace(start=at),
    )


def test_a_call_is_compared_with_those_at_its_place_in_other_steps() -> None:
    """Each step has a short and a long call; in two of the five another process took its turn."""
    times = [10, 100, 10, 100, 9010, 100, 10, 9100, 10, 100]
    events = [event("mm", at, us) for at, us in enumerate(times)]
    assert median_times(reversed(events), 5) == {"mm": pytest.approx(5 * 110e-6)}


def test_steps_of_unlike_numbers_of_calls_are_told_apart_by_shapes() -> None:
    events = [event("mm", at, 10, [[2, 2]]) for at in range(5)]
    events += [event("mm", 10 + at, us, [[9, 9]]) for at, us in enumerate((100, 100, 9000))]
    assert median_times(events, 3) == {"mm": pytest.approx(5 * 10e-6 + 3 * 100e-6)}
    assert median_times(events[:2], 3) == {"mm": pytest.approx(2 * 10e-6)}
