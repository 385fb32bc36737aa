"""The lines of statistics below the table of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfrun.reports.advice import advice
from perfrun.reports.figures import percent
from perfrun.reports.run_table import statistics_lines
from perfrun.summary.document import Status, TrialResult
from perfrun.summary.estimates import MethodEstimate

ONE = MethodEstimate(
    name="m.C.a",
    trials=1,
    used=1,
    disturbed=0,
    failed=0,
    median_s=1.5,
    low_s=None,
    high_s=None,
    relative_half_width=None,
    relative_noise=None,
    minimum_detectable_effect=None,
    stopped_by="trials",
)
MANY = replace(
    ONE,
    trials=8,
    used=8,
    low_s=1.4877,
    high_s=1.5123,
    relative_half_width=0.0082,
    relative_noise=0.0101,
    minimum_detectable_effect=0.0153,
    stopped_by="precision",
)


def test_a_run_of_single_trials_says_once_what_that_lacks() -> None:
    [line] = statistics_lines([ONE, replace(ONE, name="m.C.b")])
    assert "no interval" in line
    assert "--precision" in line


def test_a_run_without_any_figure_says_nothing() -> None:
    assert statistics_lines([]) == []
    assert statistics_lines([replace(ONE, used=0, median_s=None)]) == []


def test_a_method_has_its_median_interval_noise_and_smallest_change() -> None:
    [line] = statistics_lines([MANY])
    assert line == (
        "m.C.a: 8 trials, wall time ±0.82 %; "
        "noise 1 % per trial; changes below 1.5 % would be missed; precision reached"
    )


def test_a_method_of_one_trial_among_others_says_so() -> None:
    lines = statistics_lines([MANY, ONE])
    assert lines[-1] == "m.C.a: 1 trial, no interval; changes it would miss: unknown"


def test_trials_that_are_not_used_are_counted() -> None:
    [line] = statistics_lines([replace(MANY, trials=11, disturbed=2, failed=1)])
    assert "8 of 11 trials" in line
    assert "1 failed; 2 disturbed" in line


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("noise", "noise will not let it"),
        ("max_trials", "--max_trials"),
        ("time_budget", "--time_budget"),
        ("failed", "keeps failing"),
        ("no_figure", "no wall time"),
        ("interrupted", "interrupted"),
    ],
)
def test_the_reason_to_stop_is_said(reason: str, said: str) -> None:
    assert said in statistics_lines([replace(MANY, stopped_by=reason)])[0]


@pytest.mark.parametrize(
    ("share", "text"), [(None, "?"), (0.0123, "1.2 %"), (0.5, "50 %"), (12.0, "1200 %"), (0, "0 %")]
)
def test_shares_are_percentages(share: float | None, text: str) -> None:
    assert percent(share) == text


def trials(name: str, cost_s: float, count: int = 3) -> list[TrialResult]:
    own = {"outcome": {"status": "passed"}, "usage": {"elapsed_s": cost_s}}
    document = {"benchmark_result": {"wall_time": 1.5}, "perfrun": own}
    return [
        TrialResult(name=name, trial_id=at, status=Status.PASSED, summary="x", document=document)
        for at in range(count)
    ]


WIDE = replace(MANY, relative_half_width=0.2, relative_noise=0.073)


def test_the_trials_and_the_time_of_a_precision_are_told_from_the_noise_seen() -> None:
    both = [WIDE, replace(WIDE, name="m.C.b", relative_noise=0.05)]
    results = [*trials("m.C.a", 10.0), *trials("m.C.b", 20.0)]
    assert advice(both[:1], results) == (
        "On this machine, as it was, \u00b15 % needs about 15 trials, 2 min in all: --precision=5%"
    )
    assert advice([*both, MANY], results) == (
        "On this machine, as it was, \u00b15 % needs about 7 to 15 trials each for 2 of 3 methods, "
        "5 min in all: --precision=5%"
    )
    told = advice(both[:1], results, 0.02)
    assert told is not None
    assert told.endswith("about 89 trials, 15 min in all: --precision=2% --max_trials=89")
    assert "more than 1,000 trials" in str(advice([replace(WIDE, relative_noise=2.0)], results))
    assert advice([MANY, ONE, replace(WIDE, used=2)], results) is None
