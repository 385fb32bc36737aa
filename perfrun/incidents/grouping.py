"""Group changes by their cause, and keep incidents up to date with what a search has found. Pure.

A change belongs to an incident when both moved by the same thing: by the same commits, by the same
difference of the environment, with a canary, or at least in the same night.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from math import log

from perfrun.incidents.incident import (
    Culprit,
    Drifting,
    Incident,
    Ledger,
    Returned,
    Worsening,
    nights_apart,
    owner_of,
)

_NEAR_DAYS = 2  # between changes one of which is not placed to the night
_SAME_DRIFT_DAYS = 7  # between the nights in which drifts of one cause begin
# Of a change: what pairs have compared.
_SIDES = ("commits", "before_execution_id", "after_execution_id", "differences")
_SAME_COMMITS_DAYS = 14  # between changes over the same commits: a machine may rest for a week


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """A change for the better of a series, and the level since then."""

    returned: Returned
    level: float


# By series and metric.
Improvements = Mapping[tuple[str, str], Sequence[Improvement]]


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A change for the worse as a search has found it, and what is known of its cause."""

    change: Worsening
    culprit: Culprit | None = None
    is_bisecting: bool = False


def brought_up_to_date(
    ledger: Ledger,
    sightings: Iterable[Sighting],
    improvements: Improvements | None = None,
    *,
    opened_since: str = "",
    methods: Set[str] | None = None,
) -> Ledger:
    """Return the incidents with what a search of the whole history has found.

    Known changes get their newest figures, new ones join an open incident of their cause or open
    one, and an incident ends when all its levels have returned, which does not need that its
    changes are still found: their nights may be pruned. Changes that were made sure before
    the date `opened_since` open none. With `methods`, changes of others open and join none, and
    incidents without any of these methods stay as they are.
    """

    def is_asked(one: Incident) -> bool:
        return methods is None or not methods.isdisjoint(one.methods)

    seen: dict[int, list[Sighting]] = {}
    number = ledger.next
    ordered = sorted(sightings, key=lambda one: (one.change.night, -one.change.certainty))
    incidents = {
        one.id: _without_drifts(one, [s.change for s in ordered]) if is_asked(one) else one
        for one in ledger.incidents
    }
    by_series = _by_series(ordered)
    fresh = []
    for sighting in ordered:
        known = _known(incidents.values(), sighting.change, by_series[_series(sighting.change)])
        if known is None:
            fresh += [sighting] if methods is None or sighting.change.method in methods else []
            continue
        if not is_asked(known):
            continue
        seen.setdefault(known.id, []).append(sighting)
        incidents[known.id] = _with_newest(known, sighting.change)
    incidents |= {
        one.id: _with_newest_drift(one, by_series) for one in incidents.values() if is_asked(one)
    }
    for one in [i for i in incidents.values() if is_asked(i)]:
        whole = _whole_drift(incidents.values(), one)
        if whole is not None:  # both were seen before it was known that they are one
            told = whole.told + min(one.told, len(one.changes))
            incidents[whole.id] = replace(whole, changes=(*whole.changes, *one.changes), told=told)
            seen.setdefault(whole.id, []).extend(seen.pop(one.id, []))
            del incidents[one.id]
    # Those that are placed best come first: they say which night, and which commits, it is.
    for sighting in sorted(fresh, key=lambda one: (-one.change.certainty, one.change.night)):
        own = _of_cause(incidents.values(), sighting)
        if own is not None:
            told = own.told + (own.told > 0 and _is_part(own, sighting.change))
            incidents[own.id] = replace(own, changes=(*own.changes, sighting.change), told=told)
        elif sighting.change.alarm_night >= opened_since and _can_open(sighting.change):
            own = Incident(id=number, changes=(sighting.change,), culprit=sighting.culprit)
            incidents[number] = own
            number += 1
        else:
            continue
        seen.setdefault(own.id, []).append(sighting)
    done = tuple(
        _concluded(_with_returns(one, improvements or {}), seen.get(one.id, ()), ledger.owners)
        if is_asked(one)
        else one
        for one in incidents.values()
    )
    return replace(ledger, incidents=_renumbered(done, ledger.next), next=number)


def _without_drifts(incident: Incident, found: Sequence[Worsening]) -> Incident:
    """Take the changes out that turn out to be a drift; it has another cause than the steps.

    Where the commit is found, they are steps.
    """
    drifting = [change for change in found if change.drift is not None]
    steps = tuple(
        own for own in incident.changes if not any(own.is_same(change) for change in drifting)
    )
    is_step = incident.drift is None and not incident.is_machine
    if not incident.is_open or incident.culprit is not None or not is_step or not steps:
        return incident
    return replace(incident, changes=steps, told=min(incident.told, len(steps)))


