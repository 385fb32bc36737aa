"""The summaries that a word of the command line names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from perfrun.compare import baselines
from perfrun.compare.selection import Results
from perfrun.errors import UsageError
from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from tests.summaries import summary, write

NOON = datetime(2026, 11, 21, 12, 0).timestamp()
DAY_S = 86400.0


@pytest.fixture
def select(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Returns how many summaries of a small workspace a word names."""
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "ws" / "output",
        summary(name="first", timestamp=NOON, label="abcd", run_id="run1"),
        summary(name="second", timestamp=NOON + DAY_S, label="x", commits={"r": "abcd" + "0" * 36}),
        summary(name="third", timestamp=NOON + 2 * DAY_S, label="x", commits={"r": "ef" * 20}),
    )
    results = Results(tmp_path / "ws", lambda text: None)
    return lambda word: len(results.select(word))


def test_labels_runs_commits_and_days_choose(select: Callable[[str], int]) -> None:
    assert select("x") == 2
    assert select("run1") == 1
    assert select("third") == 1
    assert select("efefe") == 1
    assert select("2026-11-21") == 1
    assert select("2026-11-21..2026-11-22") == 2
    assert select("2026-11-21T11:59..2026-11-21T12:00") == 1


def test_a_folder_is_read_whatever_it_is_of(select: Callable[[str], int], tmp_path: Path) -> None:
    assert select("ws") == 3
    assert select("ws/output") == 3
    assert select(str(next((tmp_path / "ws" / "output").glob("first*")))) == 1
    assert select(str(next((tmp_path / "ws" / "output").glob("first*/*.json")))) == 1
    (tmp_path / "x").mkdir()  # a folder comes before a label
    with pytest.raises(UsageError, match="there is no perfzero_summary"):
        select("x")
    assert select("label:x") == 2


def test_a_word_with_two_meanings_has_to_say_which(select: Callable[[str], int]) -> None:
    with pytest.raises(UsageError, match="say label:abcd or hash:abcd"):
        select("abcd")
    assert select("hash:abcd") == 1
    assert select("label:abcd") == 1


@pytest.mark.parametrize("word", ["nothing", "2026-13-45", "run:x", "hash:99999", "a" * 5000, ""])
def test_a_word_without_a_meaning_is_refused(select: Callable[[str], int], word: str) -> None:
    with pytest.raises(UsageError):
        select(word)


@pytest.mark.parametrize("has_index", [False, True])
def test_a_mistyped_word_gets_the_one_that_was_perhaps_meant(
    tmp_path: Path, *, has_index: bool
) -> None:
    write(tmp_path / "output", summary(name="a", label="release-1.0"), summary(name="b", label=""))
    if has_index:
        with open_store(parse_address(None, tmp_path)) as store:
            store.refresh()
    baselines.write(tmp_path, "nightly", ["last"], [])
    results = Results(tmp_path, lambda text: None)

    def hint(word: str) -> str:
        with pytest.raises(UsageError) as refused:
            results.select(word)
        return str(refused.value).partition("; ")[2]

    assert hint("lst") == "did you mean last?"
    assert hint("relase-1.0") == "did you mean release-1.0?"
    assert hint("nigtly") == "did you mean nightly?"
    assert hint("label:relase-1.0") == "did you mean label:release-1.0?"
    assert hint("run:lats") == "did you mean run:last?"
    assert hint("label:nigtly") == ""
    assert hint("1999-11-21") == ""


def test_a_broken_summary_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path / "output", summary(name="good"))
    (tmp_path / "output" / "bad\nname").mkdir()
    (tmp_path / "output" / "bad\nname" / "perfzero_summary.json").write_text("{", encoding="utf-8")
    said: list[str] = []
    assert len(Results(tmp_path, said.append).select(str(tmp_path))) == 1
    assert len(said) == 1
    assert "is left out" in said[0]
