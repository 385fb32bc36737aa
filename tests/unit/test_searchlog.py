"""The record of a search survives whatever ends the search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfrun.errors import PerfrunError, UsageError
from perfrun.searchlog import Measured, SearchLog, begin, unfinished

PAIR = Measured(a=0, b=3, values=(1.0, 1.1), summaries=("/x/1", "/x/2"))


@pytest.fixture
def log(tmp_path: Path) -> SearchLog:
    return begin(tmp_path, "mark", ["r0", "r1", "r2", "r3"], 7)


def test_what_was_written_is_read_back(log: SearchLog, tmp_path: Path) -> None:
    log.pair(PAIR, 2.5)
    log.failed(1, 0.5)
    log.skip(2, "failed (SyntaxError: 'x'\n)")
    assert unfinished(tmp_path, "mark") == log
    assert log.trials == 3
    assert log.spent_s == 3.0


def test_a_line_that_was_cut_off_costs_that_line_alone(log: SearchLog, tmp_path: Path) -> None:
    log.pair(PAIR)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + whole[-40:-10])
    again = unfinished(tmp_path, "mark")
    assert again is not None
    assert again.pairs == [PAIR]
    again.pair(PAIR)
    last = unfinished(tmp_path, "mark")
    assert last is not None
    assert last.pairs == [PAIR, PAIR]


@pytest.mark.parametrize(
    ("status", "goes_on"),
    [("found", False), ("range", False), ("not_reproduced", False), ("undecided", True)],
)
def test_only_what_has_no_answer_goes_on(
    log: SearchLog, tmp_path: Path, status: str, goes_on: bool
) -> None:
    log.end(status)
    assert (unfinished(tmp_path, "mark") is not None) == goes_on


def test_another_search_is_not_gone_on_with(log: SearchLog, tmp_path: Path) -> None:
    assert log.folder.parent == tmp_path
    assert unfinished(tmp_path, "other") is None
    assert unfinished(tmp_path / "nowhere", "mark") is None


def test_the_list_is_in_the_file(log: SearchLog) -> None:
    first = json.loads(log.path.read_text(encoding="utf-8").split("\n")[0])
    assert (first["revisions"], first["seed"]) == (["r0", "r1", "r2", "r3"], 7)


def test_a_record_that_cannot_be_written_ends_the_search_in_a_line(log: SearchLog) -> None:
    log.path.unlink()
    log.path.mkdir()
    with pytest.raises(PerfrunError, match="--resume goes on from before"):
        log.pair(PAIR)


def test_a_workspace_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Not a directory"):
        begin(tmp_path / "file", "mark", [], 1)
