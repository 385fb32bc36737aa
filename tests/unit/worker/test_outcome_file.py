"""The outcome file: kept at every phase, whole whatever its contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.worker.outcome_file import ASIDE, OUTCOME, RESERVED_BYTES, OutcomeFile, write_json


def saved(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / ASIDE).read_bytes())
    return value


def test_the_space_for_the_outcome_is_taken_before_anything_is_said(tmp_path: Path) -> None:
    OutcomeFile(str(tmp_path))
    status = (tmp_path / ASIDE).stat()
    assert status.st_size == RESERVED_BYTES
    assert status.st_blocks * 512 >= RESERVED_BYTES


def test_each_phase_can_be_read_while_the_trial_runs(tmp_path: Path) -> None:
    file = OutcomeFile(str(tmp_path))
    for phase in ("import", "construct", "a much longer name of a phase", "method"):
        file.save({"phase": phase})
        assert saved(tmp_path) == {"phase": phase}
        assert not (tmp_path / OUTCOME).exists()


def test_the_last_word_has_the_final_name_alone(tmp_path: Path) -> None:
    file = OutcomeFile(str(tmp_path))
    file.save({"phase": "method"})
    file.finish({"phase": "method", "complete": True})
    assert [path.name for path in tmp_path.iterdir()] == [OUTCOME]
    assert json.loads((tmp_path / OUTCOME).read_bytes())["complete"] is True


def test_the_outcome_survives_a_folder_that_cannot_be_renamed_in(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    file = OutcomeFile(str(folder))
    (folder / OUTCOME).mkdir()  # in the way of the rename, for root too
    (folder / OUTCOME / "x").touch()
    file.finish({"complete": True})
    assert saved(folder) == {"complete": True}


@pytest.mark.parametrize("text", ["x", "\n", "é", "\U0001f600", "\udcff", "\0"], ids=ascii)
def test_a_huge_message_in_any_alphabet_fits_what_was_reserved(tmp_path: Path, text: str) -> None:
    huge = "begin" + text * 400_000 + "end"
    error = {"kind": "exception", "type": "E", "message": huge, "traceback": huge}
    OutcomeFile(str(tmp_path)).save({"error": error, "complete": True})
    assert (tmp_path / ASIDE).stat().st_size == RESERVED_BYTES
    read = saved(tmp_path)["error"]
    assert read["type"] == "E"
    for key in ("message", "traceback"):
        assert read[key].startswith("begin")
        assert "[...]" in read[key]
        assert read[key].endswith("end")


def test_a_traceback_of_usual_length_is_kept_whole(tmp_path: Path) -> None:
    text = "line of a traceback\n" * 700
    OutcomeFile(str(tmp_path)).save({"error": {"traceback": text, "exit_code": 3}})
    assert saved(tmp_path)["error"] == {"traceback": text, "exit_code": 3}


def test_a_short_outcome_after_a_long_one_leaves_nothing_of_it(tmp_path: Path) -> None:
    file = OutcomeFile(str(tmp_path))
    file.save({"unsaved_reports": [{"extras": {"a": "x" * 2 * RESERVED_BYTES}}]})
    file.save({"phase": "method"})
    assert saved(tmp_path) == {"phase": "method"}


def test_json_is_written_aside_and_renamed(tmp_path: Path) -> None:
    path = tmp_path / "answer"
    write_json(str(path), {"é": [1]})
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(path.read_text(encoding="utf-8")) == {"é": [1]}


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "answer"
    write_json(str(path), 1)
    with pytest.raises(TypeError):
        write_json(str(path), object())
    assert path.read_text(encoding="utf-8") == "1"
