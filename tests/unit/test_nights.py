"""From trials to nights."""

from __future__ import annotations

from datetime import datetime

from perfrun.nights import nights_of
from perfrun.store.query import Point


def point(value: float, when: str, *, run_id: str = "", disturbed: bool = False) -> Point:
    return Point(
        execution_id=f"{when}={value}",
        run_id=run_id,
        timestamp=datetime.fromisoformat(when).timestamp(),
        value=value,
        status="passed",
        grade="A",
        disturbed=disturbed,
        commits={},
        label="",
        summary_path="",
    )


def test_the_trials_of_a_run_are_one_observation() -> None:
    trials = [point(value, "2026-11-01 23:50", run_id="r") for value in (3.0, 1.0, 2.0)]
    late = point(9.0, "2026-11-02 13:00", run_id="r")
    (night,) = nights_of([*trials, late])
    assert night.value == 2.5
    assert night.point.value in (2.0, 3.0)
    assert night.day == datetime(2026, 11, 1).toordinal()


def test_without_a_run_a_night_lasts_from_noon_to_noon() -> None:
    evening, morning = point(1.0, "2026-11-01 22:00"), point(3.0, "2026-11-02 04:00")
    nights = nights_of([evening, morning, point(5.0, "2026-11-02 12:30")])
    assert [night.value for night in nights] == [2.0, 5.0]


def test_disturbed_trials_do_not_count_unless_they_are_the_most() -> None:
    quiet = [point(value, "2026-11-01 23:00", run_id="r") for value in (1.0, 1.2)]
    disturbed = point(9.0, "2026-11-01 23:00", run_id="r", disturbed=True)
    (night,) = nights_of([*quiet, disturbed])
    assert (night.value, night.disturbed) == (1.1, False)
    (night,) = nights_of([quiet[0], disturbed, disturbed])
    assert (night.value, night.disturbed) == (9.0, True)


def test_a_disturbed_night_is_left_out_unless_most_are() -> None:
    quiet = [point(1.0, f"2026-11-0{day} 23:00", run_id=str(day)) for day in (1, 2, 3)]
    bad = [
        point(9.0, f"2026-11-0{day} 23:00", run_id=str(day), disturbed=True) for day in (4, 5, 6, 7)
    ]
    assert [night.value for night in nights_of([*quiet, bad[0]])] == [1.0] * 3
    assert [night.value for night in nights_of([*quiet, *bad])] == [1.0] * 3 + [9.0] * 4


def test_nothing_has_no_nights() -> None:
    assert nights_of([]) == ()
