"""Which changes are one incident, and when it is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from perfrun.incidents.command import with_decision
from perfrun.incidents.grouping import Improvement, Sighting, brought_up_to_date
from perfrun.incidents.incident import (
    Bisection,
    Culprit,
    Decision,
    Drifting,
    Incident,
    Ledger,
    Returned,
    Worsening,
)

DAY = date(2026, 7, 1)


def worse(name: str, *, night: int = 0, sure: bool = True, **facts: Any) -> Worsening:
    begun = DAY + timedelta(days=night)
    commits = facts.pop("commits", {"models": (f"{night - 1:040}", f"{night:040}")})
    return Worsening(
        method=name,
        metric="wall_time",
        environment="here",
        hardware=facts.pop("hardware", "this"),
        settings="",
        series=name,
        ratio=1.1,
        level=2.0,
        low=1.095 if sure else 1.05,
        high=1.105 if sure else 1.15,
        night=begun.isoformat(),
        alarm_night=(begun + timedelta(days=5)).isoformat(),
        status=facts.pop("status", "candidate"),
        is_machine=facts.pop("is_machine", False),
        before_execution_id="b",
        after_execution_id="a",
        commits=commits,
        differences=facts.pop("differences", ()),
        **facts,
    )


def groups(*changes: Worsening | Sighting) -> list[list[str]]:
    sightings = [c if isinstance(c, Sighting) else Sighting(change=c) for c in changes]
    return [one.methods for one in brought_up_to_date(Ledger(), sightings).incidents]


def by(name: str, commit: str, **facts: Any) -> Sighting:
    culprit = Culprit(name=commit, author="A", subject="")
    return Sighting(change=worse(name, **facts), culprit=culprit)


NUMPY = ("numpy 2.2 -> 2.3",)
SAME = {"models": ("1" * 40, "2" * 40)}


@pytest.mark.parametrize(
    ("pair", "is_one"),
    [
        ((worse("a"), worse("b")), True),
        ((worse("a"), worse("b", night=1)), False),
        ((worse("a"), worse("b", night=1, sure=False)), True),  # its night is not known so well
        ((worse("a"), worse("b", night=3, sure=False)), False),
        ((worse("a", commits=SAME), worse("b", night=9, commits=SAME)), True),
        ((worse("a", commits=SAME), worse("b", night=30, commits=SAME)), False),
        (
            (
                worse("a", status="confirmed"),
                worse("b", night=1, sure=False, status="confirmed"),
            ),
            False,
        ),
        ((worse("a"), worse("b", is_machine=True)), False),
        ((worse("a", is_machine=True), worse("b", is_machine=True)), True),
        ((worse("a"), worse("b", commits={})), False),
        ((worse("a"), worse("b", commits={"other": ("1", "2")})), False),
        ((worse("a", commits={}), worse("b", commits={})), True),
        ((worse("a", commits={}), worse("b", commits={}, hardware="that")), False),
        (
            (
                worse("a", commits={}, differences=NUMPY),
                worse("b", commits={}, differences=("torch 2.1 -> 2.2",)),
            ),
            False,
        ),
        (
            (
                worse("a", commits={}, differences=NUMPY),
                worse("b", commits={}, differences=(*NUMPY, "kernel 6.1 -> 6.2")),
            ),
            True,
        ),
        ((by("a", "1"), by("b", "2")), False),
        ((by("a", "1"), by("b", "1", night=4)), True),
    ],
)
def test_changes_of_one_cause_are_one_incident(
    pair: tuple[Worsening | Sighting, ...], is_one: bool
) -> None:
    assert groups(*pair) == groups(*reversed(pair)) or not is_one
    assert sorted(groups(*pair)) == ([["a", "b"]] if is_one else [["a"], ["b"]])


def updated(
    one: Incident | None, *changes: Worsening, **levels: list[tuple[int, float]]
) -> Incident:
    """The first incident after a search that found these changes, and levels from a day on."""
    before = Ledger() if one is None else Ledger(incidents=(one,), next=one.id + 1)
    better = {
        (name, "wall_time"): [Improvement(returned=back(day), level=level) for day, level in own]
        for name, own in levels.items()
    }
    after = brought_up_to_date(before, [Sighting(change=c) for c in changes], better)
    return after.incidents[0]


def back(day: int) -> Returned:
    found = (DAY + timedelta(days=day)).isoformat()
    return Returned(night=found, alarm_night=found, commits={})


def test_an_incident_is_over_when_all_its_levels_have_returned() -> None:
    both = worse("a"), worse("b")  # from 2.0 to 2.2
    one = updated(None, *both)
    assert updated(one, *both, a=[(-3, 2.0), (20, 2.01)]).status == "suspect"  # b has not
    assert updated(one, *both, a=[(20, 2.01)], b=[(22, 2.1)]).status == "suspect"  # half of it
    fixed = updated(one, *both, a=[(20, 2.01)], b=[(21, 2.1), (22, 2.04)])
    assert (fixed.status, fixed.fix) == ("fixed", back(22))
    assert updated(one, a=[(20, 1.5)], b=[(22, 2.0)]).status == "fixed"  # its own nights are pruned
    assert updated(one).status == "suspect"  # which is no return
    assert updated(fixed, *both).status == "fixed"
    decision = Decision(what="reopened", at=0.0, day=back(23).night, reason="")
    again = replace(one, decision=decision)
    assert updated(again, a=[(20, 2.01)], b=[(22, 2.04)]).status == "suspect"
    assert updated(again, a=[(20, 2.0), (40, 2.0)], b=[(40, 2.0)]).status == "fixed"


def test_a_return_in_the_night_after_a_word_closes_what_it_has_opened() -> None:
    one = updated(None, worse("a"))
    for hour, seen, closing in ((10, 20, 21), (15, 20, 21), (15, 21, 22), (10, 5, 21)):
        fixed = updated(one, a=[(seen, 2.0)])
        at = datetime(2026, 7, 22, hour).timestamp()  # day 21: its night begins after the word
        word = Decision(what="reopened", at=at, day="2026-07-22", reason="")
        again = with_decision(fixed, word)
        assert updated(again, a=[(seen, 2.0), (closing - 1, 2.0)]).status == "suspect"
        assert updated(again, a=[(seen, 2.0), (closing, 2.0)]).status == "fixed"


def test_what_pairs_refute_opens_no_incident_and_closes_one() -> None:
    assert groups(worse("a", status="not_reproduced")) == []
    one = updated(None, worse("a"))
    assert updated(one, worse("a", status="not_reproduced")).status == "not_reproduced"
    confirmed = updated(one, worse("a", status="confirmed"))
    assert confirmed.status == "confirmed"
    assert updated(confirmed, worse("a")).status == "confirmed"  # the night's report is gone


def test_what_pairs_confirm_is_what_the_history_shows_later() -> None:
    by_pairs = replace(worse("a", status="confirmed"), alarm_night=DAY.isoformat())
    known = Ledger(incidents=(updated(None, by_pairs),), next=2)
    for night, number in ((-1, 1), (0, 1), (2, 1), (3, 2)):
        later = Sighting(change=worse("a", night=night))
        after = brought_up_to_date(known, [later]).incidents
        assert (len(after), after[0].status) == (number, "confirmed")


@pytest.mark.parametrize(("ratio", "is_known"), [(1.1, True), (1.07, True), (1.04, False)])
def test_what_pairs_made_sure_late_is_no_step_of_another_size_that_came_before(
    ratio: float, is_known: bool
) -> None:
    slow = replace(worse("a", status="confirmed"), ratio=ratio, drift=CREEP)
    known = Ledger(incidents=(updated(None, slow),), next=2)
    jump = worse("a", night=4, is_machine=True, commits={})
    after = brought_up_to_date(known, [Sighting(change=jump)]).incidents
    assert [len(one.changes) for one in after] == ([1] if is_known else [1, 1])


def test_what_moved_with_the_machine_is_not_what_pairs_have_confirmed_that_night() -> None:
    by_commits = replace(worse("a", status="confirmed"), ratio=1.04)
    known = Ledger(incidents=(updated(None, by_commits),), next=2)
    whole = worse("a", is_machine=True)
    after = brought_up_to_date(known, [Sighting(change=whole)]).incidents
    assert [one.is_machine for one in after] == [False, True]
    as_large = replace(by_commits, ratio=1.09)
    known = Ledger(incidents=(updated(None, as_large),), next=2)
    assert len(brought_up_to_date(known, [Sighting(change=whole)]).incidents) == 1


def test_two_steps_of_one_search_are_two_though_their_nights_overlap() -> None:
    first, second = worse("a"), worse("a", night=4)
    known = Ledger(incidents=(updated(None, first),), next=2)
    after = brought_up_to_date(known, [Sighting(change=c) for c in (first, second)]).incidents
    assert [one.main.night for one in after] == [first.night, second.night]
    moved = Sighting(change=worse("a", night=4))
    assert len(brought_up_to_date(known, [moved]).incidents) == 1  # the same, placed anew


def test_a_bisection_keeps_the_sides_that_pairs_have_compared() -> None:
    confirmed = replace(worse("a", status="confirmed"), before_execution_id="own")
    one = replace(updated(None, confirmed), bisection=Bisection(state="going_on"))
    later = replace(worse("a", night=1, differences=("x",)), ratio=1.2)
    (after,) = updated(one, later).changes
    kept = ("commits", "before_execution_id", "after_execution_id", "differences")
    assert [getattr(after, name) for name in kept] == [getattr(confirmed, name) for name in kept]
    assert (after.night, after.ratio) == (later.night, 1.2)  # the figures are the newest
    (after,) = updated(updated(None, worse("a")), later).changes
    assert after == replace(later, level=2.0)  # of a candidate, all of it


def test_a_closed_incident_takes_no_further_change_and_knows_its_own_again() -> None:
    accepted = Decision(what="accepted", at=0.0, day="2026-07-09", reason="")
    one = replace(updated(None, worse("a")), decision=accepted)
    ledger = Ledger(incidents=(one,), next=2)
    moved = replace(worse("a", night=1), low=1.05, high=1.15)  # its alarm, as results went
    after = brought_up_to_date(ledger, [Sighting(change=c) for c in (moved, worse("b"))])
    assert [(i.id, i.status, i.methods) for i in after.incidents] == [
        (1, "accepted", ["a"]),
        (2, "suspect", ["b"]),
    ]


def test_a_night_leaves_the_incidents_of_other_suites_as_they_are() -> None:
    theirs = Sighting(change=worse("b", night=9), is_bisecting=True)
    shared = Sighting(change=worse("c", night=20), is_bisecting=True)
    known = brought_up_to_date(Ledger(), [theirs, shared, Sighting(change=worse("d", night=20))])
    assert [one.status for one in known.incidents] == ["bisecting", "bisecting"]
    moved = Sighting(change=replace(theirs.change, ratio=1.2))
    more = (Sighting(change=worse("a")), Sighting(change=worse("e", night=30)))
    better = {("b", "wall_time"): [Improvement(returned=back(40), level=2.0)]}
    after = brought_up_to_date(known, [moved, shared, *more], better, methods={"a", "d"})
    one, other, own = after.incidents
    assert (one, other) == known.incidents  # of one that is shared, all is known
    assert own.methods == ["a"]


def test_an_old_change_opens_no_incident_of_a_night() -> None:
    known = brought_up_to_date(Ledger(), [Sighting(change=worse("a"))], opened_since="2026-07-07")
    assert known.incidents == ()


CREEP = Drifting(begin="2026-06-20", end="2026-07-30", ratio=1.2)


def test_a_drift_is_one_incident_however_many_steps_a_search_makes_of_it() -> None:
    parts = [worse("a", night=night, drift=CREEP) for night in (0, 9, 20)]
    ledger = brought_up_to_date(Ledger(), [Sighting(change=c) for c in parts])
    (one,) = ledger.incidents
    assert (one.kind, one.began, len(one.changes)) == ("drift", "2026-06-20", 3)
    # A step of the same series, or of the same night, is something else.
    steps = [worse("a", night=30), worse("b", night=9)]
    ledger = brought_up_to_date(ledger, [Sighting(change=c) for c in (*parts, *steps)])
    assert [i.methods for i in ledger.incidents] == [["a"], ["b"], ["a"]]
    # Others that drift since then have its cause; what began much later has not.
    later = replace(CREEP, begin="2026-07-10")
    assert groups(parts[0], worse("b", night=5, drift=CREEP)) == [["a", "b"]]
    assert groups(parts[0], worse("b", night=5, drift=later)) == [["a"], ["b"]]


def test_steps_of_a_drift_that_a_search_places_elsewhere_are_neither_kept_twice_nor_news() -> None:
    def found(known: Ledger, *nights: int) -> Ledger:
        parts = [worse("a", night=night, drift=CREEP) for night in nights]
        return brought_up_to_date(known, [Sighting(change=part) for part in parts])

    known = found(Ledger(), 0)
    known = replace(known, incidents=(replace(known.incidents[0], told=1),))
    for nights in ((0, 7), (3,), (0, 7), (3,), (0, 7)):
        known = found(known, *nights)
        (one,) = known.incidents
        assert one.told == len(one.changes) == len({own.night for own in one.changes})
    (one,) = brought_up_to_date(known, [Sighting(change=worse("b", drift=CREEP))]).incidents
    assert len(one.changes) == one.told + 1  # of another method it is


def test_a_step_of_a_drift_that_is_found_no_more_takes_what_is_said_of_the_drift_now() -> None:
    steps = [worse("a", drift=CREEP), worse("a", night=20, drift=replace(CREEP, ratio=1.4))]
    known = brought_up_to_date(Ledger(), [Sighting(change=step) for step in steps])
    assert [one.drift and one.drift.ratio for one in known.incidents] == [1.4]
    now = replace(CREEP, end="2026-07-20", ratio=1.15)
    (one,) = brought_up_to_date(known, [Sighting(change=worse("a", drift=now))]).incidents
    assert [change.drift for change in one.changes] == [now, now]
    other = replace(now, begin="2026-09-01", end="2026-09-20")  # another one, later
    (one,) = brought_up_to_date(
        known, [Sighting(change=worse("a", night=70, drift=other))]
    ).incidents
    assert one.changes[1].drift == steps[1].drift


def test_a_change_that_turns_out_to_be_a_drift_leaves_the_steps() -> None:
    a, b = worse("a"), worse("b")
    (one,) = brought_up_to_date(Ledger(), [Sighting(change=c) for c in (a, b)]).incidents
    told = Ledger(incidents=(replace(one, told=2),), next=2)
    drift = [Sighting(change=a), Sighting(change=replace(b, drift=CREEP))]
    after = brought_up_to_date(told, drift)
    assert [(i.methods, i.kind, i.told) for i in after.incidents] == [
        (["a"], "commits", 1),
        (["b"], "drift", 0),
    ]
    assert brought_up_to_date(after, drift) == after


def test_two_incidents_that_turn_out_to_be_one_drift_become_one() -> None:
    steps = [worse("a", night=night) for night in (0, 12)]
    two = brought_up_to_date(Ledger(), [Sighting(change=c) for c in steps])
    assert len(two.incidents) == 2
    told = replace(two, incidents=tuple(replace(one, told=1) for one in two.incidents))
    drift = [Sighting(change=replace(c, drift=CREEP)) for c in steps]
    (one,) = brought_up_to_date(told, drift).incidents
    assert (one.id, one.told, len(one.changes), one.kind) == (1, 2, 2, "drift")


def test_a_drift_does_not_swallow_an_incident_whose_commit_was_found() -> None:
    parts = [worse("a", night=night, drift=CREEP) for night in (0, 20)]
    steps = [worse("a", night=9), worse("b", night=9)]
    known = brought_up_to_date(Ledger(), [Sighting(change=c) for c in (*parts, *steps)])
    drift, found = known.incidents
    found = replace(found, culprit=Culprit(name="9", author="A", subject=""), owner="A")
    known = replace(known, incidents=(drift, replace(found, bisection=Bisection(state="found"))))
    again = [*parts, *(replace(step, drift=CREEP) for step in steps)]
    assert brought_up_to_date(known, [Sighting(change=c) for c in again]) == known
