"""The end of a run waits for an index only where that can help."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from trial_documents import perfrun_summary, write_summary

from perfrun.options.store_address import parse_address
from perfrun.store import database, recorder
from perfrun.store.index import open_store
from perfrun.store.patience import Backoff


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the pauses; the third one is the last."""
    found: list[int] = []

    def wait(_: Backoff) -> bool:
        found.append(1)
        return len(found) < 3

    monkeypatch.setattr(Backoff, "wait", wait)
    return found


def test_a_run_does_not_wait_for_a_damaged_index(tmp_path: Path, waits: list[int]) -> None:
    notes: list[str] = []
    address = parse_address(None, tmp_path)
    assert address.file is not None
    index = recorder.IndexRecorder(address, notes.append)
    index.add(write_summary(tmp_path / "output", perfrun_summary()))
    assert not notes
    address.file.write_bytes(b"no database" * 1000)
    index.add(write_summary(tmp_path / "output", perfrun_summary(1)))
    index.finish()
    assert not waits
    assert "not a database" in notes[0]
    assert "1 results are not in" in notes[1]


def test_a_run_waits_for_another_writer(
    tmp_path: Path, waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    address = parse_address(None, tmp_path)
    assert address.file is not None
    with open_store(address):
        pass
    index = recorder.IndexRecorder(address, notes.append)
    index.add(write_summary(tmp_path / "output", perfrun_summary()))
    monkeypatch.setattr(database, "WAIT_S", 0.01)
    other = sqlite3.connect(address.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    index.add(write_summary(tmp_path / "output", perfrun_summary(1)))
    index.finish()
    other.close()
    assert len(waits) == 3
    assert "is locked" in notes[0]
