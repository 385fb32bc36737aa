"""The order of trials: rounds, their shuffling, re-runs, resumed runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.options.parsers import Repetition
from perfrun.run.schedule import MOST_FAILURES, Schedule, Step
from perfrun.summary.estimates import TrialObservation

Says = Callable[[Step], TrialObservation]
PRECISE = Repetition(precision=0.01, max_reruns=2)
NAMES = ("m.C.a", "m.C.b", "m.C.c")
JITTER = (0.0, 0.3, -0.4, 0.2, -0.1, 0.4, -0.3, 0.1, -0.2)


def value(number: float, cost_s: float = 1.0, *, disturbed: bool = False) -> TrialObservation:
    return TrialObservation(value=number, ran=True, cost_s=cost_s, disturbed=disturbed)


def jittering(spread: float) -> Says:
    return lambda step: value(1 + spread * JITTER[step.trial_id % len(JITTER)])


def played(
    schedule: Schedule, says: Says, budget_s: float | None = None, most: int = 500
) -> list[Step]:
    """Run a schedule to its end on a clock of its own."""
    spent_s, steps = 0.0, []
    while planned := schedule.next_round(None if budget_s is None else budget_s - spent_s):
        for step in planned:
            if not schedule.fits(step, None if budget_s is None else budget_s - spent_s):
                continue
            seen = says(step)
            steps.append(step)
            spent_s += seen.cost_s
            schedule.note(step, seen)
            assert len(steps) < most
    return steps


def counts(steps: list[Step]) -> Counter[str]:
    return Counter(step.method for step in steps)


def test_one_round_keeps_the_order_that_was_asked_for() -> None:
    schedule = Schedule(NAMES, 1, Repetition(), seed=3)
    steps = played(schedule, jittering(0))
    assert [step.method for step in steps] == list(NAMES)
    assert schedule.seed is None
    assert set(schedule.stopped_by().values()) == {"trials"}


def test_rounds_are_shuffled_each_in_its_own_way_and_the_same_for_the_same_seed() -> None:
    names = [f"m.C.m{number}" for number in range(10)]
    runs = [played(Schedule(names, 5, Repetition(), seed=seed), jittering(0)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    rounds = [tuple(s.method for s in runs[0] if s.round == number) for number in range(1, 6)]
    assert len(set(rounds)) == 5
    assert all(sorted(members) == sorted(names) for members in rounds)
    assert [{s.trial_id for s in runs[0] if s.round == number} for number in (1, 5)] == [{1}, {5}]


def test_the_order_of_a_seed_does_not_change_between_versions() -> None:
    steps = played(Schedule(NAMES, 2, Repetition(), seed=42), jittering(0))
    assert [step.method[-1] for step in steps] == list("abcbac")


def test_a_quiet_method_gets_the_pilot_and_a_noisy_one_more() -> None:
    schedule = Schedule(NAMES, 1, PRECISE, seed=1)
    spreads = dict(zip(NAMES, (0.001, 0.03, 0.5), strict=True))
    steps = played(schedule, lambda step: jittering(spreads[step.method])(step))
    assert counts(steps)["m.C.a"] == 6
    assert 6 < counts(steps)["m.C.b"] < 30
    assert schedule.stopped_by() == {
        "m.C.a": "precision",
        "m.C.b": "precision",
        "m.C.c": "noise",
    }
    assert schedule.total is None


def test_more_trials_than_the_pilot_may_be_the_least() -> None:
    steps = played(Schedule(NAMES[:1], 9, PRECISE, seed=1), jittering(0.001))
    assert len(steps) == 9


def test_a_method_that_keeps_failing_is_not_tried_for_ever() -> None:
    schedule = Schedule(NAMES[:2], 1, PRECISE, seed=1)
    failed = TrialObservation(value=None, ran=False, cost_s=1.0)
    steps = played(schedule, lambda s: failed if s.method == "m.C.a" else value(1.0))
    assert counts(steps) == {"m.C.a": MOST_FAILURES, "m.C.b": 6}
    assert schedule.stopped_by()["m.C.a"] == "failed"


def test_a_method_that_fails_once_still_gets_its_values() -> None:
    schedule = Schedule(NAMES[:1], 1, PRECISE, seed=1)
    failed = TrialObservation(value=None, ran=False, cost_s=1.0)
    steps = played(schedule, lambda s: failed if s.trial_id == 2 else value(1.0))
    assert len(steps) == 7
    assert schedule.stopped_by() == {"m.C.a": "precision"}


@pytest.mark.parametrize("num_trials", [1, 3])
def test_without_a_wall_time_a_method_runs_the_fixed_number(num_trials: int) -> None:
    schedule = Schedule(NAMES[:1], num_trials, PRECISE, seed=1)
    steps = played(schedule, lambda step: TrialObservation(value=None, ran=True, cost_s=1.0))
    assert len(steps) == num_trials
    assert schedule.stopped_by() == {"m.C.a": "no_figure"}


def test_a_fixed_number_is_run_whatever_fails() -> None:
    schedule = Schedule(NAMES[:1], 5, Repetition(), seed=1)
    steps = played(schedule, lambda step: TrialObservation(value=None, ran=False))
    assert len(steps) == 5


def test_every_method_runs_once_however_little_time_there_is() -> None:
    schedule = Schedule(NAMES, 1, PRECISE, seed=1)
    steps = played(schedule, jittering(0.001), budget_s=0.5)
    assert counts(steps) == dict.fromkeys(NAMES, 1)
    assert set(schedule.stopped_by().values()) == {"time_budget"}


@settings(deadline=None)
@given(st.floats(1, 200), st.integers(0, 5))
def test_a_time_budget_is_overrun_by_little(budget_s: float, seed: int) -> None:
    schedule = Schedule(NAMES, 1, PRECISE, seed=seed)
    costs = dict(zip(NAMES, (0.3, 2.0, 9.0), strict=True))
    steps = played(
        schedule, lambda s: value(jittering(0.05)(s).value or 0, costs[s.method]), budget_s
    )
    spent_s = sum(costs[step.method] for step in steps)
    first_round_s = sum(costs.values())
    assert spent_s <= max(budget_s, first_round_s) + 0.1 * 9.0 + 1e-9
    assert all(schedule.stopped_by().values())


def test_a_disturbed_trial_is_run_again_under_the_next_number() -> None:
    schedule = Schedule(NAMES[:2], 3, Repetition(max_reruns=2), seed=1)

    def says(step: Step) -> TrialObservation:
        return value(1.0, disturbed=(step.method, step.trial_id) == ("m.C.a", 2))

    steps = played(schedule, says)
    assert counts(steps) == {"m.C.a": 4, "m.C.b": 3}
    [again] = [step for step in steps if step.rerun_of]
    assert (again.method, again.rerun_of) == ("m.C.a", 2)
    assert len({(step.method, step.trial_id) for step in steps}) == len(steps)


@pytest.mark.parametrize(("max_reruns", "trials"), [(0, 1), (1, 2), (4, 5)])
def test_re_runs_have_an_end_when_every_trial_is_disturbed(max_reruns: int, trials: int) -> None:
    schedule = Schedule(NAMES[:1], 1, Repetition(max_reruns=max_reruns), seed=1)
    steps = played(schedule, lambda step: value(1.0, disturbed=True))
    assert len(steps) == trials
    assert [step.rerun_of for step in steps[1:]] == list(range(1, trials))


def test_re_runs_do_not_count_as_trials_of_the_pilot() -> None:
    schedule = Schedule(NAMES[:1], 1, PRECISE, seed=1)
    steps = played(schedule, lambda step: value(1.0, disturbed=step.trial_id in (1, 3)))
    assert len(steps) == 8
    assert sum(step.rerun_of is not None for step in steps) == 2


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 3))
def test_a_schedule_that_was_cut_short_goes_on_as_it_would_have(cut: int, seed: int) -> None:
    def says(step: Step) -> TrialObservation:
        disturbed = step.trial_id == 2 and step.method == "m.C.b"
        spread = {"m.C.a": 0.001, "m.C.b": 0.03, "m.C.c": 0.05}[step.method]
        seen = jittering(spread)(step)
        return value(seen.value or 0, disturbed=disturbed)

    whole = played(Schedule(NAMES, 1, PRECISE, seed), says)
    # The first part: the planned rounds are in the journal, as are the trials that finished.
    first, rounds, finished = Schedule(NAMES, 1, PRECISE, seed), [], 0
    while finished < cut and (planned := first.next_round()):
        rounds.append(planned)
        for step in planned[: cut - finished]:
            first.note(step, says(step))
            finished += 1
    # The second part, from the journal.
    second, steps = Schedule(NAMES, 1, PRECISE, seed), []
    for planned in rounds:
        for step in second.replay(planned):
            second.note(step, says(step))
            steps.append(step)
    assert steps + played(second, says) == whole


def test_a_planned_method_that_is_gone_is_passed_over() -> None:
    schedule = Schedule(NAMES[:1], 1, Repetition(), seed=1)
    gone = Step(method="m.C.gone", trial_id=1, round=1)
    assert schedule.replay([gone]) == ()


def test_the_time_left_is_that_of_the_trials_to_come() -> None:
    schedule = Schedule(("m.C.a", "m.C.b"), 3, Repetition(max_reruns=1), seed=1)
    assert schedule.left_s() is None
    costs = {"m.C.a": 1.0, "m.C.b": 10.0}
    first, second = schedule.next_round()
    schedule.note(first, value(1, costs[first.method]))
    assert (
        schedule.left_s() == 6 * costs[first.method] - costs[first.method]
    )  # of b nothing is known
    schedule.note(second, value(1, costs[second.method]))
    assert schedule.left_s() == 22.0
    assert schedule.left_s(5.0) == 5.0  # of the budget
    again = next(step for step in schedule.next_round() if step.method == "m.C.a")
    assert schedule.left_s() == 22.0  # given out, and not run yet
    schedule.note(again, value(1, 1.0, disturbed=True))
    assert schedule.left_s() == 22.0  # it runs once more
    played(schedule, lambda step: value(1, costs[step.method]))
    assert schedule.left_s() == 0.0


def test_with_a_precision_the_time_left_follows_from_the_width_so_far() -> None:
    schedule = Schedule(("m.C.a",), 1, PRECISE, seed=1)
    (step,) = schedule.next_round()
    schedule.note(step, value(1.0))
    assert schedule.left_s() == 5.0  # the pilot
    while planned := schedule.next_round():
        schedule.note(planned[0], jittering(0.1)(planned[0]))
        if planned[0].trial_id == 7:
            left_s = schedule.left_s()
            assert left_s is not None
            assert left_s == 23.0  # of the 30 that it may have: this noise is far from 1 %
    assert schedule.left_s() == 0.0
