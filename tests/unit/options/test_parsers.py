"""Values of the command line, and words in messages, whatever was typed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy

from perfrun.changes import bisect, detect
from perfrun.compare import ab
from perfrun.compare import command as comparison
from perfrun.compare.selection import _span
from perfrun.dlbs import command as dlbs
from perfrun.errors import UsageError
from perfrun.nightly import command as nightly
from perfrun.nightly import prune
from perfrun.options.parsers import (
    CommandParser,
    parse_clone,
    parse_regex,
    parse_shell_words,
    parse_whole,
    parse_word,
    shown,
    split_at_dashes,
)
from perfrun.options.store_address import parse_address
from perfrun.store.command import index_parser
from perfrun.text import redact
from perfrun.versus import options as versus

PARSERS = (
    *(ab.parser, bisect.parser, comparison.parser, detect.parser, prune.parser),
    *(nightly.parser, versus.parser, dlbs.parser),
)


@pytest.mark.parametrize(
    ("text", "number"),
    [(None, None), ("", None), (" 7 ", 7), ("007", 7), ("0" * 5000, 0), ("0" * 5000 + "7", 7)],
    ids=["None", "empty", "blanks", "007", "zeros", "zeros7"],
)
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
    [
        "(",
        "*",
        "a{99999999999999999999}",
        pytest.param("a{" + "1" * 5000 + "}", id="digits"),
        pytest.param("(" * 9999 + ")" * 9999, id="deep"),
    ],
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


@pytest.mark.parametrize("make", PARSERS, ids=lambda make: make.__module__)
def test_help_of_a_command_names_each_of_its_flags(make: Callable[[], CommandParser]) -> None:
    made = make()
    text = made.format_help()
    for action in made._actions:
        assert action.help
        assert all(name in text for name in action.option_strings)


def of_index(*words: str) -> argparse.Namespace:
    made = index_parser("x", None, "")
    made.add_clone()
    made.add_pair_rules(0.02)
    return made.parse_args(words)


def test_an_empty_value_is_a_flag_that_is_not_given() -> None:
    flags = ("workspace", "store", "format", "min_effect", "time_budget", "seed")
    given, empty = of_index(), of_index(*(f"--{flag}=" for flag in flags))
    assert [empty.format, empty.min_effect, empty.time_budget, empty.seed] == [
        *("table", 0.02, None, None)
    ]
    assert [given.format, given.min_effect, given.time_budget, given.seed] == [
        *("table", 0.02, None, None)
    ]
    assert not any((given.workspace, given.store, empty.workspace, empty.store, given.clone))


def test_a_flag_has_a_value_of_its_own_kind(tmp_path: Path) -> None:
    given = of_index(
        *("--format=json", "--min_effect=5%", "--time_budget=2m", "--seed=0"),
        *(f"--clone=a={tmp_path}", f"--clone=b={tmp_path}"),
    )
    assert (given.format, given.min_effect, given.time_budget, given.seed) == ("json", 0.05, 120, 0)
    assert given.clone == [("a", tmp_path), ("b", tmp_path)]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("--format=xml", "--format=xml: must be table or json"),
        ("--min_effect=x", "--min_effect=x: write 1% or 0.01"),
        ("--time_budget=0", "--time_budget=0: must be more than 0 seconds"),
        ("--seed=-1", "--seed=-1: must be a whole number, 0 or more"),
        ("--clone=", "--clone=: must be NAME=DIR, the folder of a git repository"),
        ("--nothing", "perfrun x: unknown flag --nothing"),
    ],
)
def test_a_wrong_value_is_one_line_without_words_of_argparse(word: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        of_index(word)
    assert str(caught.value) == line


def test_one_of_several_words_is_asked_for_by_all_of_them() -> None:
    assert parse_word(None, "--phase", ("a", "b", "c")) == "a"
    with pytest.raises(UsageError, match=r"^--phase=d: must be one of a, b, c$"):
        parse_word("d", "--phase", ("a", "b", "c"))


def test_flags_of_the_benchmark_follow_the_first_dashes() -> None:
    assert split_at_dashes(["--a", "--", "--b", "--", "c"]) == (["--a"], ["--b", "--", "c"])
    assert split_at_dashes(["--a"]) == (["--a"], [])
    assert parse_shell_words("--a='b c' -- d", "--flags") == ["--a=b c", "--", "d"]
    with pytest.raises(UsageError, match=r"^--flags=.*: no closing quotation$"):
        parse_shell_words("'", "--flags")


def test_a_path_that_is_too_long_is_no_folder() -> None:
    with pytest.raises(UsageError, match="must be NAME=DIR"):
        parse_clone("name=" + "long" * 2000, "--clone")
    assert parse_address("long" * 2000, Path("workspace")).is_sqlite


def test_a_regular_expression_that_a_later_python_reads_otherwise_makes_no_warning() -> None:
    assert parse_regex("[[a]", "--m").match("[")
