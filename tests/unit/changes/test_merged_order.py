"""The order of the commits of several repositories, whatever their clocks say."""

from __future__ import annotations

import random

from perfrun.changes.merged_order import merged_steps, settled
from perfrun.workspace.commits import Commit


def commits(name: str, *times: float) -> list[Commit]:
    return [
        Commit(f"{name}{at}", "A", "2026", f"commit {at}", committed=time)
        for at, time in enumerate(times)
    ]


def names(*histories: list[Commit]) -> list[str]:
    named = {own[0].git_hash[0]: own for own in histories}
    return [step.commit.git_hash for step in merged_steps(named)]


def test_commits_follow_each_other_by_their_times() -> None:
    steps = merged_steps({"a": commits("a", 0, 10, 30), "b": commits("b", 5, 20)})
    assert [step.commit.git_hash for step in steps] == ["b0", "a1", "b1", "a2"]
    assert [step.repository for step in steps] == ["b", "a", "b", "a"]
    assert [dict(step.commits) for step in steps] == [
        {"a": "a0", "b": "b0"},
        {"a": "a1", "b": "b0"},
        {"a": "a1", "b": "b1"},
        {"a": "a2", "b": "b1"},
    ]


def test_one_wrong_clock_does_not_move_the_commits_after_it() -> None:
    early, late = commits("a", 0, 10, 9000, 30, 40), commits("a", 0, 10, -9000, 30, 40)
    other = commits("b", 5, 15, 35)
    for own in (early, late):
        assert names(own, other) == ["b0", "a1", "a2", "b1", "a3", "b2", "a4"]


def test_each_repository_keeps_its_own_order() -> None:
    drawn = random.Random(7)
    for _ in range(200):
        own = [
            commits(name, *(drawn.choice([0, 1, 2, 1e12]) for _ in range(drawn.randint(1, 7))))
            for name in "abc"
        ]
        found = names(*own)[1:]
        for history in own:
            expected = [one.git_hash for one in history[1:]]
            assert [one for one in found if one[0] == history[0].git_hash[0]] == expected


def test_as_few_times_as_can_be_are_changed() -> None:
    assert settled([1, 2, 2, 3]) == [1, 2, 2, 3]
    assert settled([1, 9, 2, 3]) == [1, 1, 2, 3]
    assert settled([9, 1, 2, 3]) == [1, 1, 2, 3]
    assert settled([1, 2, 3, 0]) == [1, 2, 3, 3]
    assert settled([]) == []
