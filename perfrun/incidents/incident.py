"""An incident as values: changes for the worse that have one cause, and what has become of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, Literal, Protocol

Status = Literal[
    "suspect", "confirmed", "bisecting", "culprit_found", "not_reproduced", "fixed", "accepted"
]
CLOSED: tuple[Status, ...] = ("not_reproduced", "fixed", "accepted")
Kind = Literal["commits", "environment", "commits_or_environment", "machine", "drift", "night"]
Commits = Mapping[str, Sequence[str]]  # checkout -> the commit before and the one after
_NEAR_DAYS = 2  # between the nights in which pairs and a history see one step begin
_PLACED = 5.0  # half-widths of its interval from which a change lies in the very night


@dataclass(frozen=True, kw_only=True)
class Returned:
    """The change for the better after which a series was at its old level again."""

    night: str
    alarm_night: str
    commits: Commits


@dataclass(frozen=True, kw_only=True)
class Drifting:
    """The even movement of a level over many nights that a search sees as steps."""

    begin: str  # the last night at the level before
    end: str  # the first one at the level after, the newest one while it goes on
    ratio: float  # level after over level before


@dataclass(frozen=True, kw_only=True)
class Worsening:
    """One change of an incident: a metric of a method that became worse."""

    method: str
    metric: str
    environment: str
    hardware: str
    settings: str  # of the series; '' without any
    series: str  # short hash of the series' key
    ratio: float  # level after over level before
    low: float
    high: float
    level: float  # the level before, when it was found: its nights may be pruned since
    night: str  # date at whose noon the first night at the new level began
    alarm_night: str
    status: str  # as in `perfrun detect`
    is_machine: bool  # a canary moved too
    before_execution_id: str
    after_execution_id: str
    commits: Commits  # that moved
    differences: Sequence[str] | None  # of the environment, commits left out; None: unknown
    returned: Returned | None = None
    drift: Drifting | None = None  # that it is a part of; None: it is a step

    @property
    def size(self) -> float:
        """The change of the logarithm."""
        return abs(math.log(self.ratio))

    @property
    def certainty(self) -> float:
        """The size in half-widths of its interval: how well its night is known."""
        width = math.log(self.high / self.low) / 2 if 0 < self.low < self.high else 0.0
        return self.size / width if width > 0 else math.inf

    @property
    def is_placed(self) -> bool:
        """True when it lies in the very night that is said."""
        return self.certainty >= _PLACED

    def is_same(self, other: Worsening) -> bool:
        """Return True for the same change; its nights may have moved as results came or went.

        What moved with the machine is not what pairs on one machine have confirmed, unless it is as
        large.
        """
        if (self.series, self.metric) != (other.series, other.metric):
            return False
        is_sure = "confirmed" in (self.status, other.status)
        if self.is_machine != other.is_machine and is_sure and not _is_as_large(self, other):
            return False
        return is_same_step(self, other)


class Step(Protocol):
    """A change of a series, as far as it says when it was."""

    @property
    def night(self) -> str: ...
    @property
    def alarm_night(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def ratio(self) -> float: ...


def is_same_step(one: Step, other: Step) -> bool:
    """Return True for two changes of one series and direction that are the same step.

    Their nights overlap. What pairs have confirmed may be sure before the night in which a history,
    which sees it later, lets it begin. It may also be made sure so late that another step follows
    before: that one has another size.
    """
    is_overlapping = one.night <= other.alarm_night and other.night <= one.alarm_night
    if "confirmed" not in (one.status, other.status):
        return is_overlapping
    return nights_apart(one, other) <= _NEAR_DAYS or (is_overlapping and _is_as_large(one, other))


def nights_apart(one: Step, other: Step) -> int:
    """Return the number of nights between the beginnings of two changes."""
    apart = date.fromisoformat(one.night) - date.fromisoformat(other.night)
    return abs(apart.days)


def _is_as_large(one: Step, other: Step) -> bool:
    """Return True when the smaller change is at least two thirds of the larger one."""
    sizes = (abs(math.log(one.ratio)), abs(math.log(other.ratio)))
    return 3 * min(sizes) >= 2 * max(sizes)


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The commit that a bisection has found."""

    name: str
    author: str
    subject: str
    repository: str = ""  # the name of its checkout; '' where it was not written down


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """The search for the commit that the nights of a suite carry out."""

    state: Literal["going_on", "found", "ended"]
    why: str = ""  # with ended: why it has found none
    previous: str = ""  # with found: the commit before it
    tries: int = 1  # with ended: that failed
    trials: int = 0  # that the search has run, once it is over
    spent_s: float = 0.0  # by these, and to make their environments


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The first rows that profiles of both sides have named, in words."""

    rows: tuple[str, ...] = ()  # the largest share first; none where they name nothing
    why: str = ""  # why there is no explanation; '' with one
    record: str = ""  # path of the whole of it
    tries: int = 1


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a person has said about an incident."""

    what: Literal["accepted", "reopened"]
    at: float  # seconds since the epoch
    day: str  # the same as a date
    reason: str
    since: str = ""  # of a reopened one: what was sure by that night does not close it again


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Changes for the worse with one cause."""

    id: int
    changes: tuple[Worsening, ...]
    owner: str = ""
    culprit: Culprit | None = None
    is_bisecting: bool = False
    decision: Decision | None = None
    is_fixed: bool = False
    # What nights have told: the number of changes, and that it was fixed.
    told: int = 0
    has_told_end: bool = False
    has_told_culprit: bool = False
    bisection: Bisection | None = None
    explanation: Explanation | None = None

    @property
    def status(self) -> Status:
        """What is known of it. What a person said comes first, then the end, then the evidence."""
        if self.decision is not None and self.decision.what == "accepted":
            return "accepted"
        if self.is_fixed:
            return "fixed"
        if all(change.status == "not_reproduced" for change in self.changes):
            return "not_reproduced"
        if self.culprit is not None:
            return "culprit_found"
        if self.is_bisecting or (self.bisection and self.bisection.state == "going_on"):
            return "bisecting"
        return "confirmed" if any(c.status == "confirmed" for c in self.changes) else "suspect"

    @property
    def is_open(self) -> bool:
        """True while somebody has to look at it."""
        return self.status not in CLOSED

    @property
    def main(self) -> Worsening:
        """The change whose night is known best: it says when the incident began, and by what."""
        return max(self.changes, key=lambda one: (one.certainty, one.size, one.method))

    @property
    def largest(self) -> Worsening:
        """The largest change."""
        return max(self.changes, key=lambda one: (one.size, one.method))

    @property
    def methods(self) -> list[str]:
        """The methods that it touches, each once."""
        return sorted({change.method for change in self.changes})

    @property
    def first_seen(self) -> str:
        """The first night that made a change of it sure."""
        return min(change.alarm_night for change in self.changes)

    @property
    def is_machine(self) -> bool:
        """True when a canary moved with it."""
        return self.main.is_machine

    @property
    def differences(self) -> tuple[str, ...]:
        """The differences of the environment that all of its changes share."""
        known = [set(c.differences) for c in self.changes if c.differences is not None]
        shared = set.intersection(*known) if known else set()
        return tuple(text for text in self.main.differences or () if text in shared)

    @property
    def drift(self) -> Drifting | None:
        """The largest drift of its changes, which then lies in no single night."""
        found = [change.drift for change in self.changes if change.drift is not None]
        return max(found, key=lambda one: abs(math.log(one.ratio))) if found else None

    @property
    def began(self) -> str:
        """The first night at the new level, or the one in which a drift began."""
        return self.main.night if self.drift is None else self.drift.begin

    @property
    def kind(self) -> Kind:
        """The cause as far as it is known."""
        if self.is_machine:
            return "machine"
        if self.drift is not None and self.culprit is None:
            return "drift"
        commits, environment = bool(self.main.commits), bool(self.differences)
        if self.culprit is not None or (commits and not environment):
            return "commits"
        if commits:
            return "commits_or_environment"
        return "environment" if environment else "night"

    @property
    def fix(self) -> Returned | None:
        """The last return, which made all levels the old ones; None while it is not fixed."""
        found = [change.returned for change in self.changes if change.returned is not None]
        return max(found, key=lambda one: one.night) if self.is_fixed and found else None


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """All incidents of a workspace, and what its suites have said of their methods."""

    incidents: tuple[Incident, ...] = ()
    next: int = 1
    canaries: tuple[str, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)  # method -> owner

    def numbered(self, number: int) -> Incident | None:
        """Return the incident of that number; None without one."""
        return next((one for one in self.incidents if one.id == number), None)


def incident_row(one: Incident) -> dict[str, Any]:
    """Return an incident as `--format=json` and the JSON report of a night have it."""
    decision, fix, culprit = one.decision, one.fix, one.culprit
    return {
        "id": one.id,
        "status": one.status,
        "is_open": one.is_open,
        "cause": {
            "kind": one.kind,
            "drift": None if one.drift is None else asdict(one.drift),
            "commits": {name: list(pair) for name, pair in one.main.commits.items()},
            "differences": list(one.differences),
        },
        "culprit": None if culprit is None else _culprit_row(culprit),
        "bisection": None if one.bisection is None else _bisection_row(one.bisection),
        "explanation": None if one.explanation is None else _explanation_row(one.explanation),
        "owner": one.owner or None,
        "night": one.began,
        "first_seen": one.first_seen,
        "methods": one.methods,
        "changes": [_change_row(change) for change in one.changes],
        "fixed": None if fix is None else _returned_row(fix),
        "decision": None
        if decision is None
        else {"what": decision.what, "day": decision.day, "reason": decision.reason or None},
    }


def _change_row(change: Worsening) -> dict[str, Any]:
    return {
        "method": change.method,
        "metric": change.metric,
        "environment": change.environment,
        "hardware": change.hardware,
        "settings": change.settings,
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "night": change.night,
        "alarm_night": change.alarm_night,
        "status": change.status,
        "before_execution_id": change.before_execution_id,
        "after_execution_id": change.after_execution_id,
        "returned": None if change.returned is None else _returned_row(change.returned),
        "drift": None if change.drift is None else asdict(change.drift),
    }


def _culprit_row(one: Culprit) -> dict[str, Any]:
    return {**asdict(one), "repository": one.repository or None}


def _bisection_row(one: Bisection) -> dict[str, Any]:
    return {
        "state": one.state,
        "why": one.why or None,
        "trials": one.trials,
        "spent_s": one.spent_s,
    }


def _explanation_row(one: Explanation) -> dict[str, Any]:
    return {"rows": list(one.rows), "why": one.why or None, "record": one.record or None}


def _returned_row(one: Returned) -> dict[str, Any]:
    commits = {name: list(pair) for name, pair in one.commits.items()}
    return {"night": one.night, "commits": commits}


def owner_of(changes: Sequence[Worsening], owners: Mapping[str, str], culprit: str) -> str:
    """Return who owns most of the methods; without one, the author of the culprit."""
    named = Counter(owners[c.method] for c in changes if owners.get(c.method))
    return named.most_common(1)[0][0] if named else culprit
