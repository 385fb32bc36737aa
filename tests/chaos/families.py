"""The families of faults, each with the names of its faults and a way to make one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import kills
import states
import syscalls
from subject import Subject

SCENARIOS = ("plain", "index", "resume")


class Maker(Protocol):
    """Makes the faults of one family in a folder of its own."""

    def names(self, seed: int, count: int | None) -> list[str]:
        """Return the names of its faults: all that there are, or `count` of a seed."""

    def make(self, name: str) -> tuple[bool, list[str]]:
        """Make a fault; True when it happened, and what was wrong afterwards."""

    def group_of(self, name: str) -> str:
        """Return the row of the table that a fault belongs to."""

    def kind_of(self, name: str) -> str:
        """Return the kind of a fault: a sample has of as many kinds as possible."""


class _Places:
    """The subjects of a family, each made when it is needed."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._subjects: dict[str, Subject] = {}

    def subject(self, scenario: str) -> Subject:
        if scenario not in self._subjects:
            subject = Subject(self._place / scenario, scenario)
            subject.prepare()
            self._subjects[scenario] = subject
        return self._subjects[scenario]


class Syscalls(_Places):
    """See `syscalls`."""

    def names(self, seed: int, count: int | None) -> list[str]:
        return [f.name for one in SCENARIOS for f in syscalls.faults_of(self.subject(one))]

    def make(self, name: str) -> tuple[bool, list[str]]:
        fault = syscalls.fault_named(name)
        return syscalls.make_fault(self.subject(fault.scenario), fault)

    def group_of(self, name: str) -> str:
        scenario, _, _, kind, how = name.split("/")
        return f"{scenario}, {kind} {how}"

    def kind_of(self, name: str) -> str:
        return "/".join(name.split("/")[1:4:2])


class States(_Places):
    """See `states`."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._recordings: dict[str, states.Recording] = {}

    def names(self, seed: int, count: int | None) -> list[str]:
        return [name for one in SCENARIOS for name in self._recording(one).names()]

    def make(self, name: str) -> tuple[bool, list[str]]:
        scenario = name.partition("/")[0]
        return states.check_state(self.subject(scenario), self._recording(scenario), name)

    def group_of(self, name: str) -> str:
        scenario, _, variant = name.split("/")
        return f"{scenario}, {variant.partition('-')[0]}"

    kind_of = group_of

    def _recording(self, scenario: str) -> states.Recording:
        if scenario not in self._recordings:
            self._recordings[scenario] = states.Recording(self.subject(scenario))
        return self._recordings[scenario]


class Kills(_Places):
    """See `kills`."""

    def names(self, seed: int, count: int | None) -> list[str]:
        return kills.names(seed, count or 300)

    def make(self, name: str) -> tuple[bool, list[str]]:
        return kills.make_fault(self.subject(kills.scenario_of(name)), name)

    def group_of(self, name: str) -> str:
        return name.partition("/")[0]

    kind_of = group_of


FAMILIES: dict[str, Callable[[Path], Maker]] = {
    "syscalls": Syscalls,
    "states": States,
    "kills": Kills,
}
