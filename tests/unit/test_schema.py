"""The checks of which the schemas are made: what passes, what is left out, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perfrun import schema
from perfrun.schema import MOST_NOTES, Check, Wrong, bounded, checked

THING = schema.table(
    {
        "name": schema.text(5),
        "size": schema.size,
        "times": schema.listed(schema.seconds, 3),
        "kind": schema.one_of("a", "b"),
        "more": schema.maybe(schema.mapped(schema.flag, 2)),
    },
    needs=("name",),
    absent={"kind": "a"},
)


def read(said: Any, wanted: Check = THING) -> tuple[Any, list[str]]:
    notes: list[str] = []
    return checked(wanted, said, "x.json", notes), notes


def test_what_is_right_comes_out_as_it_is() -> None:
    said = {"name": "n", "size": 3, "times": [0, 1.5], "kind": "b", "more": {"x": True}}
    assert read(said) == (said, [])
    assert read({"name": "n", "more": None}) == ({"name": "n", "kind": "a", "more": None}, [])


@pytest.mark.parametrize(
    ("said", "found", "note"),
    [
        ({"size": True}, {}, "size is true, not a whole number from 0 to 1125899906842624"),
        ({"size": 1.0}, {}, "size is 1.0, not a whole number from 0 to 1125899906842624"),
        ({"size": 10**400}, {}, "size is a huge number, not a whole number from 0 to "),
        ({"times": "abc"}, {}, "times is 'abc', not a list"),
        ({"times": [1, "2"]}, {"times": [1]}, "times[1] is '2', not a number from 0 to 1e+10"),
        ({"times": [1, 2, 3, 4]}, {"times": [1, 2, 3]}, "times has 4 items; the first 3 are kept"),
        ({"times": [float("nan")]}, {"times": []}, "times[0] is nan, not a number from 0 to 1e+10"),
        ({"times": [float("inf")]}, {"times": []}, "times[0] is inf, not a number from 0 to 1e+10"),
        ({"kind": "c"}, {}, "kind is 'c', not one of a, b"),
        ({"more": {"x": 1}}, {"more": {}}, "more.x is 1, not true or false"),
        ({"odd": 1}, {}, "it has 1 unknown fields ('odd'); left out"),
        ({"name": "longer"}, {"name": "longe"}, "name has 6 characters; the first 5 are kept"),
    ],
)
def test_what_is_wrong_is_left_out_and_noted(
    said: dict[str, Any], found: dict[str, Any], note: str
) -> None:
    value, [noted] = read({"name": "n", **said})
    assert value == {"name": "n", "kind": "a", **found}
    assert noted.startswith(f"x.json: {note}")


@pytest.mark.parametrize("said", [None, [], "text", {}, {"name": None}, {"name": 3}])
def test_without_what_it_needs_nothing_is_left(said: Any) -> None:
    with pytest.raises(Wrong):
        read(said)


def test_half_of_a_pair_is_replaced() -> None:
    assert read({"name": "a\ud800"})[0]["name"] == "a?"


def test_notes_are_few_short_and_on_one_line() -> None:
    said = ["x" * 10_000 + "\n"] * 1000
    _, notes = read(said, schema.listed(schema.flag, 1000))
    assert len(notes) == MOST_NOTES + 1
    assert notes[-1] == "x.json: 980 more notes like these"
    assert all(len(note) <= schema.LONGEST_NOTE and "\n" not in note for note in notes)
    assert bounded(["a\nb"] * 30) == (*["a b"] * 20, "10 more notes are left out")


def test_anything_has_as_many_values_as_are_wanted() -> None:
    wanted = schema.anything(5, longest=3)
    said = {"a": [1, None, "long"]}
    assert read(said, wanted)[0] == {"a": [1, None, "lon"]}
    with pytest.raises(Wrong, match="more than 5 values"):
        read([[], [], [], [], []], wanted)
