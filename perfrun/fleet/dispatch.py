"""Give shards to slots, each of which runs one at a time: the places of an engine that stays.

A slot is a host of `ssh`, or a share of this machine. One that is lost is given no more, and what
it had goes to others. Each slot has a thread, which only waits for a child process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from hashlib import sha256
from typing import Protocol

from perfrun.run.interruption import Interruption
from perfrun.shards.plan import Plan
from perfrun.shown import line

_LOOK_S = 0.2  # between two looks at whether a signal has come
# Of an environment of which nothing has ended on a slot, before it is not tried there any more.
_MOST_FAILURES = 3
_LEAVE_S = 60.0  # for the slots to end what runs when they are told to stop


class Answer(Enum):
    """What became of a shard on a slot."""

    ENDED = "ended"  # its files say how
    MACHINE = "machine failed"  # not here; another slot may do
    LOST = "lost"  # the slot does not answer any more


def shuffled(plan: Plan, indices: Sequence[int]) -> list[int]:
    """Return the shards round by round, each round in a random order that the submission fixes.

    In the order of the plan, two hosts would share out the settings of a sweep, each setting to the
    same host in every round, and a slow host would look like a slow setting.
    """
    if any(shard.node for shard in plan.shards):  # the plan is in the order of each node
        return sorted(indices)
    # Another Python on another machine has to find the same order.
    place = {index: sha256(f"{plan.submission} {index}".encode()).digest() for index in indices}
    return sorted(indices, key=lambda index: (plan.shards[index].round, place[index]))


class Slot(Protocol):
    """A place that runs one shard at a time."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    def run(self, index: int, stop: threading.Event) -> Answer:
        """Run a shard to its end, or until `stop` is set: then end it at once."""

    def close(self) -> None:
        """Leave the place as it was found. Called once no shard can come any more."""


class _Failures:
    """What has failed on a slot, by environment."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._ran: set[str] = set()  # environments of which a shard has ended there

    def gone_after(self, environment: str, answer: Answer) -> set[str]:
        """Take the next answer; return the environments that are not to be tried there again."""
        if answer is Answer.ENDED:
            self._ran.add(environment)
        else:
            self._counts[environment] = self._counts.get(environment, 0) + 1
        return {one for one, count in self._counts.items() if count >= _MOST_FAILURES} - self._ran


class Dispatch:
    """One go at some shards. `each` is called in the main thread when a shard has ended."""

    def __init__(
        self,
        slots: Sequence[Slot],
        indices: Sequence[int],
        note: Callable[[str], None],
        each: Callable[[int], None],
        nodes: Mapping[int, str] | None = None,
        environments: Mapping[int, str] | None = None,
        *,
        gives_up: bool = True,
    ) -> None:
        """Take the nodes to which shards are bound, and their environments, by index.

        Without `gives_up` every shard is tried on every slot, however many have failed there.
        """
        self._slots, self._note, self._each = slots, note, each
        self._waiting = deque(indices)
        self._environments = {index: (environments or {}).get(index, "") for index in indices}
        self._gives_up = gives_up
        self._passed_over: set[int] = set()  # shards that a slot did not get for that reason
        # A shard that is bound to a node counts as tried on the others: `nodes` has its name.
        self._tried: dict[int, set[str]] = {
            index: {slot.name for slot in slots if slot.name != bound} if bound else set()
            for index in indices
            for bound in ((nodes or {}).get(index, ""),)
        }
        self._running: dict[str, int] = {}
        self._ended: deque[int] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._lost: list[str] = []
        self._error: BaseException | None = None

    def run(self, interruption: Interruption) -> None:
        """Run all shards that some slot can run.

        Raises Interrupted when a signal came.
        """
        threads = [
            threading.Thread(target=self._work, args=(slot,), daemon=True) for slot in self._slots
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(_LOOK_S / len(threads))
                self._tell()
                interruption.check()
        finally:
            self._stop.set()
            with self._changed:
                self._changed.notify_all()
            end = time.monotonic() + _LEAVE_S
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        self._tell()
        if self._error is not None:
            raise self._error
        interruption.check()
        left = self._waiting
        if not self._lost or len(self._lost) < len(self._slots):
            left = deque(index for index in left if index in self._passed_over)
        if left:
            self._note(f"no machine is left for {len(left)} shards")

    def _tell(self) -> None:
        while self._ended:
            self._each(self._ended.popleft())

    def _work(self, slot: Slot) -> None:
        failures, answer = _Failures(), Answer.ENDED
        try:
            while (index := self._next(slot)) is not None:
                answer = slot.run(index, self._stop)
                environment = self._environments[index]
                gone = failures.gone_after(environment, answer)
                is_given_up = self._gives_up and environment in gone
                is_lost = answer is Answer.LOST or (
                    is_given_up and gone >= set(self._environments.values())
                )
                with self._changed:
                    del self._running[slot.name]
                    if answer is not Answer.ENDED:
                        self._waiting.appendleft(index)
                    self._ended.append(index)
                    if is_lost:
                        self._lost.append(slot.name)
                    elif is_given_up:
                        self._pass_over(slot, environment)
                    self._changed.notify_all()
                if is_lost or is_given_up:
                    self._explain(slot, answer, "" if is_lost else environment)
                if is_lost:
                    break
            if answer is not Answer.LOST:
                slot.close()
        except BaseException as error:  # the main thread raises it
            with self._changed:
                self._error = self._error or error
                self._running.pop(slot.name, None)
                self._changed.notify_all()
            self._stop.set()

    def _pass_over(self, slot: Slot, environment: str) -> None:
        """Count the other shards of an environment as tried on a slot. Hold `_changed`."""
        for index, own in self._environments.items():
            if own == environment and slot.name not in self._tried[index]:
                self._tried[index].add(slot.name)
                self._passed_over.add(index)

    def _explain(self, slot: Slot, answer: Answer, environment: str) -> None:
        if self._stop.is_set():
            return
        if answer is Answer.LOST:
            why = "does not answer as it should; its shards go to other machines"
        elif environment:
            name = line(environment, 100)
            why = f"failed {_MOST_FAILURES} times with {name}; such shards go to other machines"
        else:
            why = f"failed {_MOST_FAILURES} times in a row; its shards go to other machines"
        self._note(f"{slot.name} {why}")

    def _next(self, slot: Slot) -> int | None:
        """Return a shard that the slot has not tried; None when there can be none any more."""
        with self._changed:
            while not self._stop.is_set():
                for index in self._waiting:
                    if slot.name not in self._tried[index]:
                        self._waiting.remove(index)
                        self._tried[index].add(slot.name)
                        self._running[slot.name] = index
                        return index
                # What runs elsewhere may fail there, and come back.
                if all(slot.name in self._tried[one] for one in self._running.values()):
                    return None
                self._changed.wait(_LOOK_S)
        return None
