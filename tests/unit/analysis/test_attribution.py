"""Differences of profiles whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from perfrun.analysis.attribution import Attribution, attribute, rows_to_test

ROWS = 100
TURNS = 10


def profiles(
    generator: np.random.Generator,
    slowed: tuple[int, float] | None = None,
    *,
    alike: float = 1.0,
    turns: int = TURNS,
) -> list[dict[int, float]]:
    """Profiles of a hundred rows on a busy machine: a factor of each process, and stalls."""
    work = np.linspace(1, 3, ROWS) / np.linspace(1, 3, ROWS).sum()
    if slowed is not None:
        work[slowed[0]] *= slowed[1]
    found = []
    for _ in range(turns):
        times = work * alike * np.exp(0.1 * generator.standard_normal())
        times = times * np.exp(0.05 * generator.standard_normal(ROWS))
        for row in generator.choice(ROWS, size=5, p=times / times.sum()):
            times[row] += 0.05 * generator.exponential()
        found.append(dict(enumerate(map(float, times))))
    return found


def explained(base: list[dict[int, float]], new: list[dict[int, float]]) -> Attribution[int]:
    return attribute(base, new, tests=len(rows_to_test(base, new)) + 1, has_common=True)


def test_equal_sides_name_nothing() -> None:
    generator = np.random.default_rng(1)
    named = 0
    for _ in range(100):
        found = explained(profiles(generator), profiles(generator))
        named += found.common_is_named or any(row.named for row in found.rows)
    assert named <= 3  # of a hundred, where one is expected at most


def test_a_row_that_does_more_is_named_first_and_alone() -> None:
    generator = np.random.default_rng(2)
    first = alone = 0
    for number in range(50):
        found = explained(profiles(generator), profiles(generator, (number, 4.0)))
        named = [row.row for row in found.rows if row.named]
        first += named[:1] == [number]
        alone += named == [number]
    assert first >= 48
    assert alone >= 47


def test_what_all_rows_share_is_a_finding_of_its_own() -> None:
    generator = np.random.default_rng(3)
    found = explained(profiles(generator), profiles(generator, alike=1.6))
    assert found.common_is_named
    assert found.common is not None
    assert found.common.new == pytest.approx(1.6, rel=0.1)
    assert [row.row for row in found.rows if row.named] == []


def test_a_new_row_and_one_that_is_gone_are_named_with_their_signs() -> None:
    generator = np.random.default_rng(4)
    base, new = profiles(generator), profiles(generator)
    for one in base:
        one[100] = 0.3 + 0.01 * generator.standard_normal()
    for one in new:
        one[101] = 0.4 + 0.01 * generator.standard_normal()
    named = {row.row: row.change for row in explained(base, new).rows if row.named}
    assert named.keys() == {100, 101}
    assert named[101].base == 0.0
    assert named[101].difference == pytest.approx(0.4, rel=0.2)
    assert named[100].difference == pytest.approx(-0.3, rel=0.2)


def test_a_difference_that_is_sure_but_small_is_not_named() -> None:
    base = [{0: 1.0, 1: 0.010 + turn * 1e-6} for turn in range(6)]
    new = [{0: 1.0, 1: 0.015 + turn * 1e-6} for turn in range(6)]
    small = next(row for row in explained(base, new).rows if row.row == 1)
    assert small.change.is_sure
    assert not small.named


def test_intervals_hold_for_all_rows_together() -> None:
    generator = np.random.default_rng(5)
    outside = 0
    for _ in range(60):
        found = explained(profiles(generator), profiles(generator))
        outside += any(row.change.is_sure for row in found.rows)
    assert outside <= 3


def test_empty_and_single_profiles_have_no_intervals() -> None:
    found = explained([{}], [{}])
    assert found.rows == ()
    single = explained([{1: 1.0}], [{1: 2.0}])
    assert [row.named for row in single.rows] == [False]
    assert single.rows[0].change.interval is None
