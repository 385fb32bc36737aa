"""The help of every command: it fits a terminal, and says what the exit status means."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from perfrun.benchmark import main
from perfrun.options.commands import COMMANDS


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with suppress(SystemExit):  # argparse's own end
        assert main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_a_help_fits_80_columns_and_says_the_exit_status(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = told(capsys, *filter(None, [command]), "--help")
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert re.search(r"^Exit status: 0", text, re.MULTILINE)
    assert text.startswith("usage: p")


def test_the_help_of_a_run_begins_with_own_files(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "help", "run")
    assert text == told(capsys, "run", "--help")
    assert text.index("perfrun run sorting.py\n") < text.index("options:")
    assert "compare two sets" not in text  # the table of commands is in `perfrun --help`
    assert "compare two sets" in told(capsys, "help")


def test_paragraphs_of_a_help_follow_the_terminal_and_examples_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    narrow = told(capsys, "ab", "--help")
    monkeypatch.setenv("COLUMNS", "200")
    wide = told(capsys, "ab", "--help")
    paragraph = next(part for part in wide.split("\n\n") if part.startswith("Exit status"))
    again = next(part for part in narrow.split("\n\n") if part.startswith("Exit status"))
    assert again.split() == paragraph.split()
    assert max(map(len, again.splitlines())) <= 60 < max(map(len, paragraph.splitlines())) <= 100
