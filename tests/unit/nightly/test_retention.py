"""The trials that a policy removes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.nightly.retention import Policy, parse_age, to_be_removed
from perfrun.summary.record import SummaryRecord, record_of
from tests.summaries import summary

DAY = 86400.0
BEGIN = datetime(2026, 11, 1, 23, 0).timestamp()


def trials(days: int, method: str = "m", each: int = 1) -> list[SummaryRecord]:
    """Return `each` trials of each night; the second is after midnight."""
    return [
        record_of(
            summary(
                method=method,
                name=f"{method}-{day}-{number}",
                run_id=f"{method}-run-{day}",
                timestamp=BEGIN + day * DAY + number * 2 * 3600,
            ),
            Path(f"/out/{method}-{day}-{number}/perfzero_summary.json"),
        )
        for day in range(days)
        for number in range(each)
    ]


def removed(own: list[SummaryRecord], policy: Policy, **more: set[str]) -> list[str]:
    now = BEGIN + 10 * DAY
    return [one.execution_id for one in to_be_removed(own, policy, now=now, **more)]


def test_without_a_policy_nothing_goes() -> None:
    assert removed(trials(5), Policy()) == []


def test_the_last_nights_stay_whole_also_after_midnight() -> None:
    found = removed(trials(4, each=2), Policy(keep_nights=2))
    assert found == ["m-0-0", "m-0-1", "m-1-0", "m-1-1"]


def test_the_newest_of_each_series_stay() -> None:
    own = [*trials(3, "a"), *trials(1, "b")]
    assert removed(own, Policy(keep_per_series=1)) == ["a-0-0", "a-1-0"]


def test_what_is_younger_stays() -> None:
    assert removed(trials(10), Policy(older_than_s=7.5 * DAY)) == ["m-0-0", "m-1-0", "m-2-0"]


def test_each_policy_has_to_let_a_trial_go() -> None:
    own = trials(10)
    policy = Policy(keep_nights=9, older_than_s=5 * DAY)
    assert removed(own, policy) == ["m-0-0"]
    assert removed(own, Policy(keep_per_series=8, older_than_s=9.5 * DAY)) == ["m-0-0"]


def test_both_sides_of_a_change_stay_with_all_trials_of_their_runs() -> None:
    own = [*trials(5, each=2), *trials(5, "other")]
    found = removed(own, Policy(keep_nights=1), neighbours={"m-1-0", "m-2-1"})
    assert [one for one in found if one.startswith("m-")] == ["m-0-0", "m-0-1", "m-3-0", "m-3-1"]
    assert len([one for one in found if one.startswith("other")]) == 4


def test_runs_that_can_go_on_stay() -> None:
    assert removed(trials(3), Policy(keep_nights=1), unfinished={"m-run-0"}) == ["m-1-0"]


@pytest.mark.parametrize(("text", "days"), [("90d", 90), ("2w", 14), ("36h", 1.5), ("0.5d", 0.5)])
def test_ages_are_days_weeks_or_hours(text: str, days: float) -> None:
    assert parse_age(text, "--older_than") == days * DAY


@pytest.mark.parametrize("text", ["90", "d", "-1d", "1y", "1 month"])
def test_other_ages_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write 90d"):
        parse_age(text, "--older_than")
