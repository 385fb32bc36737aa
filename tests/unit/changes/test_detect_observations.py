"""The observations of a series, made from its trials."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perfrun.changes import detect as module
from perfrun.changes.observations import Observation
from perfrun.store.query import Origin, Origins, Point


def point(
    value: float, when: str, *, run_id: str = "", disturbed: bool = False, status: str = "passed"
) -> Point:
    return Point(
        execution_id=f"{when}={value}",
        run_id=run_id,
        timestamp=datetime.fromisoformat(when).timestamp(),
        value=value,
        status=status,
        grade="A",
        disturbed=disturbed,
        commits={},
        label="",
        summary_path="",
    )


def observations_of(points: Sequence[Point]) -> tuple[Observation, ...]:
    origins = [Origin(*point[:3], *point[4:]) for point in points]
    return tuple(module.observations_of(Origins(origins), [point.value for point in points]))


def test_the_trials_of_a_run_are_one_observation() -> None:
    trials = [point(value, "2026-11-01 23:50", run_id="r") for value in (3.0, 1.0, 2.0)]
    late = point(9.0, "2026-11-02 13:00", run_id="r")
    (observation,) = observations_of([*trials, late])
    assert observation.value == 2.5
    assert observation.point.value in (2.0, 3.0)
    assert observation.day == datetime(2026, 11, 1).toordinal()


def test_without_a_run_a_night_lasts_from_noon_to_noon() -> None:
    evening, morning = point(1.0, "2026-11-01 22:00"), point(3.0, "2026-11-02 04:00")
    observations = observations_of([evening, morning, point(5.0, "2026-11-02 12:30")])
    assert [observation.value for observation in observations] == [2.0, 5.0]


def test_disturbed_trials_do_not_count_unless_they_are_the_most() -> None:
    quiet = [point(value, "2026-11-01 23:00", run_id="r") for value in (1.0, 1.2)]
    disturbed = point(9.0, "2026-11-01 23:00", run_id="r", disturbed=True)
    (observation,) = observations_of([*quiet, disturbed])
    assert (observation.value, observation.disturbed) == (1.1, False)
    (observation,) = observations_of([quiet[0], disturbed, disturbed])
    assert (observation.value, observation.disturbed) == (9.0, True)


def test_trials_that_missed_a_bound_do_not_count_unless_they_are_the_most() -> None:
    right = [point(value, "2026-11-01 23:00", run_id="r") for value in (1.0, 1.2)]
    wrong = point(0.1, "2026-11-01 23:00", run_id="r", status="out_of_bounds")
    (observation,) = observations_of([*right, wrong])
    assert observation.value == 1.1
    (observation,) = observations_of([right[0], wrong, wrong])
    assert observation.value == 0.1


def test_a_disturbed_night_is_left_out_unless_most_are() -> None:
    quiet = [point(1.0, f"2026-11-0{day} 23:00", run_id=str(day)) for day in (1, 2, 3)]
    bad = [
        point(9.0, f"2026-11-0{day} 23:00", run_id=str(day), disturbed=True) for day in (4, 5, 6, 7)
    ]
    assert [observation.value for observation in observations_of([*quiet, bad[0]])] == [1.0] * 3
    found = [observation.value for observation in observations_of([*quiet, *bad])]
    assert found == [1.0] * 3 + [9.0] * 4


def test_nothing_has_no_nights() -> None:
    assert observations_of([]) == ()


def test_metrics_of_the_same_trials_share_their_nights_and_not_their_figures() -> None:
    points = [point(value, "2026-11-01 23:00", run_id="r") for value in (1.0, 2.0, 3.0)]
    later = point(5.0, "2026-11-02 23:00", run_id="s")
    origins = Origins([Origin(*one[:3], *one[4:]) for one in [*points, later]])
    first = module.observations_of(origins, [1.0, 2.0, 3.0, 5.0])
    second = module.observations_of(origins, [9.0, 4.0, 7.0, 5.0])
    assert (list(first.values), list(second.values)) == ([2.0, 5.0], [7.0, 5.0])
    assert [observation.point.value for observation in second] == [7.0, 5.0]
    assert second[0].point.execution_id == points[2].execution_id


def test_a_night_that_is_replayed_later_counts_as_of_the_day_it_stands_after() -> None:
    points = [point(1.0, f"2026-11-0{day} 23:00", run_id=str(day)) for day in (2, 1, 3)]
    found = module.observations_of(
        Origins([Origin(*one[:3], *one[4:]) for one in points]), [1.0] * 3
    )
    days = [datetime(2026, 11, day).toordinal() for day in (2, 1, 3)]
    assert [observation.day for observation in found] == days
    assert list(found.not_falling) == [days[0], days[0], days[2]]
