"""The record of a search survives whatever ends the search."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from perfrun.changes.search_log import (
    MeasuredPair,
    SearchLog,
    begin_search,
    search_lock,
    unfinished_search,
)
from perfrun.errors import PerfrunError, UsageError

PAIR = MeasuredPair(a=0, b=3, values=(1.0, 1.1), summaries=("/x/1", "/x/2"))


@pytest.fixture
def log(tmp_path: Path) -> SearchLog:
    return begin_search(tmp_path, "mark", ["r0", "r1", "r2", "r3"], 7)


def test_what_was_written_is_read_back(log: SearchLog, tmp_path: Path) -> None:
    log.pair(PAIR, 2.5)
    log.failed(1, 0.5)
    log.skip(2, "failed (SyntaxError: 'x'\n)")
    assert unfinished_search(tmp_path, "mark") == log
    assert log.trials == 3
    assert log.spent_s == 3.0


def test_a_line_that_was_cut_off_costs_that_line_alone(log: SearchLog, tmp_path: Path) -> None:
    log.pair(PAIR)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + whole[-40:-10])
    again = unfinished_search(tmp_path, "mark")
    assert again is not None
    assert again.pairs == [PAIR]
    again.pair(PAIR)
    last = unfinished_search(tmp_path, "mark")
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
    assert (unfinished_search(tmp_path, "mark") is not None) == goes_on


def test_the_newest_search_is_the_one_that_began_last_whatever_the_clock_on_the_wall_says(
    log: SearchLog, tmp_path: Path
) -> None:
    later = begin_search(tmp_path, "mark", ["r0", "r1"], 8)
    # As in the hour that comes twice when summer time ends.
    log.folder.rename(tmp_path / "20261025-025000-aaaaaa")
    later.folder.rename(tmp_path / "20261025-021000-bbbbbb")
    found = unfinished_search(tmp_path, "mark")
    assert found is not None
    assert found.seed == 8


def test_of_searches_without_a_time_the_newest_is_told_across_the_end_of_summer_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        back = datetime(2026, 10, 25, 1, 0, tzinfo=timezone.utc).timestamp()
        cases = (("20261025-025000-a", back - 600, 1), ("20261025-021000-b", back + 600, 2))
        for name, begun, seed in cases:
            log = begin_search(tmp_path, "mark", ["r0"], seed)
            event = json.loads(log.path.read_text())
            event.pop("begun", None)
            log.path.write_text(json.dumps(event) + "\n")
            with search_lock(log):
                pass
            for path in log.folder.iterdir():
                os.utime(path, (begun, begun))
            os.utime(log.path, (back + 9000, back + 9000))  # both went on for long
            log.folder.rename(tmp_path / name)
        found = unfinished_search(tmp_path, "mark")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found is not None
    assert found.seed == 2


def test_another_search_is_not_gone_on_with(log: SearchLog, tmp_path: Path) -> None:
    assert log.folder.parent == tmp_path
    assert unfinished_search(tmp_path, "other") is None
    assert unfinished_search(tmp_path / "nowhere", "mark") is None


def test_a_log_whose_first_line_is_of_another_kind_is_not_gone_on_with(
    log: SearchLog, tmp_path: Path
) -> None:
    event = json.loads(log.path.read_bytes()) | {"event": "x"}
    del event["seed"]
    log.path.write_text(json.dumps(event) + "\n")
    assert unfinished_search(tmp_path, "mark") is None


def test_an_event_of_an_unknown_kind_is_left_out(log: SearchLog, tmp_path: Path) -> None:
    with log.path.open("a", encoding="utf-8") as file:
        file.write('{"event": "later", "seconds": "many", "trials": []}\n')
    assert unfinished_search(tmp_path, "mark") == log


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
        begin_search(tmp_path / "file", "mark", [], 1)


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": ["pair"]}',
        b'{"event": "end"}',
        b'{"event": "pair", "a": 0, "b": 9, "values": [1.0, 1.1], "summaries": ["x", "y"]}',
        b'{"event": "pair", "a": 0, "b": 1, "values": [1.0, 0], "summaries": ["x", "y"]}',
        b'{"event": "pair", "a": 0, "b": 1, "values": [1.0, NaN], "summaries": ["x", "y"]}',
        b'{"event": "pair", "a": 0, "b": 1, "values": "12"}',
        b'{"event": "failed", "trials": "2"}',
        b'{"event": "failed", "trials": 1, "seconds": 1e999}',
        b'{"event": "broken", "revision": -1, "why": "w"}',
        b'{"event": "broken", "revision": 4, "why": "w"}',
    ],
)
def test_a_line_with_a_wrong_value_counts_as_one_that_was_cut_off(
    log: SearchLog, tmp_path: Path, line: bytes
) -> None:
    log.pair(PAIR)
    log.path.write_bytes(log.path.read_bytes() + line + b"\n")
    assert unfinished_search(tmp_path, "mark") == log


def test_what_skipped_revisions_cost_is_read_again(tmp_path: Path) -> None:
    log = begin_search(tmp_path, "mark", ["a", "b", "c"], 1, {"one": ["a", "b"], "two": ["c"]})
    log.failed(1, 2.0, 1)
    log.failed(0, 30.0, 1)  # it could not be prepared, which takes time, too
    log.skip(1, "no wheel")
    with log.path.open("a") as file:
        # Of an older perfrun, and two that cannot be.
        file.write('{"event": "failed", "trials": 2, "seconds": 1.0}\n')
        file.write('{"event": "failed", "trials": 2, "seconds": 1.0, "revision": 9}\n')
        file.write('{"event": "failed", "trials": 2, "seconds": 1.0, "revision": "b"}\n')
    again = unfinished_search(tmp_path, "mark")
    assert again is not None
    assert again.lost == {1: (1, 32.0)}
    assert (again.trials, again.spent_s, again.broken) == (3, 33.0, {1: "no wheel"})
    first = json.loads(log.path.read_text().partition("\n")[0])
    assert first["repositories"] == {"one": ["a", "b"], "two": ["c"]}


def test_a_search_with_an_answer_is_read_where_that_is_asked_for(tmp_path: Path) -> None:
    log = begin_search(tmp_path, "mark", ["a", "b"], 1)
    log.end("found")
    assert unfinished_search(tmp_path, "mark") is None
    again = unfinished_search(tmp_path, "mark", ended_too=True)
    assert again is not None
    assert again.folder == log.folder
