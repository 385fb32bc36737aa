"""A run's result and its document."""

from __future__ import annotations

import json
from typing import Any

from perfrun.summary.document import Status, TrialResult
from perfrun.summary.estimates import RunResult, estimates, run_document


def trial(
    name: str, trial_id: int, wall_time: float, status: Status = Status.PASSED, **own: Any
) -> TrialResult:
    return TrialResult(
        name=name,
        trial_id=trial_id,
        status=status,
        summary=f"/w/{trial_id}.json",
        document={
            "benchmark_result": {"wall_time": wall_time},
            "perfrun": {"outcome": {"status": status.value}, **own},
        },
    )


def test_a_method_that_is_asked_for_twice_is_one_method() -> None:
    trials = [trial("m.C.a", 1, 1.0), trial("m.C.a", 1, 1.1), trial("m.C.b", 1, 2.0)]
    found = estimates(trials, {"m.C.a": "trials", "m.C.b": "trials"}, sequential=False)
    assert [(method.name, method.trials) for method in found] == [("m.C.a", 2), ("m.C.b", 1)]


def test_a_method_that_never_began_is_there_without_figures() -> None:
    [found] = estimates([], {"m.C.a": "interrupted"}, sequential=False)
    assert (found.trials, found.median_s, found.stopped_by) == (0, None, "interrupted")


def test_an_interrupted_trial_is_neither_a_value_nor_a_failure() -> None:
    trials = [trial("m.C.a", 1, 1.0), trial("m.C.a", 2, -1, Status.INTERRUPTED)]
    [found] = estimates(trials, {"m.C.a": "interrupted"}, sequential=False)
    assert (found.trials, found.failed, found.median_s) == (1, 0, 1.0)


def test_the_run_that_a_disturbed_trial_got_instead_counts() -> None:
    trials = [
        trial("m.C.a", 1, 9.0, quality={"disturbed": True}),
        trial("m.C.a", 2, 1.0, quality={"disturbed": False}),
        trial("m.C.a", 3, 1.2, quality={"disturbed": False}),
    ]
    [found] = estimates(trials, {"m.C.a": "trials"}, sequential=False)
    assert (found.trials, found.used, found.disturbed, found.median_s) == (3, 2, 1, 1.1)


def test_the_document_is_json_with_everything_in_it() -> None:
    trials = (trial("m.C.a", 1, 1.0),)
    methods = estimates(trials, {"m.C.a": "trials"}, sequential=False)
    result = RunResult(trials=trials, interrupted=False, methods=methods, seed=7)
    document = json.loads(json.dumps(run_document(result)))
    assert document["results"] == [
        {
            "name": "m.C.a",
            "trial_id": 1,
            "status": "passed",
            "grade": None,
            "summary": "/w/1.json",
        }
    ]
    assert document["seed"] == 7
    assert document["methods"][0]["minimum_detectable_effect"] is None
    assert document["methods"][0]["stopped_by"] == "trials"
