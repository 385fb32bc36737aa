"""benchmarks/timing.py against clocks of known length."""

from __future__ import annotations

import time

import pytest

from benchmarks import timing


class Queue:
    """A device that works behind the program's back: calls return at once, work takes time."""

    def __init__(self, work_s: float) -> None:
        self._work_s = work_s
        self._busy_until = time.perf_counter()

    def launch(self) -> None:
        self._busy_until = max(self._busy_until, time.perf_counter()) + self._work_s

    def synchronize(self) -> None:
        time.sleep(max(0.0, self._busy_until - time.perf_counter()))


def test_a_sleep_of_known_length_reads_back_in_seconds() -> None:
    timed = timing.measure(lambda: time.sleep(0.02), warmup=0, iterations=7)
    assert len(timed.iterations_s) == 7
    assert min(timed.iterations_s) >= 0.02
    assert 0.02 <= timed.median_s < 0.06
    assert timed.first_call_s >= 0.02


def test_sleeping_costs_wall_time_and_hardly_any_cpu_time() -> None:
    timed = timing.measure(lambda: time.sleep(0.02), warmup=0, iterations=5)
    assert 0 <= timed.cpu_s < 0.01


def test_work_that_runs_behind_the_call_is_waited_for() -> None:
    device = Queue(0.02)
    timed = timing.measure(device.launch, device.synchronize, warmup=2, iterations=5)
    assert min(timed.iterations_s) >= 0.0199
    assert timed.first_call_s >= 0.0199
    assert timed.median_s < 0.06


def test_without_the_wait_only_launches_would_be_timed() -> None:
    # This is the mistake the loop exists to prevent: the test above must be able to fail.
    timed = timing.measure(Queue(0.02).launch, warmup=2, iterations=5)
    assert timed.median_s < 0.005


def test_work_queued_before_and_during_warm_up_is_not_counted() -> None:
    device = Queue(0.05)
    device.launch()
    timed = timing.measure(device.launch, device.synchronize, warmup=4, iterations=3)
    assert timed.first_call_s < 0.095
    assert max(timed.iterations_s) < 0.095


@pytest.mark.parametrize("warmup", [0, 3])
def test_each_step_is_called_as_often_as_asked(warmup: int) -> None:
    calls: list[str] = []
    timed = timing.measure(
        lambda: calls.append("step"), lambda: calls.append("wait"), warmup=warmup, iterations=2
    )
    assert calls == ["wait", "step", "wait", *["step"] * warmup, "wait", *["step", "wait"] * 2]
    assert len(timed.iterations_s) == 2


def test_the_first_call_is_kept_apart_from_the_timed_ones() -> None:
    lengths = iter([0.05, 0.0, 0.0, 0.0])
    timed = timing.measure(lambda: time.sleep(next(lengths)), warmup=0, iterations=3)
    assert timed.first_call_s >= 0.05
    assert max(timed.iterations_s) < 0.05


@pytest.mark.parametrize(
    ("steps", "p90"),
    [((4.0,), 4.0), ((1.0, 2.0), 1.9), (tuple(range(11, 0, -1)), 10.0), ((5, 1, 3, 2, 4), 4.6)],
)
def test_the_90th_percentile_is_interpolated(steps: tuple[float, ...], p90: float) -> None:
    timed = timing.Timing(first_call_s=9.0, iterations_s=steps, cpu_s=0.0)
    assert timed.p90_s == pytest.approx(p90)


def test_throughput_is_a_fraction_where_a_step_takes_longer_than_a_second() -> None:
    timed = timing.Timing(first_call_s=9.0, iterations_s=(4.0, 4.0), cpu_s=2.0)
    reported = timing.report(timed, 1, [timing.known_value("parameters", 7, 7)])
    assert reported["throughput"] == 0.25
    assert reported["wall_time"] == 4.0
    assert reported["cpu_time"] == 2.0
    assert reported["iters"] == 2
    assert reported["metrics"][-1] == {
        "name": "parameters",
        "value": 7,
        "min_value": 7,
        "max_value": 7,
    }
