"""The results of many nodes, as the figures that nodes are judged by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

from perfrun.changes.observations import night_of
from perfrun.summary.counted_trials import counted
from perfrun.summary.fingerprint import Fingerprint, fingerprint

if TYPE_CHECKING:
    from perfrun.analysis.nodes import Figure
    from perfrun.summary.record import SummaryRecord

Across = Literal["none", "software", "all"]


class Group(NamedTuple):
    """The trials that are compared over nodes: what they measured, and on what kind of node."""

    method: str
    metric: str
    environment: str
    settings: str
    source: str
    hardware: str
    driver: str
    fingerprint: str


@dataclass
class NodeFacts:
    """The facts about one node, from its results."""

    name: str
    trials: int = 0  # that ended by themselves
    newest: float = 0.0  # seconds since the epoch
    fingerprints: dict[Fingerprint, float] = field(default_factory=dict)  # and when seen last

    @property
    def hardware(self) -> Fingerprint:
        """The fingerprint that it had last."""
        return max(self.fingerprints, key=lambda one: self.fingerprints[one])


@dataclass(frozen=True, kw_only=True)
class FleetResults:
    """The figures of all nodes, and the facts about them."""

    figures: tuple[Figure, ...]
    groups: Mapping[str, Group]  # by their name in the figures
    nodes: Mapping[str, NodeFacts]
    nameless: int  # trials without a host name
    disturbed: int  # trials that were left out as disturbed


class _Trial(NamedTuple):
    number: int  # of its record: it has several metrics
    time: float
    value: float
    disturbed: bool


def fleet_results(
    records: Iterable[SummaryRecord],
    *,
    metric: str,
    canaries: Sequence[str] = (),
    across: Across = "none",
) -> FleetResults:
    """Take the figures from trials. `metric` and `canaries` are patterns (`*`).

    Disturbed trials are left out, unless most of a node's trials of a night are.
    """
    from perfrun.analysis.nodes import Figure  # numpy and scipy

    nodes: dict[str, NodeFacts] = {}
    found: dict[tuple[str, Group, int], list[_Trial]] = {}
    nameless = 0
    for number, record in enumerate(records):
        if not record.ran:
            continue
        if not record.hostname:
            nameless += 1
            continue
        own = fingerprint(record.document)
        facts = nodes.setdefault(record.hostname, NodeFacts(record.hostname))
        facts.trials += 1
        facts.newest = max(facts.newest, record.timestamp)
        facts.fingerprints[own] = max(record.timestamp, facts.fingerprints.get(own, 0.0))
        try:
            night = night_of(record.timestamp)
        except (OverflowError, OSError, ValueError):  # beyond Python's calendar
            continue
        for name, one in record.metrics.items():
            if not fnmatchcase(name, metric) or one.direction == "none" or one.value <= 0:
                continue
            value = math.log(one.value) * (1 if one.direction == "lower" else -1)
            group = _group(record, name, own, across)
            trial = _Trial(number, record.timestamp, value, record.disturbed)
            found.setdefault((record.hostname, group, night), []).append(trial)
    groups = {f"{at:06}": one for at, one in enumerate(sorted({key[1] for key in found}))}
    names = {one: name for name, one in groups.items()}
    figures = []
    left_out: set[int] = set()
    for (node, group, night), trials in found.items():
        is_canary = any(fnmatchcase(group.method, pattern) for pattern in canaries)
        chosen = counted(trials)
        left_out |= {one.number for one in trials} - {one.number for one in chosen}
        figures += [
            Figure(node, names[group], night, one.time, one.value, is_canary) for one in chosen
        ]
    return FleetResults(
        figures=tuple(figures),
        groups=groups,
        nodes=nodes,
        nameless=nameless,
        disturbed=len(left_out),
    )


def _group(record: SummaryRecord, metric: str, own: Fingerprint, across: Across) -> Group:
    subject = record.subject
    known = {
        "none": (subject.hardware, subject.driver, own.digest),
        "software": (subject.hardware, "", own.hardware_digest),
        "all": ("", "", ""),
    }
    return Group(
        subject.method,
        metric,
        subject.environment,
        subject.settings,
        subject.source,
        *known[across],
    )
