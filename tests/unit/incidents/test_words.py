"""The sentences about incidents."""

from __future__ import annotations

from dataclasses import replace

from perfrun.incidents.incident import Bisection, Culprit, Incident, incident_row
from perfrun.incidents.words import incident_text, one_text
from tests.unit.incidents.test_grouping import worse

TWO = {"data": ("1" * 40, "2" * 40), "models": ("3" * 40, "4" * 40)}
CULPRIT = Culprit(name="4" * 40, author="A", subject="Slow", repository="models")
FOUND = Bisection(state="found", previous="3" * 40, trials=24, spent_s=360.0)


def said(one: Incident) -> str:
    return incident_text(one, str, str, str)


def test_a_culprit_names_its_repository_where_several_moved() -> None:
    one = Incident(id=1, changes=(worse("a", commits=TWO),), culprit=CULPRIT)
    assert "(culprit found): models 444444444444 of A: Slow" in said(one)
    assert "cause: models 444444444444 of A: Slow" in one_text(one)
    assert incident_row(one)["culprit"]["repository"] == "models"

    alone = replace(one, changes=(worse("a"),))
    assert "(culprit found): 444444444444 of A: Slow" in said(alone)
    old = replace(one, culprit=replace(CULPRIT, repository=""))
    assert "(culprit found): 444444444444 of A: Slow" in said(old)
    assert incident_row(old)["culprit"]["repository"] is None


def test_what_a_search_has_cost_stands_with_the_commit() -> None:
    one = Incident(id=1, changes=(worse("a"),), culprit=CULPRIT, bisection=FOUND)
    assert said(one).endswith("Slow; found by 24 trials in 6 min")
    assert "bisection: found by 24 trials in 6 min" in one_text(one)
    by_hand = replace(one, bisection=None)
    assert said(by_hand).endswith("Slow")
