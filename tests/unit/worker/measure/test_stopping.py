"""When a series stops: made-up intervals, no clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.worker.measure.stopping import FIRST, TIMED, WARMUP, Limits, SeriesProgress

Cost = Callable[[int], float]  # nanoseconds a step, in the interval that begins with the n-th call


def drive(
    limits: Limits, cost: Cost, overhead_ns: float = 200.0
) -> tuple[SeriesProgress, list[str]]:
    """Run a series on a made-up clock; return it and the phase of each interval."""
    progress = SeriesProgress(limits.checked(), overhead_ns)
    now, calls, phases = 0, 0, []
    count = progress.next_count()
    while count:
        phases.append(progress.phase)
        wall = round(cost(calls) * count + overhead_ns)
        calls += count
        now += wall
        progress.add(count, wall, now)
        count = progress.next_count()
    return progress, phases


def noisy(level_ns: float, share: float, seed: int = 1) -> Cost:
    noise = random.Random(seed)
    return lambda _call: level_ns * (1 + share * noise.gauss(0, 1))


@given(st.integers(1, 60), st.integers(0, 20), st.integers(1, 50))
@settings(max_examples=40)
def test_fixed_numbers_are_kept_exactly(iterations: int, warmup: int, block_size: int) -> None:
    limits = Limits(iterations=iterations, warmup=warmup, block_size=block_size)
    progress, phases = drive(limits, noisy(1e6, 0.3))
    assert phases == [FIRST] + [WARMUP] * warmup + [TIMED] * iterations
    assert progress.stopped_by == "iterations"


def test_a_quiet_series_ends_by_its_precision_and_not_before_the_minimum() -> None:
    progress, _ = drive(Limits(), noisy(1e6, 0.01))
    assert progress.stopped_by == "precision"
    assert progress.timed_ns >= 0.5e9
    assert len(progress.times) >= 30
    assert progress.timed_ns < 1e9


def test_a_noisy_series_ends_by_the_time_it_may_take() -> None:
    progress, _ = drive(Limits(precision=0.0001), noisy(1e6, 0.5))
    assert progress.stopped_by == "max_time"
    assert 3e9 <= progress.timed_ns < 3.1e9


def test_a_number_of_iterations_ends_it_too() -> None:
    progress, _ = drive(Limits(precision=0.0001, max_iterations=40), noisy(1e6, 0.5))
    assert (progress.stopped_by, len(progress.times)) == ("max_iterations", 40)


def test_a_step_longer_than_all_limits_is_timed_once() -> None:
    progress, phases = drive(Limits(), lambda _call: 20e9)
    assert phases == [FIRST, WARMUP, TIMED]
    assert progress.stopped_by == "max_time"


def test_a_series_that_gets_slower_all_the_time_is_not_called_precise() -> None:
    # Its median alone would be known well enough; it is no steady figure.
    progress, _ = drive(Limits(precision=0.2), lambda call: 1e6 * (1 + call / 2000))
    assert progress.stopped_by == "max_time"


@given(st.floats(1, 1e8), st.floats(20, 20_000))
@settings(max_examples=40)
def test_the_timer_is_less_than_a_thousandth_of_a_block(step_ns: float, overhead_ns: float) -> None:
    limits = Limits(precision=None, max_time_s=0.3, min_time_s=0)
    progress, _ = drive(limits, lambda call: 1e6 if call == 0 else step_ns, overhead_ns)
    assert overhead_ns <= 0.001 * progress.timed_ns / len(progress.times) * 1.01
    # And a block is not longer than it must be.
    needed_ns = max(overhead_ns / 0.001, 0.3e9 / 10_000)
    assert progress.block_size * step_ns <= 1.5 * needed_ns + 2 * step_ns


@pytest.mark.parametrize("late", [1, 2, 12, 112, 1112])
def test_a_machine_that_stood_still_while_a_block_size_was_looked_for_leaves_no_small_blocks(
    late: int,
) -> None:
    held_up: list[int] = []

    def cost(call: int) -> float:
        if call == late and not held_up:
            held_up.append(call)
            return 1.5e9  # a step; far more than a warm-up may take
        return 100.0

    progress, phases = drive(Limits(max_time_s=0.2, min_time_s=0), cost)
    assert held_up
    assert phases.count(WARMUP) >= 10
    assert progress.timed_ns / len(progress.times) >= 1000 * 200  # of the timer


def test_steps_that_take_longer_than_the_first_call_are_warmed_up_once_more_and_not_again() -> None:
    _, phases = drive(Limits(), lambda call: 20e9 if call else 1e6)
    assert phases == [FIRST, WARMUP, WARMUP, TIMED]


def test_a_slow_start_is_in_the_warm_up_and_not_in_the_times() -> None:
    progress, phases = drive(Limits(), lambda call: 1e6 * (1 + 5 * 0.5**call))
    assert phases.count(WARMUP) > 5
    assert max(progress.times) < 1.02e6


def test_the_warm_up_goes_on_while_something_is_compiled() -> None:
    progress = SeriesProgress(Limits(max_time_s=100, block_size=1), 200.0)
    progress.add(1, 10**6, 0)
    for _ in range(50):
        progress.add(1, 10**6, 0, compiled=True)
        assert progress.phase is WARMUP
    for _ in range(20):
        progress.add(1, 10**6, 0)
    assert progress.phase is TIMED


def test_the_precision_is_looked_at_rarely() -> None:
    checks = 0

    class Counting(SeriesProgress):
        def _check_is_due(self, count: int, elapsed_s: float) -> bool:
            nonlocal checks
            due = super()._check_is_due(count, elapsed_s)
            checks += due
            return due

    limits = Limits(precision=1e-9, max_iterations=3000, max_time_s=1e3, block_size=1)
    progress = Counting(limits, 1.0)
    cost, now = noisy(1e6, 0.1), 0
    while count := progress.next_count():
        wall = round(cost(0))
        now += wall
        progress.add(count, wall, now)
    assert 1 <= checks < 40


def test_a_clock_that_stands_still_does_not_make_blocks_grow_for_ever() -> None:
    progress = SeriesProgress(Limits(iterations=3, warmup=5), 1000.0)
    while count := progress.next_count():
        assert count <= 10**8
        progress.add(count, 0, 0)
    assert progress.stopped_by == "iterations"


@pytest.mark.parametrize(
    ("limits", "kind", "said"),
    [
        (Limits(iterations=0), ValueError, "iterations is 0; it must be at least 1"),
        (Limits(warmup=-1), ValueError, "warmup is -1"),
        (Limits(warmup=True), TypeError, "warmup is True"),
        (Limits(block_size=1.5), TypeError, "block_size is 1.5"),  # type: ignore[arg-type]
        (Limits(max_time_s=0), ValueError, "max_time_s is 0; it must be above 0"),
        (Limits(max_time_s=float("nan")), ValueError, "max_time_s is nan"),
        (Limits(precision="1%"), TypeError, "precision is '1%'"),  # type: ignore[arg-type]
        (Limits(precision=1), ValueError, "0.01 is 1 %"),
        (Limits(min_iterations=50, max_iterations=20), ValueError, "min_iterations is 50, above"),
        (Limits(min_time_s=5), ValueError, "min_time_s is 5, above max_time_s, 3"),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(
    limits: Limits, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said.replace("(", r"\(")):
        limits.checked()


def test_a_maximum_alone_shortens_a_series() -> None:
    progress, _ = drive(Limits(max_time_s=0.1), noisy(1e6, 0.01))
    assert progress.timed_ns < 0.2e9
    progress, _ = drive(Limits(max_iterations=5), noisy(1e6, 0.01))
    assert len(progress.times) == 5