def _whole_drift(incidents: Iterable[Incident], one: Incident) -> Incident | None:
    """Return the open incident before one, of which it is the same drift, and nothing else.

    One whose commit was found is a step, whatever else moves there.
    """
    if one.culprit is not None:
        return None
    if not (one.is_open and one.decision is None and all(c.drift is not None for c in one.changes)):
        return None
    for earlier in incidents:
        is_before = earlier.id < one.id and earlier.is_open and earlier.drift is not None
        if is_before and earlier.is_machine == one.is_machine:
            known = {(c.series, c.metric) for c in earlier.changes if c.drift is not None}
            if all((c.series, c.metric) in known for c in one.changes):
                return earlier
    return None


def _can_open(change: Worsening) -> bool:
    return change.status != "not_reproduced"


def _renumbered(incidents: Iterable[Incident], first: int) -> tuple[Incident, ...]:
    """Number the new incidents in the order in which they were first seen."""
    old = [one for one in incidents if one.id < first]
    new = sorted(
        (one for one in incidents if one.id >= first),
        key=lambda one: (one.first_seen, one.main.night, one.id),
    )
    return (*old, *(replace(one, id=first + at) for at, one in enumerate(new)))


def _series(change: Worsening) -> tuple[str, str]:
    return change.series, change.metric


def _by_series(sightings: Iterable[Sighting]) -> dict[tuple[str, str], list[Worsening]]:
    found: dict[tuple[str, str], list[Worsening]] = {}
    for sighting in sightings:
        found.setdefault(_series(sighting.change), []).append(sighting.change)
    return found


def _known(
    incidents: Iterable[Incident], change: Worsening, found: Sequence[Worsening]
) -> Incident | None:
    """Return the incident that has the change; of several, that of the nearest night.

    `found` are all changes of the series that the search has found: a known one is the nearest of
    these, and the others are other steps.
    """
    known = [
        (nights_apart(own, change), -one.id, one)
        for one in incidents
        for own in one.changes
        if own.is_same(change)
        and not any(
            own.is_same(other) and nights_apart(own, other) < nights_apart(own, change)
            for other in found
        )
    ]
    return min(known, key=lambda one: one[:2])[2] if known else None


def _with_newest(incident: Incident, change: Worsening) -> Incident:
    """Put the newest figures of a change in the place of the old ones.

    What pairs have found stays when a search does not know it: a night's report may be gone. So do
    a return, the level before, and the sides that pairs have shown to differ: a search may place
    the step in another night, and a bisection would then go on between commits that do not differ.
    What was a step when its commit was found stays one.
    """

    def newest(own: Worsening) -> Worsening:
        if not own.is_same(change):
            return own
        status = own.status if change.status == "candidate" else change.status
        shown = own if own.status == "confirmed" else change
        return replace(
            change,
            status=status,
            returned=own.returned,
            level=own.level,
            drift=None if incident.culprit is not None and own.drift is None else change.drift,
            **{name: getattr(shown, name) for name in _SIDES},
        )

    # Steps of a drift, which a search places elsewhere every night, may have become one.
    once = {
        (own.series, own.metric, own.night, own.alarm_night): own
        for own in map(newest, reversed(incident.changes))
    }
    changes = tuple(reversed(once.values()))
    return replace(incident, changes=changes, told=min(incident.told, len(changes)))


def _with_newest_drift(
    incident: Incident, found: Mapping[tuple[str, str], Sequence[Worsening]]
) -> Incident:
    """Give the steps of a drift that a search does not find any more what it says of the drift."""

    def newest(own: Worsening) -> Worsening:
        now = found.get(_series(own), ())
        if own.drift is None or any(own.is_same(change) for change in now):
            return own
        near = [
            change for change in now if change.drift and _is_overlapping(own.drift, change.drift)
        ]
        nearest = min(near, key=lambda change: nights_apart(own, change), default=own)
        return replace(own, drift=nearest.drift)

    return replace(incident, changes=tuple(map(newest, incident.changes)))


def _is_overlapping(one: Drifting, other: Drifting) -> bool:
    return one.begin <= other.end and other.begin <= one.end


