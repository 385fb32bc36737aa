"""Values of the command line, and words in messages, whatever was typed."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy

from perfrun.arguments import parse_regex, parse_whole, shown
from perfrun.errors import UsageError
from perfrun.redaction import redact
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


def test_blanks_of_any_width_stay_in_an_error_and_separators_of_lines_do_not() -> None:
    assert UsageError("fatal\xa0: impossible\u202f!\ta").line == "fatal\xa0: impossible\u202f! a"
    assert UsageError("a\u2028b\x1b[1m\u200bc\r").line == r"a\u2028b\x1b[1m\u200bc\r"


@pytest.mark.parametrize("word", ["9999-12-31", "2026-02-30", "2026-01-01..9999-12-31"])
def test_a_day_that_has_no_end_names_nothing(word: str) -> None:
    assert _span(word) is None


PASSWORDS = ["secret", "secret#1", "a/secret", "12/secret", "secret?x", "[secret", "my secret"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("host", ["h:port", "h:99999", "[::1"])
def test_a_server_whose_port_is_no_number_is_refused(host: str, password: str) -> None:
    with pytest.raises(UsageError, match=r"^--store=postgresql\+psycopg://\*") as caught:
        parse_address(f"postgresql+psycopg://u:{password}@{host}/x", Path("workspace"))
    assert "must be a number from 0 to 65535" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("host", ["h", "h:5432", "[::1]:5432", ""])
def test_a_password_may_have_what_ends_a_host_and_is_never_shown(host: str, password: str) -> None:
    given = f"postgresql://u@corp:{password}@{host}/db"
    address = parse_address(given, Path("workspace"))
    assert sqlalchemy.make_url(address.url).password == password
    assert address.shown == redact(given) == f"postgresql://***@{host}/db"
    with pytest.raises(UsageError, match="must be a file, sqlite:///FILE or") as caught:
        parse_address(given.replace("postgresql", "mysql"), Path("workspace"))
    assert "secret" not in str(caught.value)
