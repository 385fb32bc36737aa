"""The estimate of a method from its trials."""

from __future__ import annotations

from typing import Any

import pytest

from perfrun.summary.estimates import (
    MethodEstimate,
    TrialObservation,
    estimate,
    observe,
    used_values,
)

VALUES = (1.0, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0)


def document(
    wall_time: Any = 1.5, status: str = "passed", disturbed: bool | None = None
) -> dict[str, Any]:
    own: dict[str, Any] = {"outcome": {"status": status}, "usage": {"elapsed_s": 2.5}}
    if disturbed is not None:
        own["quality"] = {"disturbed": disturbed}
    return {"benchmark_result": {"wall_time": wall_time}, "perfrun": own}


def of(*values: float, sequential: bool = False) -> MethodEstimate:
    seen = [TrialObservation(value=value, ran=True) for value in values]
    return estimate("m.C.a", seen, stopped_by="trials", sequential=sequential)


def test_a_trial_that_ran_is_seen_with_its_wall_time_and_cost() -> None:
    assert observe(document()) == TrialObservation(value=1.5, ran=True, cost_s=2.5)
    assert observe(document(status="out_of_bounds")).value == 1.5
    assert observe(document(disturbed=True)).disturbed
    assert not observe(document(disturbed=False)).disturbed


@pytest.mark.parametrize("wall_time", [-1, 0, 0.0, -0.5, "NaN", "Infinity"])
def test_what_is_no_time_is_no_value(wall_time: Any) -> None:
    assert observe(document(wall_time)).value is None


@pytest.mark.parametrize("status", ["failed", "timed_out", "oom_killed"])
def test_what_did_not_run_has_no_value(status: str) -> None:
    seen = observe(document(status=status))
    assert (seen.value, seen.ran) == (None, False)


def test_disturbed_trials_count_only_when_most_were_disturbed() -> None:
    quiet, loud = (
        TrialObservation(value=v, ran=True, disturbed=d) for v, d in ((1, False), (2, True))
    )
    assert used_values([quiet, loud]) == (1,)
    assert used_values([loud, quiet, loud]) == (2, 1, 2)
    assert used_values([loud, loud]) == (2, 2)
    assert used_values([TrialObservation(value=None, ran=True), loud]) == (2,)
    assert used_values([]) == ()


def test_one_quiet_moment_on_a_busy_machine_does_not_throw_the_other_trials_away() -> None:
    trials = [TrialObservation(value=v, ran=True, disturbed=n > 0) for n, v in enumerate(VALUES)]
    found = estimate("m.C.a", trials, stopped_by="max_trials", sequential=True)
    assert (found.used, found.disturbed) == (len(VALUES), len(VALUES) - 1)
    assert found.low_s is not None


def test_one_trial_has_a_median_and_nothing_that_takes_more() -> None:
    found = of(2.0)
    assert (found.trials, found.used, found.median_s) == (1, 1, 2.0)
    assert found.low_s is found.high_s is found.minimum_detectable_effect is None
    assert found.relative_half_width is found.relative_noise is None


def test_no_values_have_nothing() -> None:
    found = estimate(
        "m.C.a", [TrialObservation(value=None, ran=False)], stopped_by="failed", sequential=True
    )
    assert (found.trials, found.used, found.failed, found.median_s) == (1, 0, 1, None)


def test_several_trials_have_an_interval_and_an_effect_that_they_would_show() -> None:
    found = of(*VALUES)
    assert found.median_s == 1.0
    assert found.low_s is not None
    assert found.high_s is not None
    assert found.low_s < 1.0 < found.high_s
    assert found.relative_half_width == pytest.approx((found.high_s - found.low_s) / 2)
    assert found.minimum_detectable_effect is not None
    assert found.relative_noise is not None
    assert found.minimum_detectable_effect > found.relative_noise


def test_an_interval_that_decided_its_own_length_is_wider() -> None:
    plain, steering = of(*VALUES), of(*VALUES, sequential=True)
    assert plain.relative_half_width is not None
    assert steering.relative_half_width is not None
    assert steering.relative_half_width > plain.relative_half_width


def test_equal_values_are_known_exactly() -> None:
    found = of(1.0, 1.0, 1.0)
    assert (found.low_s, found.high_s, found.minimum_detectable_effect) == (1.0, 1.0, 0.0)