def _with_returns(incident: Incident, improvements: Improvements) -> Incident:
    """Put in which levels have returned, since it was last opened again."""
    if not incident.is_open:
        return incident
    decision = incident.decision
    since = "" if decision is None else decision.since or decision.day

    def with_return(own: Worsening) -> Worsening:
        better = improvements.get((own.series, own.metric), ())
        later = [one for one in better if one.returned.alarm_night > since]
        return replace(own, returned=_returned(own, later) or own.returned)

    return replace(incident, changes=tuple(map(with_return, incident.changes)))


def _of_cause(incidents: Iterable[Incident], sighting: Sighting) -> Incident | None:
    """Return the open incident that has the cause of a change; of several, the nearest one."""
    change = sighting.change
    found = [
        (abs(_days(one.main.night, change.night)), one.id, one)
        for one in incidents
        if one.is_open and _is_cause(one, sighting)
    ]
    return min(found, key=lambda one: one[:2])[2] if found else None


def _is_cause(incident: Incident, sighting: Sighting) -> bool:
    """Return True when a change and an incident moved by the same thing, as far as is known."""
    change, main = sighting.change, incident.main
    if change.is_machine != main.is_machine:
        return False
    if change.drift is not None or incident.drift is not None:
        return _is_drift_of(incident, change)
    if incident.culprit is not None and sighting.culprit is not None:
        return incident.culprit.name == sighting.culprit.name
    apart = abs(_days(main.night, change.night))
    if change.commits and _same(change.commits, main.commits):
        return apart <= _SAME_COMMITS_DAYS
    if apart and change.status == main.status == "confirmed":
        return False  # pairs have shown both, each over its own commits
    is_exact = change.is_placed and main.is_placed
    return apart <= (0 if is_exact else _NEAR_DAYS) and _can_be_one(change, main)


def _is_part(incident: Incident, change: Worsening) -> bool:
    """Return True for a further step of a series that drifts in the incident: it is no news."""
    return change.drift is not None and any(
        own.drift is not None and (own.series, own.metric) == (change.series, change.metric)
        for own in incident.changes
    )


def _is_drift_of(incident: Incident, change: Worsening) -> bool:
    """Return True when both are a drift, of one series or of about the same nights."""
    one, other = incident.drift, change.drift
    if one is None or other is None:
        return False
    series = {(own.series, own.metric) for own in incident.changes if own.drift is not None}
    if (change.series, change.metric) in series:
        return True
    is_near = abs(_days(one.begin, other.begin)) <= _SAME_DRIFT_DAYS
    return is_near and _can_be_one(change, incident.main)


def _can_be_one(change: Worsening, main: Worsening) -> bool:
    """Return True when two changes of about one night can have one cause."""
    if change.commits or main.commits:
        return bool(change.commits.keys() & main.commits.keys())
    if change.hardware != main.hardware:
        return False
    unknown = not change.differences or not main.differences
    return unknown or bool(set(change.differences or ()) & set(main.differences or ()))


def _same(one: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]) -> bool:
    return {k: tuple(v) for k, v in one.items()} == {k: tuple(v) for k, v in other.items()}


def _concluded(incident: Incident, seen: Sequence[Sighting], owners: Mapping[str, str]) -> Incident:
    """Return the incident with what follows from its changes: culprit, owner, end."""
    culprit = next((one.culprit for one in seen if one.culprit is not None), incident.culprit)
    named = owner_of(incident.changes, owners, culprit.author if culprit else "")
    changes = tuple(sorted(incident.changes, key=lambda one: (one.night, one.method, one.metric)))
    counting = [change for change in changes if change.status != "not_reproduced"]
    ended = bool(counting) and all(change.returned is not None for change in counting)
    return replace(
        incident,
        changes=changes,
        culprit=culprit,
        owner=named or incident.owner,
        is_bisecting=any(one.is_bisecting for one in seen),
        is_fixed=incident.is_fixed or ended,
    )


def _returned(change: Worsening, better: Iterable[Improvement]) -> Returned | None:
    """Return the first change for the better that brought the level back; None without one.

    Back is what has undone three quarters of the change.
    """
    for one in sorted(better, key=lambda one: one.returned.night):
        if one.returned.night > change.night and one.level > 0 and change.level > 0:
            left = log(one.level / change.level)
            is_beyond = (left < 0) == (change.ratio > 1)
            if is_beyond or abs(left) <= change.size / 4:
                return one.returned
    return None


def _days(one: str, other: str) -> int:
    return date.fromisoformat(one).toordinal() - date.fromisoformat(other).toordinal()
