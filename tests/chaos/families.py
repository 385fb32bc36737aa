"""The families of faults, each with the names of its faults and a way to make one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

TESTS = Path(__file__).resolve().parent.parent
sys.path.append(str(TESTS))

import containers  # noqa: E402
import databases  # noqa: E402
import kills  # noqa: E402
import servers  # noqa: E402
import states  # noqa: E402
import syscalls  # noqa: E402
from subject import Subject  # noqa: E402

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

    def close(self) -> None:
        """End what it has started."""


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

    def close(self) -> None:
        """Nothing goes on."""


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


class Service(Protocol):
    """Something that a run depends on, and the accidents that it has."""

    def make(self, kind: str, seed: str) -> list[str]:
        """Make one fault of a kind; return what was wrong afterwards."""

    def close(self) -> None:
        """End it."""


SERVICES: dict[str, tuple[Callable[[Path], Service], Callable[[], str | None]]] = {
    **dict.fromkeys(containers.KINDS, (containers.Engines, containers.missing)),
    "database": (databases.Databases, databases.missing),
    **dict.fromkeys(servers.SERVED, (servers.Servers, servers.missing)),
}


class Accidents(_Places):
    """Random accidents of some kinds: those of `kills`, and those of services around a run."""

    def __init__(self, place: Path, kinds: tuple[str, ...]) -> None:
        super().__init__(place)
        self._kinds, self._services = kinds, dict[str, Service]()

    def names(self, seed: int, count: int | None) -> list[str]:
        """Return so many faults, the kinds in turn; a name has the seed of all that is drawn."""
        there = [kind for kind in self._kinds if not left_out(kind)]
        return [f"{there[n % len(there)]}/{seed + n}" for n in range(count or 300)]

    def make(self, name: str) -> tuple[bool, list[str]]:
        kind, _, seed = name.partition("/")
        if kind not in SERVICES:
            return kills.make_fault(self.subject(kills.scenario_of(name)), name)
        service = SERVICES[kind][0]
        if service.__name__ not in self._services:
            self._services[service.__name__] = service(self._place / service.__name__)
        found = self._services[service.__name__].make(kind, seed)
        if not found:
            shutil.rmtree(self._place / service.__name__ / seed, ignore_errors=True)
        return True, found

    def group_of(self, name: str) -> str:
        return name.partition("/")[0]

    kind_of = group_of

    def close(self) -> None:
        for service in self._services.values():
            service.close()


def left_out(kind: str) -> str | None:
    """Return the reason why a kind of accidents cannot be made here; None when it can."""
    return SERVICES[kind][1]() if kind in SERVICES else None


def kinds_of(family: str) -> tuple[str, ...]:
    """Return the kinds of accidents in a family; none where it is no family of accidents."""
    families = {"kills": kills.KINDS, "services": tuple(SERVICES)}
    return {**families, "accidents": (*kills.KINDS, *SERVICES)}.get(family, ())


def make_family(family: str, place: Path) -> Maker:
    """Return the maker of a family, which works in a folder of its own."""
    if kinds := kinds_of(family):
        return Accidents(place, kinds)
    return {"syscalls": Syscalls, "states": States}[family](place)


FAMILIES = ("syscalls", "states", "kills", "services", "accidents")
