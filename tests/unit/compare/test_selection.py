"""Comparing by an index says what comparing by the files says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from tests.summaries import trials, write

STEADY = (1.00, 1.01, 0.99, 1.005, 0.995, 1.002)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    facts: dict[str, dict[str, Any]] = {
        "old": {"label": "old", "run_id": "r1", "commits": {"m": "a" * 40}},
        "new": {"label": "new", "run_id": "r2", "commits": {"m": "b" * 40}},
    }
    for name, factor in (("old", 1.0), ("new", 1.2)):
        documents = trials(
            [factor * t for t in STEADY],
            metrics={"images_per_second": 9.0},
            distributions={"torch": name},
            benchmark_flags=["--batch_size=8"],
            **facts[name],
        )
        for number, document in enumerate(documents):
            document["execution_id"] = f"{name}-{number}"
        write(tmp_path / "ws" / "output", *documents)
    return tmp_path / "ws"


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(["compare", *words, "--format=json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {"code": code, **found}


@pytest.mark.parametrize("pair", [("old", "new"), ("r1", "r2"), ("aaaa", "bbbb")])
def test_an_index_gives_the_same_answer_as_the_files(
    workspace: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"--workspace={workspace}"
    by_files = compared(capsys, *pair, place)
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
    assert by_files["code"] == 1
    assert compared(capsys, *pair, place) == by_files


def test_a_workspaces_index_is_brought_up_to_date_first(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(parse_address(None, workspace)):
        pass  # an empty index
    assert compared(capsys, "old", "new", f"--workspace={workspace}")["code"] == 1


def test_what_is_gone_is_compared_by_what_the_index_kept(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_files = compared(capsys, "old", "new", f"--workspace={workspace}")
    file = tmp_path / "team.db"
    with open_store(parse_address(str(file), workspace)) as store:
        store.refresh([workspace])
    shutil.rmtree(workspace)
    assert compared(capsys, "old", "new", f"--store={file}") == by_files


def test_an_index_that_cannot_be_had_is_refused_when_named_and_done_without_else(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "perfrun.db").write_bytes(b"not a database, by any means" * 100)
    assert main(["compare", "old", "new", f"--workspace={workspace}"]) == 1
    assert "reading the summaries themselves" in capsys.readouterr().err
    assert main(["compare", "old", "new", f"--store={workspace / 'perfrun.db'}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
