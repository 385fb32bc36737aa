"""Values of the command line, and words in messages, whatever was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.arguments import parse_regex, parse_whole, shown
from perfrun.errors import UsageError
from perfrun.selection import _span
from perfrun.store.address import parse_address


@pytest.mark.parametrize(("text", "number"), [(None, None), ("", None), (" 7 ", 7), ("007", 7)])
def test_a_whole_number_is_read(text: str | None, number: int | None) -> None:
    assert parse_whole(text, "--n", 0) == number


@pytest.mark.parametrize("text", ["1.5", "-1", "x", "²", "1e3", "0", "9" * 19, "9" * 5000, "1\n2"])
def test_what_is_no_whole_number_is_one_short_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--n=") as caught:
        parse_whole(text, "--n", 1)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    ["(", "*", "a{99999999999999999999}", pytest.param("(" * 9999 + ")" * 9999, id="deep")],
)
def test_what_is_no_regular_expression_is_one_short_line(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"^--m: .* is not a regular expression: ") as caught:
        parse_regex(pattern, "--m")
    assert len(str(caught.value)) < 200


def test_a_value_is_shown_on_one_line() -> None:
    assert shown("a b") == "a b"
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) < 100


def test_an_error_is_one_line_whatever_name_is_in_it() -> None:
    assert UsageError("no folder a\nb\udcff größe: x").line == "no folder a\\nb\\udcff größe: x"


@pytest.mark.parametrize("word", ["9999-12-31", "2026-02-30", "2026-01-01..9999-12-31"])
def test_a_day_that_has_no_end_names_nothing(word: str) -> None:
    assert _span(word) is None


@pytest.mark.parametrize("host", ["h:port", "[::1"])
def test_a_server_whose_port_is_no_number_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=r"^--store=postgresql") as caught:
        parse_address(f"postgresql+psycopg://u:secret@{host}/x", Path("workspace"))
    assert "secret" not in str(caught.value)
