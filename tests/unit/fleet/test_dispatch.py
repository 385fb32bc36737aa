"""Shards and slots: every shard once, and those of a lost slot on another one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfrun.errors import Interrupted
from perfrun.fleet.dispatch import Answer, Dispatch, shuffled
from perfrun.run.interruption import Interruption
from tests.submissions import plan


class Slot:
    """A slot that answers as it is told; without an answer left, the shard ends."""

    def __init__(self, name: str, *answers: Answer) -> None:
        self.name, self._answers = name, list(answers)
        self.had: list[int] = []
        self.closed = False

    def run(self, index: int, stop: threading.Event) -> Answer:
        self.had.append(index)
        return self._answers.pop(0) if self._answers else Answer.ENDED

    def close(self) -> None:
        self.closed = True


def go(slots: list[Slot], count: int) -> list[str]:
    notes: list[str] = []
    Dispatch(slots, range(count), notes.append, lambda _: None).run(Interruption())
    return notes


def test_every_shard_runs_once_and_every_slot_is_left_as_it_was() -> None:
    slots = [Slot("a"), Slot("b")]
    assert go(slots, 20) == []
    assert sorted(slots[0].had + slots[1].had) == list(range(20))
    assert all(slot.closed for slot in slots)


def test_the_shards_of_a_lost_slot_go_to_others() -> None:
    both_have_one = threading.Barrier(2, timeout=60)

    class Together(Slot):
        def run(self, index: int, stop: threading.Event) -> Answer:
            if not self.had:
                both_have_one.wait()
            return super().run(index, stop)

    lost, left = Together("lost", Answer.LOST), Together("left")
    notes = go([lost, left], 6)
    assert sorted(left.had) == list(range(6))
    assert len(lost.had) == 1
    assert (lost.closed, left.closed) == (False, True)
    assert notes == ["lost does not answer as it should; its shards go to other machines"]


def test_a_shard_is_tried_once_on_every_slot_and_no_slot_for_ever() -> None:
    slots = [Slot(name, *[Answer.MACHINE] * 9) for name in ("a", "b")]
    notes = go(slots, 9)
    assert all(len(slot.had) == len(set(slot.had)) == 3 for slot in slots)
    assert "a failed 3 times in a row; its shards go to other machines" in notes
    assert all(slot.closed for slot in slots)
    assert notes[-1] == "no machine is left for 9 shards"
    bad = [Slot("a", Answer.MACHINE), Slot("b", Answer.MACHINE)]
    assert go(bad, 1) == []
    assert [slot.had for slot in bad] == [[0], [0]]


class Without(Slot):
    """A slot on which shards of the odd numbers cannot be measured."""

    def run(self, index: int, stop: threading.Event) -> Answer:
        super().run(index, stop)
        return Answer.MACHINE if index % 2 else Answer.ENDED


@pytest.mark.parametrize("gives_up", [True, False])
@pytest.mark.parametrize("order", [range(100), [*range(1, 100, 2), *range(0, 100, 2)]])
def test_an_environment_that_is_missing_does_not_keep_the_others_from_running(
    gives_up: bool, order: Sequence[int]
) -> None:
    slot, notes = Without("a"), list[str]()
    environments = {index: "bad" if index % 2 else "good" for index in order}
    made = Dispatch(
        [slot], order, notes.append, lambda _: None, None, environments, gives_up=gives_up
    )
    made.run(Interruption())
    assert {index for index in slot.had if index % 2 == 0} == set(range(0, 100, 2))
    assert slot.closed
    failed = sum(index % 2 for index in slot.had)
    if gives_up:
        assert failed == 3
        assert notes == [
            "a failed 3 times with bad; such shards go to other machines",
            "no machine is left for 47 shards",
        ]
    else:  # this machine is the only one
        assert (failed, notes) == (50, [])


def test_an_environment_that_is_missing_on_a_slot_runs_on_another() -> None:
    slots = [Without("a"), Slot("b")]
    environments = {index: "bad" if index % 2 else "good" for index in range(40)}
    made = Dispatch(slots, range(40), lambda _: None, lambda _: None, None, environments)
    made.run(Interruption())
    assert set(slots[0].had) | set(slots[1].had) == set(range(40))
    assert set(slots[1].had) >= set(range(1, 40, 2))


def test_what_has_run_on_a_slot_may_fail_there_often() -> None:
    slot = Slot("a", Answer.ENDED, *[Answer.MACHINE] * 8)
    assert go([slot], 12) == []
    assert sorted(slot.had) == list(range(12))


def test_a_signal_ends_what_runs() -> None:
    interruption = Interruption()

    class Waiting(Slot):
        def run(self, index: int, stop: threading.Event) -> Answer:
            super().run(index, stop)
            interruption._number = 15  # as a signal does
            assert stop.wait(60)
            return Answer.ENDED

    slot = Waiting("a")
    dispatch = Dispatch([slot], range(3), print, lambda _: None)
    with pytest.raises(Interrupted):
        dispatch.run(interruption)
    assert slot.had == [0]


def test_an_error_of_a_slot_is_raised() -> None:
    class Broken(Slot):
        def run(self, index: int, stop: threading.Event) -> Answer:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        go([Broken("a")], 2)


def test_rounds_stay_in_order_and_each_has_its_own(tmp_path: Path) -> None:
    made = plan(tmp_path, 20, 2)
    order = shuffled(made, range(40))
    assert sorted(order[:20]) == list(range(20))
    assert [index + 20 for index in order[:20]] != order[20:]
    assert order == shuffled(made, range(40))
    assert shuffled(made, [3, 30, 5])[-1] == 30


def test_a_shard_that_is_bound_to_a_node_runs_there_or_nowhere() -> None:
    slots = [Slot("a", Answer.ENDED, Answer.MACHINE), Slot("b", Answer.LOST)]
    bound = {0: "a", 1: "b", 2: "a", 3: "b", 4: ""}
    made = Dispatch(slots, range(5), lambda _: None, lambda _: None, bound)
    made.run(Interruption())
    assert slots[0].had[:2] == [0, 2]
    assert slots[1].had == [1]
    assert 4 in slots[0].had
