"""`--env NAME=VALUE`."""

from __future__ import annotations

import pytest

from perfrun.errors import UsageError
from perfrun.options.parsers import parse_variables


def test_the_last_of_a_name_counts_and_a_value_may_hold_anything() -> None:
    assert parse_variables(["A=1", "B=x=y,z ", "A=2", "_C="]) == (
        ("A", "2"),
        ("B", "x=y,z "),
        ("_C", ""),
    )
    assert parse_variables(None) == ()


@pytest.mark.parametrize("item", ["", "A", "=1", "1A=2", "A B=1", "A\n=1", "A=\0"])
def test_what_is_no_variable_is_refused(item: str) -> None:
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_variables([item])
