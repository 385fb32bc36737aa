"""Values as they are on disk: statuses, bounds, and JSON that any reader takes."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.summary.document import Metric, Status, json_ready, to_json


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def strict(text: str) -> Any:
    """Read JSON as a strict reader does, who knows no NaN."""
    return json.loads(text, parse_constant=refuse)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None, database=None)
@given(st.dictionaries(st.text(), values, max_size=4))
def test_every_document_is_json_for_a_strict_reader(document: dict[str, Any]) -> None:
    text = to_json(document)
    assert text.isascii()
    assert strict(text) == json_ready(document)


def test_the_form_is_perfzeros() -> None:
    text = to_json({"b": 1, "a": {"é": "ü"}})
    assert text == '{\n  "b": 1,\n  "a": {\n    "\\u00e9": "\\u00fc"\n  }\n}'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (-0.0, -0.0),
        (1, 1),
        (True, True),
        (Status.TIMED_OUT, "timed_out"),
        ((1, (math.nan,)), [1, ["NaN"]]),
        ({1: Status.PASSED}, {"1": "passed"}),
    ],
    ids=repr,
)
def test_what_json_cannot_hold_becomes_what_perfzeros_readers_know(
    value: Any, expected: Any
) -> None:
    assert strict(to_json({"v": value})) == {"v": expected}
    assert type(json_ready(value)) is type(expected)


def test_only_a_method_that_came_to_its_end_ran() -> None:
    assert {status for status in Status if status.ran} == {Status.PASSED, Status.OUT_OF_BOUNDS}


def test_the_names_of_the_outcomes_are_those_of_the_design() -> None:
    assert {status.value for status in Status} == {
        "passed",
        "out_of_bounds",
        "failed",
        "exited",
        "crashed",
        "oom_killed",
        "timed_out",
        "interrupted",
    }


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.9, 0.9, None, True),  # inclusive
        (0.9, None, 0.9, True),
        (0.8999999, 0.9, None, False),
        (0.91, None, 0.9, False),
        (0.0, 0.0, 0.0, True),
        (-1.0, 0.0, None, False),
        (5.0, 6.0, 4.0, False),  # bounds that nothing meets
        (math.inf, 0.0, None, True),
        (math.inf, None, 1e308, False),
        (math.inf, None, math.inf, True),
        (math.nan, None, None, True),
        (math.nan, 0.0, None, False),
        (math.nan, None, 0.0, False),
        (1.0, math.nan, None, False),
    ],
)
def test_bounds_are_inclusive_and_nan_meets_none(
    value: float, low: float | None, high: float | None, expected: bool
) -> None:
    assert Metric(name="m", value=value, min_value=low, max_value=high).in_bounds is expected
